// T[j,i] = X[i,j]
// t0: X, f32, argument
// t1: T, f32, argument

extern "C" __global__ void __launch_bounds__(256, 2) kernel0(
    const f32 *__restrict__ t0,
    f32 *__restrict__ t1) {
  const i32 v0 = blockIdx.x;
  const i32 v1 = blockIdx.y;
  const i32 v2 = threadIdx.y;
  if (const i32 v3 = threadIdx.x; v3 < 70 - 32 * v0) {
    t1[1280 * v0 + 8 * v1 + v2 + 40 * v3] = t0[32 * v0 + 560 * v1 + 70 * v2 + v3];
  }
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  f32 *t1 = (f32 *)pointers[1];
  PK_LAUNCH(kernel0, (3, 5, 1), (32, 8, 1), 0, t0, t1);
}
#endif

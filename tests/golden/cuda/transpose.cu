// T[j,i] = X[i,j]
// t0: X, f32, argument
// t1: T, f32, argument

extern "C" __global__ void __launch_bounds__(256, 2) kernel0(
    const f32 *__restrict__ t0,
    f32 *__restrict__ t1) {
  const i32 v0 = blockIdx.y;
  const i32 v1 = blockIdx.x;
  if (const i32 v2 = threadIdx.y; v2 < 70 - 8 * v0) {
    if (const i32 v3 = threadIdx.x; v3 < 40 - 32 * v1) {
      t1[320 * v0 + 32 * v1 + 40 * v2 + v3] = t0[8 * v0 + 2240 * v1 + v2 + 70 * v3];
    }
  }
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: on the device, 0 before; see pk_fail.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  f32 *t1 = (f32 *)pointers[1];
  PK_LAUNCH(kernel0, (2, 9, 1), (32, 8, 1), 0, t0, t1);
}
#endif

// Z[i] = relu(X[i]) * 2 + Y[i]
// t0: X, f32, argument
// t1: Y, f32, argument
// t2: Z, f32, argument

extern "C" __global__ void __launch_bounds__(256, 2) kernel0(
    const f32 *__restrict__ t0,
    const f32 *__restrict__ t1,
    f32 *__restrict__ t2) {
  const i32 v0 = blockIdx.x;
  if (const i32 v1 = threadIdx.x; v1 < 1000 - 256 * v0) {
    t2[256 * v0 + v1] = (pk_relu(t0[256 * v0 + v1]) * 2.0f) + t1[256 * v0 + v1];
  }
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  const f32 *t1 = (const f32 *)pointers[1];
  f32 *t2 = (f32 *)pointers[2];
  PK_LAUNCH(kernel0, (4, 1, 1), (256, 1, 1), 0, t0, t1, t2);
}
#endif

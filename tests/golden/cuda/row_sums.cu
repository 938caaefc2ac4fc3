// s[i] += X[i,j]
// t0: X, f32, argument
// t1: s, f32, argument

extern "C" __global__ void __launch_bounds__(32, 16) kernel0(
    const f32 *__restrict__ t0,
    f32 *__restrict__ t1) {
  const i32 v0 = blockIdx.x;
  const i32 v1 = threadIdx.x;
  f32 t2_p0;
  t2_p0 = 0.0f;
#pragma unroll 4
  for (i32 v2 = 0; v2 < 200; v2++) {
    t2_p0 += t0[6400 * v0 + 200 * v1 + v2];
  }
  t1[32 * v0 + v1] = t2_p0;
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  f32 *t1 = (f32 *)pointers[1];
  PK_LAUNCH(kernel0, (2, 1, 1), (32, 1, 1), 0, t0, t1);
}
#endif

// S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:60
// t0: X, f32, argument
// t1: S, f32, argument

extern "C" __global__ void __launch_bounds__(1, 16) kernel0(
    const f32 *__restrict__ t0,
    f32 *__restrict__ t1) {
#pragma unroll 4
  for (i32 v0 = 0; v0 < 50; v0++) {
    t1[60 * v0] = t0[60 * v0];
  }
  for (i32 v1 = 1; v1 < 60; v1++) {
#pragma unroll 4
    for (i32 v2 = 0; v2 < 50; v2++) {
      t1[v1 + 60 * v2] = t1[v1 + 60 * v2 - 1] + t0[v1 + 60 * v2];
    }
  }
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  f32 *t1 = (f32 *)pointers[1];
  PK_LAUNCH(kernel0, (1, 1, 1), (1, 1, 1), 0, t0, t1);
}
#endif

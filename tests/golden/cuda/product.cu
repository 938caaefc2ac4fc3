// C[i,j] += A[i,k] * B[k,j]
// t0: A, f32, argument
// t1: B, f32, argument
// t2: C, f32, argument

extern "C" __global__ void __launch_bounds__(256, 2) kernel0(
    const f32 *__restrict__ t0,
    const f32 *__restrict__ t1,
    f32 *__restrict__ t2) {
  const i32 v0 = blockIdx.y;
  const i32 v1 = blockIdx.x;
  if (const i32 v2 = threadIdx.y; v2 < 20 - 8 * v0) {
    if (const i32 v3 = threadIdx.x; v3 < 40 - 32 * v1) {
      f32 t3_p0;
      t3_p0 = 0.0f;
#pragma unroll 4
      for (i32 v4 = 0; v4 < 12; v4++) {
        t3_p0 += t0[96 * v0 + 12 * v2 + v4] * t1[32 * v1 + v3 + 40 * v4];
      }
      t2[320 * v0 + 32 * v1 + 40 * v2 + v3] = t3_p0;
    }
  }
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  const f32 *t1 = (const f32 *)pointers[1];
  f32 *t2 = (f32 *)pointers[2];
  PK_LAUNCH(kernel0, (2, 3, 1), (32, 8, 1), 0, t0, t1, t2);
}
#endif

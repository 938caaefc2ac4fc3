// C[i,j] += A[i,k] * B[k,j]
// t0: A, f32, argument
// t1: B, f32, argument
// t2: C, f32, argument

extern "C" __global__ void __launch_bounds__(256, 2) kernel0(
    const f32 *__restrict__ t0,
    const f32 *__restrict__ t1,
    f32 *__restrict__ t2,
    i64 n0,
    i64 n1,
    i64 n2) {
  for (i64 v0 = blockIdx.y; v0 < ((n0 + 7) / 8); v0 += i64(gridDim.y)) {
    for (i64 v1 = blockIdx.x; v1 < ((n2 + 31) / 32); v1 += i64(gridDim.x)) {
      if (const i32 v2 = threadIdx.y; v2 < n0 - 8 * v0) {
        if (const i32 v3 = threadIdx.x; v3 < n2 - 32 * v1) {
          f32 t3_p0;
          t3_p0 = 0.0f;
#pragma unroll 4
          for (i64 v4 = 0; v4 < n1; v4++) {
            t3_p0 += t0[8 * n1 * v0 + n1 * i64(v2) + v4] * t1[n2 * v4 + 32 * v1 + i64(v3)];
          }
          t2[8 * n2 * v0 + n2 * i64(v2) + 32 * v1 + i64(v3)] = t3_p0;
        }
      }
    }
  }
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  const f32 *t1 = (const f32 *)pointers[1];
  f32 *t2 = (f32 *)pointers[2];
  const i64 n0 = integers[0];
  const i64 n1 = integers[1];
  const i64 n2 = integers[2];
  PK_LAUNCH(kernel0, (unsigned(pk_max(i64(1), i64(pk_min(i64(2147483647LL), i64(((n2 + 31) / 32)))))), unsigned(pk_max(i64(1), i64(pk_min(i64(65535LL), i64(((n0 + 7) / 8)))))), 1), (32, 8, 1), 0, t0, t1, t2, n0, n1, n2);
}
#endif

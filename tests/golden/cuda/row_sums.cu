// s[i] += X[i,j]
// t0: X, f32, argument
// t1: s, f32, argument
// t2: partial, f32, scratch

extern "C" __global__ void __launch_bounds__(256, 2) kernel0(
    const f32 *__restrict__ t0,
    f32 *__restrict__ t2) {
  const i32 v0 = blockIdx.y;
  const i32 v4 = 0;
  const i32 v1 = threadIdx.y;
  const i32 v2 = threadIdx.x;
  f32 t3_p0;
  t3_p0 = 0.0f;
#pragma unroll 4
  for (i32 v3 = 0; v3 < 7 - ((v2 + 24) / 32); v3++) {
    t3_p0 += t0[1600 * v0 + 200 * v1 + v2 + 32 * v3];
  }
  t2[256 * v0 + 32 * v1 + v2] = t3_p0;
}

extern "C" __global__ void __launch_bounds__(64, 8) kernel1(
    f32 *__restrict__ t1,
    f32 *__restrict__ t2) {
  const i32 v10 = 0;
  const i32 v5 = threadIdx.x;
  f32 t5_p1;
  f32 t4_p1[8];
  t4_p1[0] = 0.0f;
  t4_p1[1] = 0.0f;
  t4_p1[2] = 0.0f;
  t4_p1[3] = 0.0f;
  t4_p1[4] = 0.0f;
  t4_p1[5] = 0.0f;
  t4_p1[6] = 0.0f;
  t4_p1[7] = 0.0f;
  for (i32 v7 = 0; v7 < 4; v7++) {
    t4_p1[0] += t2[32 * v5 + 8 * v7];
    t4_p1[1] += t2[32 * v5 + 8 * v7 + 1];
    t4_p1[2] += t2[32 * v5 + 8 * v7 + 2];
    t4_p1[3] += t2[32 * v5 + 8 * v7 + 3];
    t4_p1[4] += t2[32 * v5 + 8 * v7 + 4];
    t4_p1[5] += t2[32 * v5 + 8 * v7 + 5];
    t4_p1[6] += t2[32 * v5 + 8 * v7 + 6];
    t4_p1[7] += t2[32 * v5 + 8 * v7 + 7];
  }
  t5_p1 = 0.0f;
  t5_p1 += t4_p1[0];
  t5_p1 += t4_p1[1];
  t5_p1 += t4_p1[2];
  t5_p1 += t4_p1[3];
  t5_p1 += t4_p1[4];
  t5_p1 += t4_p1[5];
  t5_p1 += t4_p1[6];
  t5_p1 += t4_p1[7];
  t1[v5] = t5_p1;
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: on the device, 0 before; see pk_fail.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  f32 *t1 = (f32 *)pointers[1];
  f32 *t2 = (f32 *)pointers[2];
  PK_LAUNCH(kernel0, (1, 8, 1), (32, 8, 1), 0, t0, t2);
  PK_LAUNCH(kernel1, (1, 1, 1), (64, 1, 1), 0, t1, t2);
}
#endif

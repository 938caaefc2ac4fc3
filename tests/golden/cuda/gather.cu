// E[i,j] = T[idx[i], j]
// t0: T, f32, argument
// t1: idx, i32, argument
// t2: E, f32, argument

extern "C" __global__ void __launch_bounds__(256, 2) kernel0(
    const f32 *__restrict__ t0,
    const i32 *__restrict__ t1,
    f32 *__restrict__ t2,
    int *failed) {
  const i32 v0 = blockIdx.x;
  const i32 v1 = threadIdx.y;
  const i32 v2 = threadIdx.x;
  const i64 v3 = i64(t1[v1]);
  if (v3 >= 0 && v3 < 100) {
    t2[32 * v0 + 64 * v1 + v2] = t0[32 * i64(v0) + i64(v2) + 64 * v3];
  } else pk_fail(failed, 1);
}

#ifndef __CUDACC_RTC__
// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before.
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  const f32 *t0 = (const f32 *)pointers[0];
  const i32 *t1 = (const i32 *)pointers[1];
  f32 *t2 = (f32 *)pointers[2];
  PK_LAUNCH(kernel0, (2, 1, 1), (32, 8, 1), 0, t0, t1, t2, failed);
}
#endif

// pk_sim.h: CUDA's words for a C++17 compiler, so that the text of a kernel runs on a CPU: see pk_sim.cpp.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#define PK_BOTH inline
#define PK_FN inline
#define __global__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __shared__ static
#define __syncthreads() pk_barrier(__LINE__)
#define __syncwarp() pk_meet_warp(__LINE__)
#define pk_shfl_xor(value, mask) pk_exchanged(value, mask, __LINE__)
struct pk_dim {
  unsigned x, y, z;
  constexpr pk_dim(unsigned a, unsigned b, unsigned c) : x(a), y(b), z(c) {}
};
extern "C" {
extern pk_dim pk_thread_index, pk_block_index, pk_block_size, pk_grid_size;
void pk_barrier(int line);
void pk_meet_warp(int line);
void pk_exchange(const void *mine, void *other, unsigned bytes, int mask, int line);
void pk_launch(const char *name, pk_dim blocks, pk_dim threads, int together, void (*body)(void *), void *argument);
void pk_misaligned(const void *place, int bytes);
void pk_ask(void *to, const void *from, int bytes, int there);
int pk_next(int pending, void **to, const void **from);
void pk_commit(void);
void pk_enter(void);
void pk_leave(void);
void launch(void **pointers, const long long *integers, int *failed, void *stream);
}
template <class T> static inline T pk_exchanged(T mine, int mask, int line) {
  T other;
  pk_exchange(&mine, &other, sizeof(T), mask, line);
  return other;
}
static inline void pk_check_aligned(const void *place, int bytes) {
  if ((uintptr_t)place % bytes) pk_misaligned(place, bytes);
}
// A copy that arrives later: what was in its place is lost at once (NaN), and the bytes come at the wait that covers it.
template <int N, class T> static inline void pk_copy_later(T *to, const T *from, bool there = true) {
  pk_check_aligned(to, N * sizeof(T));
  if (there) pk_check_aligned(from, N * sizeof(T));
  memset((void *)to, 0xFF, N * sizeof(T));
  pk_ask(to, from, N * sizeof(T), there);
}
template <int PENDING> static inline void pk_wait() {
  void *to;
  const void *from;
  while (int bytes = pk_next(PENDING, &to, &from))
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
}
#define threadIdx pk_thread_index
#define blockIdx pk_block_index
#define blockDim pk_block_size
#define gridDim pk_grid_size
template <class F> static inline void pk_start(const char *name, pk_dim blocks, pk_dim threads, int together, F body) {
  pk_launch(name, blocks, threads, together, [](void *p) { (*(F *)p)(); }, &body);
}
// `together`: the threads of a block meet in barriers.
#define PK_LAUNCH(name, blocks, threads, together, ...)                 \
  pk_start(#name, pk_dim blocks, pk_dim threads, together, [&] { name(__VA_ARGS__); })
#define PK_LAUNCH_SHARED(name, bytes, ...) PK_LAUNCH(name, __VA_ARGS__)
#define PK_SHARED(type, name, elements, place) alignas(16) static type name[elements]
typedef void *pk_stream;
static inline void pk_fail(int *failed, int code) { if (!*failed) *failed = code; }
static inline float pk_inf32() { return HUGE_VALF; }
static inline double pk_inf64() { return HUGE_VAL; }
#define __popcll __builtin_popcountll
// The inverse of erf, which C lacks. Source of the start: Winitzki, 2008; then Newton's steps.
static inline double erfinv(double y) {
  double a = fabs(y);
  if (!(a < 1)) return a == 1 ? copysign(HUGE_VAL, y) : NAN;
  double l = log1p(-a * a), h = 4.3307467508 + l / 2, x = sqrt(sqrt(h * h - l / 0.147) - h);
  for (int n = 0; n < 4 && a > 1e-6; n++)
    x += (a < 0.8 ? a - erf(x) : erfc(x) - (1 - a)) * 0.88622692545275801365 * exp(x * x);
  return copysign(a > 1e-6 ? x : a * 0.88622692545275801365, y);
}
static inline float erfinvf(float y) { return (float)erfinv(y); }
static inline uint32_t pk_float_bits(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
static inline float pk_bits_float(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }
static inline uint16_t pk_bf16_bits(float x) {
  uint32_t b = pk_float_bits(x);
  return x != x ? (uint16_t)((b >> 16) | 0x40) : (uint16_t)((b + ((b >> 16) & 1) + 0x7FFF) >> 16);
}
static inline float pk_bf16_value(uint16_t h) { return pk_bits_float((uint32_t)h << 16); }
static inline uint16_t pk_f16_bits(float x) {
  uint32_t b = pk_float_bits(x), sign = (b >> 16) & 0x8000, m = b & 0x7FFFFFFF;
  if (m > 0x7F800000) return (uint16_t)(sign | 0x7E00 | ((m >> 13) & 0x3FF));
  if (m >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
  if (m < 0x38800000) return (uint16_t)(sign | (pk_float_bits(pk_bits_float(m) + 0.5f) - 0x3F000000));
  uint32_t r = m - (112u << 23);
  return (uint16_t)(sign | ((r + 0xFFF + ((r >> 13) & 1)) >> 13));
}
static inline float pk_f16_value(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, m = h & 0x7FFF;
  if (m >= 0x7C00) return pk_bits_float(sign | 0x7F800000 | (m << 13));
  if (m < 0x400) return pk_bits_float(sign | pk_float_bits((float)m * 5.9604644775390625e-08f));
  return pk_bits_float(sign | ((m << 13) + (112u << 23)));
}
// The function that the run time calls, by the interface of kernels on the CPU.
extern "C" __attribute__((visibility("default"))) long long kernel(void **pointers, long long *integers) {
  int failed = 0;
  pk_enter();
  launch(pointers, integers, &failed, nullptr);
  pk_leave();
  return failed;
}

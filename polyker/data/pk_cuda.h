// pk_cuda.h: what kernels printed by polyker use: element types, and operations whose results are those of NumPy.
// Compiled by nvcc and NVRTC, and with PK_SIM defined by any C++17 compiler (pk_sim.h). Needs no other header.
#ifdef PK_SIM
#include "pk_sim.h"
#else
#define PK_BOTH __host__ __device__ __forceinline__
#define PK_FN __device__ __forceinline__
// A gathered index was outside: one of those that were is told at the next synchronisation. `failed` may lie on the host.
PK_FN void pk_fail(int *failed, int code) { *(volatile int *)failed = code; }
// The value of the thread of the warp whose number is this one's xor `mask`; all threads of the warp come here together.
template <class T> union pk_words {
  T value;
  unsigned word[(sizeof(T) + 3) / 4];
  PK_FN pk_words() {}
};
template <class T> PK_FN T pk_shfl_xor(T value, int mask) {
  pk_words<T> mine, other;
  mine.value = value;
#pragma unroll
  for (int n = 0; n < int((sizeof(T) + 3) / 4); n++) other.word[n] = __shfl_xor_sync(0xFFFFFFFFu, mine.word[n], mask);
  return other.value;
}
#ifndef __CUDACC_RTC__
typedef cudaStream_t pk_stream;
// `together`: the threads of a block meet in barriers.
#define PK_LAUNCH(name, blocks, threads, together, ...) name<<<dim3 blocks, dim3 threads, 0, stream>>>(__VA_ARGS__)
// With more shared memory than a kernel has without asking for it.
#define PK_LAUNCH_SHARED(name, bytes, blocks, threads, together, ...)                            \
  do {                                                                                           \
    cudaFuncSetAttribute(name, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);              \
    name<<<dim3 blocks, dim3 threads, bytes, stream>>>(__VA_ARGS__);                             \
  } while (0)
#endif
PK_FN float pk_inf32() { return __uint_as_float(0x7F800000u); }
PK_FN double pk_inf64() { return __longlong_as_double(0x7FF0000000000000LL); }
// A part of that memory, which begins `place` bytes behind its start.
extern __shared__ __align__(16) unsigned char pk_shared[];
#define PK_SHARED(type, name, elements, place) type *const name = (type *)(pk_shared + place)
#endif

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// ---- neighbouring elements, read or written at once: their address is a multiple of their bytes ---------------------------
template <class T, int N> struct alignas(N * sizeof(T)) pk_vector { T lane[N]; };
#ifndef PK_SIM
PK_FN void pk_check_aligned(const void *, int) {}
#endif
template <int N, class T> PK_FN pk_vector<T, N> pk_get(const T *from) {
  pk_check_aligned(from, N * int(sizeof(T)));
  return *(const pk_vector<T, N> *)from;
}
template <int N, class T> PK_FN void pk_put(T *to, pk_vector<T, N> value) {
  pk_check_aligned(to, N * int(sizeof(T)));
  *(pk_vector<T, N> *)to = value;
}
template <int N, class T> PK_FN pk_vector<T, N> pk_all(T value) {
  pk_vector<T, N> all;
#pragma unroll
  for (int n = 0; n < N; n++) all.lane[n] = value;
  return all;
}

// ---- copies into shared memory that arrive later: at a wait of their thread for all but its last groups of copies --------
#ifndef PK_SIM
// 4, 8 or 16 bytes; where `there` is false nothing is read, and they become 0.
template <int N, class T> PK_FN void pk_copy_later(T *to, const T *from, bool there = true) {
#if __CUDA_ARCH__ >= 800
  const int bytes = N * int(sizeof(T));
  const unsigned place = unsigned(__cvta_generic_to_shared(to));
  const size_t origin = __cvta_generic_to_global(from);
  const int read = there ? bytes : 0;
  if (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(origin), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(origin), "n"(bytes == 8 ? 8 : 4), "r"(read) : "memory");
#else
  pk_put(to, there ? pk_get<N>(from) : pk_all<N>(T(0)));
#endif
}
PK_FN void pk_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int PENDING> PK_FN void pk_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
#endif

// ---- integers: sums wrap; division rounds down, and by zero it gives 0 --------------------------------------------------
template <class T> PK_BOTH T pk_add(T a, T b) { return T(u64(a) + u64(b)); }
template <class T> PK_BOTH T pk_sub(T a, T b) { return T(u64(a) - u64(b)); }
template <class T> PK_BOTH T pk_mul(T a, T b) { return T(u64(a) * u64(b)); }
template <class T> PK_BOTH T pk_neg(T a) { return T(0 - u64(a)); }
// The first test, which is a constant, keeps compilers from remarks on unsigned types.
template <class T> PK_BOTH bool pk_negative(T a) { return T(-1) < T(0) && a < T(0); }
template <class T> PK_BOTH T pk_floordiv(T a, T b) {
  if (b == T(0)) return T(0);
  if (T(-1) < T(0) && b == T(-1)) return pk_neg(a);
  T q = T(a / b), r = T(a % b);
  return r != T(0) && pk_negative(r) != pk_negative(b) ? T(q - 1) : q;
}
template <class T> PK_BOTH T pk_mod(T a, T b) {
  if (b == T(0) || (T(-1) < T(0) && b == T(-1))) return T(0);
  T r = T(a % b);
  return r != T(0) && pk_negative(r) != pk_negative(b) ? T(r + b) : r;
}
template <class T> PK_BOTH T pk_bit_and(T a, T b) { return T(a & b); }
template <class T> PK_BOTH T pk_bit_or(T a, T b) { return T(a | b); }
template <class T> PK_BOTH T pk_bit_xor(T a, T b) { return T(a ^ b); }
template <class T> PK_BOTH T pk_bit_not(T a) { return T(~a); }
// By a negative number, which is a great one without sign, or by the width or more no bits are left.
template <class T> PK_BOTH T pk_shift_left(T a, T b) { return u64(b) < 8 * sizeof(T) ? T(u64(a) << u64(b)) : T(0); }
template <class T> PK_BOTH T pk_shift_right(T a, T b) {
  return u64(b) < 8 * sizeof(T) ? T(a >> int(b)) : pk_negative(a) ? T(-1) : T(0);
}
template <class T> PK_FN T pk_fmod(T a, T b) { return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b); }
template <class T> PK_FN T pk_popcount(T a) { return T(__popcll(u64(a) & (~0ULL >> (64 - 8 * sizeof(T))))); }
template <class T> PK_BOTH T pk_min(T a, T b) { return b < a ? b : a; }
template <class T> PK_BOTH T pk_max(T a, T b) { return a < b ? b : a; }
template <class T> PK_FN T pk_abs(T a) { return pk_negative(a) ? pk_neg(a) : a; }
template <class T> PK_FN T pk_sign(T a) { return T(T(0) < a) - T(pk_negative(a)); }
template <class T> PK_FN T pk_pow(T x, T y) {
  if (pk_negative(y)) return x == T(1) ? T(1) : x == T(-1) ? (y & T(1) ? T(-1) : T(1)) : T(0);
  u64 r = 1, s = u64(x);
  for (u64 e = u64(y); e; e >>= 1, s *= s)
    if (e & 1) r *= s;
  return T(r);
}

// ---- f32 and f64: a NaN in either argument makes an extremum NaN --------------------------------------------------------
PK_FN f32 pk_min(f32 a, f32 b) { return a < b || a != a ? a : b; }
PK_FN f64 pk_min(f64 a, f64 b) { return a < b || a != a ? a : b; }
PK_FN f32 pk_max(f32 a, f32 b) { return a > b || a != a ? a : b; }
PK_FN f64 pk_max(f64 a, f64 b) { return a > b || a != a ? a : b; }
PK_FN f32 pk_sign(f32 x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? 0.0f : x; }
PK_FN f64 pk_sign(f64 x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x == 0 ? 0.0 : x; }
PK_FN f32 pk_nan32() { return pk_inf32() - pk_inf32(); }
PK_FN f64 pk_nan64() { return pk_inf64() - pk_inf64(); }
template <class T> PK_FN T pk_power2(T x) { return x * x; }
template <class T> PK_FN T pk_power3(T x) { return x * x * x; }
template <class T> PK_FN T pk_power4(T x) { return (x * x) * (x * x); }
// The functions of C's library, by their names here and there, and those that are written by others; S: what ends C's names for
// this type.
// @functions of C's library
#define PK_CALL1(T, S, name, c) PK_FN T pk_##name(T x) { return c##S(x); }
#define PK_CALL2(T, S, name, c) PK_FN T pk_##name(T x, T y) { return c##S(x, y); }
#define PK_REAL(T, S)                                                                                                         \
  PK_C1(PK_CALL1, T, S)                                                                                                       \
  PK_C2(PK_CALL2, T, S)                                                                                                       \
  PK_WRITTEN(T)                                                                                                               \
  PK_FN T pk_pow(T x, T y) { return pow##S(x, y); }                                                                           \
  PK_FN T pk_fma(T x, T y, T z) { return fma##S(x, y, z); }                                                                   \
  PK_FN T pk_mod(T x, T y) {                                                                                                  \
    T r = fmod##S(x, y);                                                                                                      \
    if (y == T(0)) return r;                                                                                                  \
    return r != T(0) ? ((r < T(0)) != (y < T(0)) ? r + y : r) : copysign##S(T(0), y);                                         \
  }                                                                                                                           \
  PK_FN T pk_floordiv(T x, T y) {                                                                                             \
    if (y == T(0)) return x / y;                                                                                              \
    T r = fmod##S(x, y), q = (x - r) / y;                                                                                     \
    if (r != T(0) && (r < T(0)) != (y < T(0))) q -= T(1);                                                                     \
    if (q == T(0)) return copysign##S(T(0), x / y);                                                                           \
    T f = floor##S(q);                                                                                                        \
    return q - f > T(0.5) ? f + T(1) : f;                                                                                     \
  }
PK_REAL(f32, f)
PK_REAL(f64, )
#undef PK_REAL
#undef PK_CALL1
#undef PK_CALL2

// A float as an integer: through a wider signed type, as C compilers do it for NumPy.
template <class T> PK_FN T pk_int(f64 x) { return T(x < 9223372036854775808.0 ? u64(i64(x)) : u64(x)); }

// ---- half precision: computed in f32 and rounded after every operation --------------------------------------------------
#ifndef PK_SIM
PK_FN u16 pk_f16_bits(f32 x) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
PK_FN u16 pk_bf16_bits(f32 x) { u16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
PK_FN f32 pk_f16_value(u16 h) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
PK_FN f32 pk_bf16_value(u16 h) { return __uint_as_float(u32(h) << 16); }
PK_FN u32 pk_float_bits(f32 x) { return __float_as_uint(x); }
PK_FN f32 pk_bits_float(u32 x) { return __uint_as_float(x); }
#endif
// f64 to f32 rounded to odd, so that a second rounding to half precision is as good as one.
PK_FN f32 pk_odd(f64 x) {
  f32 y = (f32)x;
  if ((f64)y == x || x != x) return y;
  u32 bits = pk_float_bits(y);
  if (fabs((f64)y) > fabs(x)) bits -= 1;
  return pk_bits_float(bits | 1);
}
#define PK_HALF(H)                                                                                                            \
  struct H {                                                                                                                  \
    u16 bits;                                                                                                                 \
    H() = default;                                                                                                            \
    PK_FN explicit H(f32 x) : bits(pk_##H##_bits(x)) {}                                                                       \
    PK_FN explicit H(f64 x) : bits(pk_##H##_bits(pk_odd(x))) {}                                                               \
    PK_FN explicit operator f32() const { return pk_##H##_value(bits); }                                                      \
    PK_FN explicit operator f64() const { return pk_##H##_value(bits); }                                                      \
  };                                                                                                                          \
  PK_FN H operator+(H a, H b) { return H(f32(a) + f32(b)); }                                                                  \
  PK_FN H operator-(H a, H b) { return H(f32(a) - f32(b)); }                                                                  \
  PK_FN H operator*(H a, H b) { return H(f32(a) * f32(b)); }                                                                  \
  PK_FN H operator/(H a, H b) { return H(f32(a) / f32(b)); }                                                                  \
  PK_FN H operator-(H a) { return H(-f32(a)); }                                                                               \
  PK_FN bool operator<(H a, H b) { return f32(a) < f32(b); }                                                                  \
  PK_FN bool operator<=(H a, H b) { return f32(a) <= f32(b); }                                                                \
  PK_FN bool operator>(H a, H b) { return f32(a) > f32(b); }                                                                  \
  PK_FN bool operator>=(H a, H b) { return f32(a) >= f32(b); }                                                                \
  PK_FN bool operator==(H a, H b) { return f32(a) == f32(b); }                                                                \
  PK_FN bool operator!=(H a, H b) { return f32(a) != f32(b); }                                                                \
  PK_FN H pk_min(H a, H b) { return H(pk_min(f32(a), f32(b))); }                                                              \
  PK_FN H pk_max(H a, H b) { return H(pk_max(f32(a), f32(b))); }                                                              \
  PK_FN H pk_pow(H a, H b) { return H(pk_pow(f32(a), f32(b))); }                                                              \
  PK_FN H pk_mod(H a, H b) { return H(pk_mod(f32(a), f32(b))); }                                                              \
  PK_FN H pk_floordiv(H a, H b) { return H(pk_floordiv(f32(a), f32(b))); }                                                    \
  PK_C1(PK_HALF1, H, )                                                                                                        \
  PK_C2(PK_HALF2, H, )                                                                                                        \
  PK_WRITTEN_HALF(H)                                                                                                          \
  PK_HALF1(H, , sign, ) PK_HALF1(H, , power2, ) PK_HALF1(H, , power3, ) PK_HALF1(H, , power4, )
#define PK_HALF1(H, S, name, c) PK_FN H pk_##name(H x) { return H(pk_##name(f32(x))); }
#define PK_HALF2(H, S, name, c) PK_FN H pk_##name(H a, H b) { return H(pk_##name(f32(a), f32(b))); }
PK_HALF(f16)
PK_HALF(bf16)
#undef PK_HALF
#undef PK_HALF1
#undef PK_HALF2

// ---- complex numbers ----------------------------------------------------------------------------------------------------
template <class T> struct pk_complex {
  T re, im;
  pk_complex() = default;
  PK_FN pk_complex(T r, T i) : re(r), im(i) {}
  template <class S> PK_FN explicit pk_complex(pk_complex<S> z) : re(T(z.re)), im(T(z.im)) {}
};
typedef pk_complex<f32> c64;
typedef pk_complex<f64> c128;
template <class T> PK_FN pk_complex<T> operator+(pk_complex<T> a, pk_complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> PK_FN pk_complex<T> operator-(pk_complex<T> a, pk_complex<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> PK_FN pk_complex<T> operator-(pk_complex<T> a) { return {-a.re, -a.im}; }
template <class T> PK_FN pk_complex<T> operator*(pk_complex<T> a, pk_complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T> PK_FN pk_complex<T> operator/(pk_complex<T> a, pk_complex<T> b) {
  if (pk_abs(b.re) >= pk_abs(b.im)) {
    if (b.re == T(0) && b.im == T(0)) return {a.re / pk_abs(b.re), a.im / pk_abs(b.re)};
    T r = b.im / b.re, s = T(1) / (b.re + b.im * r);
    return {(a.re + a.im * r) * s, (a.im - a.re * r) * s};
  }
  T r = b.re / b.im, s = T(1) / (b.im + b.re * r);
  return {(a.re * r + a.im) * s, (a.im * r - a.re) * s};
}
template <class T> PK_FN bool operator==(pk_complex<T> a, pk_complex<T> b) { return a.re == b.re && a.im == b.im; }
template <class T> PK_FN bool operator!=(pk_complex<T> a, pk_complex<T> b) { return !(a == b); }
template <class T> PK_FN pk_complex<T> pk_conj(pk_complex<T> z) { return {z.re, -z.im}; }
template <class T> PK_FN pk_complex<T> pk_round(pk_complex<T> z) { return {pk_round(z.re), pk_round(z.im)}; }
PK_FN f32 pk_abs(c64 z) { return hypotf(z.re, z.im); }
PK_FN f64 pk_abs(c128 z) { return hypot(z.re, z.im); }
template <class T> PK_FN bool pk_truth(pk_complex<T> z) { return z.re != T(0) || z.im != T(0); }
// Ordered by the real part, then by the imaginary one, as NumPy does it.
#define PK_ORDER(op, strict)                                                                                                  \
  template <class T> PK_FN bool operator op(pk_complex<T> a, pk_complex<T> b) {                                               \
    return (a.re strict b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im op b.im);                              \
  }
PK_ORDER(<, <)
PK_ORDER(<=, <)
PK_ORDER(>, >)
PK_ORDER(>=, >)
#undef PK_ORDER
template <class T> PK_FN bool pk_is_nan(pk_complex<T> z) { return z.re != z.re || z.im != z.im; }
template <class T> PK_FN pk_complex<T> pk_min(pk_complex<T> a, pk_complex<T> b) { return a <= b || pk_is_nan(a) ? a : b; }
template <class T> PK_FN pk_complex<T> pk_max(pk_complex<T> a, pk_complex<T> b) { return a >= b || pk_is_nan(a) ? a : b; }
template <class T> PK_FN pk_complex<T> pk_sign(pk_complex<T> z) {
  T r = pk_hypot(z.re, z.im);
  return r == T(0) ? pk_complex<T>(T(0), T(0)) : pk_complex<T>(z.re / r, z.im / r);
}
template <class T> PK_FN pk_complex<T> pk_exp(pk_complex<T> z) {
  T e = pk_exp(z.re);
  return z.im == T(0) ? pk_complex<T>(e, z.im) : pk_complex<T>(e * pk_cos(z.im), e * pk_sin(z.im));
}
template <class T> PK_FN pk_complex<T> pk_exp2(pk_complex<T> z) {
  T e = pk_exp2(z.re), angle = z.im * T(0.69314718055994530942);
  return z.im == T(0) ? pk_complex<T>(e, z.im) : pk_complex<T>(e * pk_cos(angle), e * pk_sin(angle));
}
template <class T> PK_FN pk_complex<T> pk_expm1(pk_complex<T> z) {
  T h = pk_sin(z.im / T(2));
  return {pk_expm1(z.re) * pk_cos(z.im) - T(2) * h * h, pk_exp(z.re) * pk_sin(z.im)};
}
template <class T> PK_FN T pk_log_abs(T x, T y) {
  T a = pk_max(pk_abs(x), pk_abs(y)), b = pk_min(pk_abs(x), pk_abs(y));
  if (a > T(0.5) && a < T(2) && b < T(2)) return pk_log1p((a - T(1)) * (a + T(1)) + b * b) / T(2);
  return pk_log(pk_hypot(x, y));
}
template <class T> PK_FN pk_complex<T> pk_log(pk_complex<T> z) { return {pk_log_abs(z.re, z.im), pk_atan2(z.im, z.re)}; }
template <class T> PK_FN pk_complex<T> pk_log2(pk_complex<T> z) {
  pk_complex<T> w = pk_log(z);
  return {w.re * T(1.44269504088896340736), w.im * T(1.44269504088896340736)};
}
template <class T> PK_FN pk_complex<T> pk_log10(pk_complex<T> z) {
  pk_complex<T> w = pk_log(z);
  return {w.re * T(0.43429448190325182765), w.im * T(0.43429448190325182765)};
}
template <class T> PK_FN pk_complex<T> pk_log1p(pk_complex<T> z) {
  T near = z.re * (T(2) + z.re) + z.im * z.im, angle = pk_atan2(z.im, T(1) + z.re);
  return {near > T(-0.5) && near < T(1) ? pk_log1p(near) / T(2) : pk_log_abs(T(1) + z.re, z.im), angle};
}
template <class T> PK_FN pk_complex<T> pk_sqrt(pk_complex<T> z) {
  if (z.re == T(0) && z.im == T(0)) return {T(0), z.im};
  T t = pk_sqrt((pk_abs(z.re) + pk_hypot(z.re, z.im)) / T(2));
  if (z.re >= T(0)) return {t, z.im / (T(2) * t)};
  return {pk_abs(z.im) / (T(2) * t), pk_copysign(t, z.im)};
}
template <class T> PK_FN pk_complex<T> pk_rsqrt(pk_complex<T> z) { return pk_complex<T>(T(1), T(0)) / pk_sqrt(z); }
template <class T> PK_FN pk_complex<T> pk_sin(pk_complex<T> z) {
  return {pk_sin(z.re) * pk_cosh(z.im), pk_cos(z.re) * pk_sinh(z.im)};
}
template <class T> PK_FN pk_complex<T> pk_cos(pk_complex<T> z) {
  return {pk_cos(z.re) * pk_cosh(z.im), -pk_sin(z.re) * pk_sinh(z.im)};
}
template <class T> PK_FN pk_complex<T> pk_sinh(pk_complex<T> z) {
  return {pk_sinh(z.re) * pk_cos(z.im), pk_cosh(z.re) * pk_sin(z.im)};
}
template <class T> PK_FN pk_complex<T> pk_cosh(pk_complex<T> z) {
  return {pk_cosh(z.re) * pk_cos(z.im), pk_sinh(z.re) * pk_sin(z.im)};
}
// W. Kahan, Branch cuts for complex elementary functions, 1987.
template <class T> PK_FN pk_complex<T> pk_tanh(pk_complex<T> z) {
  if (pk_abs(z.re) > T(20)) {
    T rest = T(4) * pk_sin(z.im) * pk_cos(z.im) * pk_exp(T(-2) * pk_abs(z.re));
    return {pk_copysign(T(1), z.re), rest};
  }
  T t = pk_tan(z.im), b = T(1) + t * t, s = pk_sinh(z.re), r = pk_sqrt(T(1) + s * s), d = T(1) + b * s * s;
  return {b * r * s / d, t / d};
}
template <class T> PK_FN pk_complex<T> pk_tan(pk_complex<T> z) {
  pk_complex<T> w = pk_tanh(pk_complex<T>(-z.im, z.re));
  return {w.im, -w.re};
}
// Small whole powers by multiplication, as NumPy does it.
template <class T> PK_FN pk_complex<T> pk_pow(pk_complex<T> a, pk_complex<T> b) {
  pk_complex<T> one(T(1), T(0));
  if (b.re == T(0) && b.im == T(0)) return one;
  if (a.re == T(0) && a.im == T(0)) {
    T bad = b.re > T(0) ? T(0) : T(pk_nan64());
    return {bad, bad};
  }
  if (b.im == T(0) && b.re > T(-100) && b.re < T(100) && b.re == pk_floor(b.re)) {
    int n = int(pk_abs(b.re));
    pk_complex<T> r = one, s = a;
    for (bool first = true; n; n >>= 1, s = s * s)
      if (n & 1) r = first ? s : r * s, first = false;
    return b.re < T(0) ? one / r : r;
  }
  return pk_exp(b * pk_log(a));
}

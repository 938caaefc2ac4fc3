// What plain JavaScript of a program calls: numbers of 16 bits, integer division, and functions that Math lacks.
const bits32 = new Uint32Array(1), float32 = new Float32Array(bits32.buffer);

function bf16Value(bits) {
  bits32[0] = bits << 16;
  return float32[0];
}

function bf16Bits(value) {
  float32[0] = value;
  if (value !== value) return 0x7fc0;
  return (bits32[0] + 0x7fff + ((bits32[0] >>> 16) & 1)) >>> 16;
}

function f16Value(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

function f16Bits(value) {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0, size = Math.abs(value);
  if (size !== size) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 1)));
  const steps = roundEven(size * 2 ** (10 - exponent)); // 2048 where it rounds up to the next power of 2
  if (size < 2 ** -14) return sign | roundEven(size * 2 ** 24);
  return sign | (((exponent + 14) << 10) + steps);
}

function roundEven(value) {
  const low = Math.floor(value), rest = value - low;
  const found = rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : Math.ceil(value);
  return found === 0 ? value * 0 : found;
}

const floordiv = (a, b) => (b === 0 ? 0 : Math.floor(a / b));
const mod = (a, b) => (b === 0 ? 0 : a - Math.floor(a / b) * b);
const bigfloordiv = (a, b) => (b === 0n ? 0n : a / b - (a % b !== 0n && a < 0n !== b < 0n ? 1n : 0n));
const bigmod = (a, b) => (b === 0n ? 0n : a - bigfloordiv(a, b) * b);
const remainder = (a, b) => (b === 0n ? 0n : a % b);
const shiftLeft = (a, n, bits) => (n < 0n || n >= bits ? 0n : a << n);
const shiftRight = (a, n, bits) => (n < 0n || n >= bits ? (a < 0n ? -1n : 0n) : a >> n);

function power(a, n, bits) {
  if (n < 0n) return a === 1n ? 1n : a === -1n ? (n % 2n ? -1n : 1n) : 0n;
  let found = 1n;
  for (let square = a; n > 0n; n >>= 1n, square = BigInt.asIntN(Number(bits), square * square)) {
    if (n & 1n) found = BigInt.asIntN(Number(bits), found * square);
  }
  return found;
}

function ones(a, bits) {
  let count = 0n;
  for (let rest = BigInt.asUintN(Number(bits), a); rest > 0n; rest &= rest - 1n) count++;
  return count;
}

const wholeOf = (x) => (Number.isFinite(x) ? Math.trunc(x) : 0);
const exp2 = (x) => 2 ** x;
const copysign = (x, y) => (y < 0 || Object.is(y, -0) ? -Math.abs(x) : Math.abs(x));

function erf(x) {
  const size = Math.abs(x);
  if (size > 2.5) return Math.sign(x) * (1 - erfc(size));
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= (2 * x * x) / (2 * n + 1);
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

function erfc(x) {
  if (x !== x) return x;
  if (x < 2.5) return 1 - erf(x);
  let below = x;
  for (let n = 120; n > 0; n--) below = x + n / 2 / below;
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / below;
}

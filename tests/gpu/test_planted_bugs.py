"""Bugs planted in the text of kernels that share memory are caught, in any order of the threads; without them it is clean.

The kernels are written by hand, so that they do not change with what is generated. Of the eight bugs of kernels on a GPU that the
simulator is to catch one stands for another: tensor cores are not there yet, so in place of the load of a fragment of a matrix a
warp reads a tile by 16 bytes that other warps asked for, with no barrier between its copies' arrival and that.
"""

import numpy as np
import pytest

from polyker.codegen.cuda.text import data_file
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_sanitizer

pytestmark = needs_compiler

TILES = 3  # along the summed index, of 8 each
HEAD = """extern "C" __global__ void product(const f32 *A, const f32 *B, f32 *C) {
  const int x = threadIdx.x, y = threadIdx.y, row = 8 * blockIdx.y + y, col = 8 * blockIdx.x + x;
  f32 sum = 0;
"""
TAIL = """  C[16 * row + col] = sum;
}
extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {
  PK_LAUNCH(product, (2, 2, 1), (8, 8, 1), 1, (const f32 *)pointers[0], (const f32 *)pointers[1], (f32 *)pointers[2]);
}
"""
ONE_BUFFER = """  __shared__ f32 As[8][8], Bs[8][8];
  for (int t = 0; t < 3; t++) {
    As[y][x] = A[24 * row + 8 * t + x];
    Bs[y][x] = B[16 * (8 * t + y) + col];
    __syncthreads();  // filled
    for (int k = 0; k < 8; k++) sum += As[y][k] * Bs[k][x];
    __syncthreads();  // read
  }
"""
TWO_BUFFERS = """  __shared__ f32 As[2][8][8], Bs[2][8][8];
  As[0][y][x] = A[24 * row + x];
  Bs[0][y][x] = B[16 * y + col];
  __syncthreads();
  for (int t = 0; t < 3; t++) {
    if (t + 1 < 3) {
      As[(t + 1) % 2][y][x] = A[24 * row + 8 * (t + 1) + x];
      Bs[(t + 1) % 2][y][x] = B[16 * (8 * (t + 1) + y) + col];
    }
    for (int k = 0; k < 8; k++) sum += As[t % 2][y][k] * Bs[t % 2][k][x];
    __syncthreads();  // next
  }
"""

RING = """  __shared__ f32 alignas(16) As[3][8][8], Bs[3][8][8];
  for (int t = 0; t < 5; t++) {
    pk_wait<1>();  // all but the last
    __syncthreads();  // there
    if (t < 3) {
      pk_copy_later<1>(&As[t % 3][y][x], &A[24 * row + 8 * t + x]);
      if (x % 4 == 0) pk_copy_later<4>(&Bs[t % 3][y][x], &B[16 * (8 * t + y) + col]);
    }
    pk_commit();  // a group
    if (t >= 2)
      for (int k = 0; k < 8; k += 4) {
        const pk_vector<f32, 4> a = pk_get<4>(&As[(t - 2) % 3][y][k]);
        for (int n = 0; n < 4; n++) sum += a.lane[n] * Bs[(t - 2) % 3][k + n][x];
      }
  }
"""
EXCHANGE = """  __shared__ f32 row_of[8][8];
  for (int k = 0; k < 24; k++) sum += A[24 * row + k] * B[16 * k + col];
  row_of[y][x] = sum;
  __syncwarp();  // stored
  const f32 other = row_of[y][7 - x];
  __syncwarp();  // seen
  row_of[y][x] = other;
  __syncwarp();  // back
  sum = row_of[y][7 - x];
"""

FILLED, READ, NEXT = (f"__syncthreads();  // {word}" for word in ("filled", "read", "next"))
STORED, SEEN = (f"__syncwarp();  // {word}" for word in ("stored", "seen"))
SHUFFLE = "sum += 0 * pk_shfl_xor(sum, 1);"
SKIPPED = "if (y > 4) return; __syncthreads();"
# The kernel, what is changed, the sanitizer that sees it ("none": the simulator itself does), and a part of its report.
BUGS = {
    "no barrier in the loop over two buffers": (TWO_BUFFERS, NEXT, "", "thread", "data race"),
    "no barrier before what others stored is read": (ONE_BUFFER, FILLED, "", "thread", "data race"),
    "only a shuffle before what others stored is read": (ONE_BUFFER, FILLED, SHUFFLE, "thread", "data race"),
    "a buffer is overwritten while others read it": (ONE_BUFFER, READ, "", "thread", "data race"),
    "an index past the row": (ONE_BUFFER, "As[y][k] *", "As[y][k + 1] *", "address", "out of bounds"),
    "one tile too many is read": (TWO_BUFFERS, "t + 1 < 3", "t + 1 <= 3", "address", "heap-buffer-overflow"),
    "a wait too weak": (RING, "pk_wait<1>", "pk_wait<2>", "thread", "data race"),
    "no wait": (RING, "pk_wait<1>();", "", "none", "no wait covers them"),
    "copies of no group": (RING, "pk_commit();", "", "none", "no wait covers them"),
    "no barrier before a tile is read by 16 bytes": (RING, "__syncthreads();", "", "thread", "data race"),
    "no barrier of the warp before what it stored is read": (EXCHANGE, STORED, "", "thread", "data race"),
    "no barrier of the warp before what it read is overwritten": (EXCHANGE, SEEN, "", "thread", "data race"),
    "some of a warp miss its barrier": (EXCHANGE, STORED, "if (x) __syncwarp();", "none", "meet in different places"),
    "copies from an odd place": (RING, "&B[16 *", "&B[1 + 16 *", "none", "an access of 16 bytes"),
    "threads return before a barrier": (ONE_BUFFER, FILLED, SKIPPED, "none", "a barrier that some threads never reach"),
}
BODIES = {"one buffer": ONE_BUFFER, "two buffers": TWO_BUFFERS, "a ring": RING, "an exchange": EXCHANGE}


def run(body, sanitizer, seed):
    text = data_file("pk_cuda.h") + HEAD + body + TAIL
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(16, 24)).astype("f4"), rng.normal(size=(24, 16)).astype("f4")
    found = run_checked(text, [a, b, np.full((16, 16), np.nan, "f4")], sanitizer=sanitizer, seed=seed)
    return found, a @ b


@pytest.mark.parametrize("sanitizer", ["none", pytest.param("address", marks=needs_sanitizer("address")),
                                       pytest.param("thread", marks=needs_sanitizer("thread"))])  # fmt: skip
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_without_a_bug_nothing_is_reported(body, sanitizer):
    found, want = run(body, sanitizer, 1)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_allclose(found.arrays[2], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bug", [pytest.param(n, marks=needs_sanitizer(b[3])) for n, b in BUGS.items()])
def test_the_bug_is_reported(bug):
    body, right, wrong, sanitizer, report = BUGS[bug]
    assert right in body
    found, _ = run(body.replace(right, wrong), sanitizer, 0)
    assert report in found.report


@pytest.mark.parametrize("seed", [0, 1])
def test_what_has_not_arrived_is_no_number(seed):
    late = RING.replace("pk_wait<1>();", "pk_wait<2>();") + "  pk_wait<0>();\n"
    found, _ = run(late, "none", seed)
    assert found.report == "" and np.isnan(found.arrays[2]).all()

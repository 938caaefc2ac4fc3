/* A layer and a softmax, by two kernels of one library. */
#include "net.h"
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(void) {
  enum { N = 2, I = 3, O = 4 };
  const float x[N * I] = {1, 2, 3, 4, 5, 6};
  const float w[I * O] = {1, 0, -1, 0, 0, 1, 0, -1, 1, 1, 1, 1};
  const float b[O] = {0, 0, 0, 1};
  float y[N * O], p[N * O];
  size_t bytes = (size_t)(dense_scratch(N, I, O) + softmax_scratch(N, O)) + 64;
  void *scratch = aligned_alloc(64, bytes / 64 * 64);
  int32_t status;
  if (scratch == NULL) return failed("aligned_alloc", "no memory");
  status = dense(x, w, b, y, N, I, O, scratch);
  if (status) return failed("dense", dense_error(status));
  status = softmax(y, p, N, O, scratch);
  if (status) return failed("softmax", softmax_error(status));
  for (int n = 0; n < N; n++) {
    double sum = 0;
    for (int o = 0; o < O; o++) {
      sum += (double)p[n * O + o];
      printf("%.4f ", (double)p[n * O + o]);
    }
    printf("sum %.4f\n", sum);
  }
  free(scratch);
  return 0;
}

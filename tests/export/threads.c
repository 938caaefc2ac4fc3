/* Runs an exported product on threads of its own, and says how many elements are wrong. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "kernels.h"

enum { N = 300, MOST = 64 };
struct job { int (*function)(void *, int64_t); void *context; int64_t index; };
static int regions, seen;
static float A[N * N], B[N * N], C[N * N];

static void *run(void *given) {
  struct job *job = given;
  return (void *)(intptr_t)job->function(job->context, job->index);
}

static int parallel_for(int (*function)(void *, int64_t), void *context, int64_t begin, int64_t end, void *user) {
  pthread_t threads[MOST];
  struct job jobs[MOST];
  int failed = 0;
  regions++;
  seen = *(int *)user;
  for (int64_t i = begin; i < end; i++) {
    jobs[i] = (struct job){function, context, i};
    pthread_create(&threads[i], 0, run, &jobs[i]);
  }
  for (int64_t i = begin; i < end; i++) {
    void *status;
    pthread_join(threads[i], &status);
    failed |= (int)(intptr_t)status;
  }
  return failed;
}

int main(void) {
  int user = 42, wrong = 0;
  struct polyker_runtime runtime = {{0}, parallel_for, &user};
  for (int i = 0; i < N * N; i++) A[i] = i % 7, B[i] = i % 5;
  char *memory = malloc(product_scratch() + 64);
  int status = product(A, B, C, memory + 64 - (size_t)memory % 64, &runtime);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      float sum = 0;
      for (int k = 0; k < N; k++) sum += A[i * N + k] * B[k * N + j];
      wrong += sum != C[i * N + j];
    }
  printf("%d %d %d %d", status, regions > 0, seen, wrong);
  return 0;
}

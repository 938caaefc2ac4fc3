// pk_sim_main.cpp: a simulated kernel as a program of its own, for sanitizers. Reads the arrays from one file and writes
// them to another: count; for each array its bytes' number and its bytes; count of integers; integers. All counts are i64.
#include <stdio.h>
#include <stdlib.h>
extern "C" long long kernel(void **pointers, long long *integers);
static long long number(FILE *f) {
  long long n;
  if (fread(&n, 8, 1, f) != 1) abort();
  return n;
}
int main(int, char **argv) {
  FILE *in = fopen(argv[1], "rb");
  if (!in) abort();
  long long count = number(in);
  void **arrays = (void **)malloc(8 * (count + 1));
  long long *sizes = (long long *)malloc(8 * (count + 1));
  for (long long n = 0; n < count; n++) {
    sizes[n] = number(in);
    arrays[n] = malloc(sizes[n]);
    if (fread(arrays[n], 1, sizes[n], in) != (size_t)sizes[n]) abort();
  }
  long long values = number(in), *integers = (long long *)malloc(8 * (values + 1));
  for (long long n = 0; n < values; n++) integers[n] = number(in);
  fclose(in);
  long long status = kernel(arrays, integers);
  FILE *out = fopen(argv[2], "wb");
  if (!out || fwrite(&status, 8, 1, out) != 1) abort();
  for (long long n = 0; n < count; n++)
    if (fwrite(arrays[n], 1, sizes[n], out) != (size_t)sizes[n]) abort();
  return fclose(out);
}

// A matrix product of ThunderKittens' teaching series: C = A B, square.
#define main main_of_the_benchmark
#include LEVEL

extern "C" int product(void *a, void *b, void *c, int size) {
  matmul((ELEMENT *)a, (ELEMENT *)b, (ELEMENT *)c, size);
  return 0;
}

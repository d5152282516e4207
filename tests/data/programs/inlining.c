/* A program that spends its time in a function that is inlined into another, and that into a third.
 *
 * Orders, one a line, each answered with "done N":
 *   spins MS     burns CPU time below outermost()
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define IN static inline __attribute__((always_inline))

static volatile unsigned long sink;

IN void innermost(unsigned long n) {
  for (unsigned long i = 0; i < n; i++)
    sink += i * i; /* hot */
}

IN void middle(unsigned long n) {
  innermost(n); /* in the middle */
}

__attribute__((noinline, noclone)) void outermost(unsigned long n) {
  middle(n); /* outermost */
  sink++;
}

static double cpu_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(void) {
  char order[256];
  unsigned long ms;
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  while (fgets(order, sizeof order, stdin)) {
    if (sscanf(order, "spins %lu", &ms) != 1)
      exit(3);
    for (double start = cpu_time(); cpu_time() - start < ms;)
      outermost(100000);
    puts("done 0");
  }
  return 0;
}

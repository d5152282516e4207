/* A program whose time goes where it is told to, in functions of known names.
 *
 * Orders, one a line, each answered with "done N":
 *   spins MS     burns CPU time: three quarters below three_quarters(), one quarter below one_quarter()
 *   works N      the same for N rounds, however long they take
 *   parts MS     burns CPU time in part_1() to part_25(), in each about so many parts of 325, below odd() or even()
 *   naps N MS    sleeps so often below waits_a_while()
 *   faults N     touches so many new pages below touches()
 *   forks N      starts so many children that spin for 20 ms each and end
 *   misses MS    looks at the clock all the time, below twenty functions with 10 KiB of stack, and answers with the
 *                nanoseconds of pauses of 1 to 300 microseconds: interrupts, and nobody else who runs
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUT __attribute__((noinline, noclone))

static volatile unsigned long sink;

static double cpu_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

OUT void burns(unsigned long n) {
  for (unsigned long i = 0; i < n; i++)
    sink += i * i;
}

OUT void three_quarters(void) {
  burns(30000);
  sink++;
}

OUT void one_quarter(void) {
  burns(10000);
  sink++;
}

OUT unsigned long spins(double ms) {
  unsigned long rounds = 0;
  for (double start = cpu_time(); cpu_time() - start < ms; rounds++) {
    for (int i = 0; i < 20; i++) {
      three_quarters();
      one_quarter();
    }
  }
  sink++;
  return rounds;
}

OUT unsigned long works(unsigned long n) {
  for (unsigned long i = 0; i < n; i++) {
    three_quarters();
    one_quarter();
  }
  sink++;
  return n;
}

#define PART(n) OUT void part_##n(void) { for (unsigned long i = 0; i < n * 300; i++) sink += i * i; }
#define CALL(n) part_##n();
#define ODD(EACH) EACH(1) EACH(3) EACH(5) EACH(7) EACH(9) EACH(11) EACH(13) EACH(15) EACH(17) EACH(19) EACH(21) \
  EACH(23) EACH(25)
#define EVEN(EACH) EACH(2) EACH(4) EACH(6) EACH(8) EACH(10) EACH(12) EACH(14) EACH(16) EACH(18) EACH(20) EACH(22) \
  EACH(24)

ODD(PART)
EVEN(PART)

OUT void odd(void) {
  ODD(CALL)
  sink++;
}

OUT void even(void) {
  EVEN(CALL)
  sink++;
}

OUT unsigned long parts(double ms) {
  unsigned long rounds = 0;
  unsigned int seed = 1;
  for (double start = cpu_time(); cpu_time() - start < ms; rounds++) {
    /* No two rounds are alike, so that nobody who samples falls into step. */
    for (int i = 0; i < 20; i++) {
      if (rand_r(&seed) & 64)
        odd();
      else
        even();
    }
  }
  sink++;
  return rounds;
}

OUT void waits_a_while(unsigned long ms) {
  usleep(ms * 1000);
  sink++;
}

OUT unsigned long naps(unsigned long n, unsigned long ms) {
  for (unsigned long i = 0; i < n; i++)
    waits_a_while(ms);
  sink++;
  return n;
}

OUT unsigned long touches(unsigned long pages) {
  size_t page = sysconf(_SC_PAGESIZE);
  char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return 0;
  madvise(memory, pages * page, MADV_NOHUGEPAGE);
  for (unsigned long i = 0; i < pages; i++)
    memory[i * page] = 1;
  munmap(memory, pages * page);
  sink++;
  return pages;
}

OUT unsigned long forks(unsigned long n) {
  for (unsigned long i = 0; i < n; i++) {
    pid_t child = fork();
    if (child == 0) {
      spins(20);
      _exit(0);
    }
    waitpid(child, NULL, 0);
  }
  return n;
}

static unsigned long nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ul + now.tv_nsec;
}

OUT unsigned long misses(unsigned long ms, int deeper) {
  volatile char frame[512];
  frame[0] = 0;
  unsigned long missed = 0;
  if (deeper > 0) {
    missed = misses(ms, deeper - 1);
  } else {
    unsigned long start = nanoseconds(), last = start;
    while (last - start < ms * 1000000) {
      unsigned long now = nanoseconds();
      if (now - last >= 1000 && now - last < 300000)
        missed += now - last;
      last = now;
    }
  }
  sink += frame[0];
  return missed;
}

OUT unsigned long obeys(const char *order) {
  unsigned long n = 0, ms = 0;
  if (sscanf(order, "spins %lu", &n) == 1)
    return spins(n);
  if (sscanf(order, "works %lu", &n) == 1)
    return works(n);
  if (sscanf(order, "parts %lu", &n) == 1)
    return parts(n);
  if (sscanf(order, "naps %lu %lu", &n, &ms) == 2)
    return naps(n, ms);
  if (sscanf(order, "faults %lu", &n) == 1)
    return touches(n);
  if (sscanf(order, "forks %lu", &n) == 1)
    return forks(n);
  if (sscanf(order, "misses %lu", &n) == 1)
    return misses(n, 20);
  exit(3);
}

int main(void) {
  char order[256];
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  while (fgets(order, sizeof order, stdin))
    printf("done %lu\n", obeys(order));
  return 0;
}

/* A program whose time goes where it is told to, in functions of known names.
 *
 * Orders, one a line, each answered with "done N":
 *   spins MS     burns CPU time: three quarters below three_quarters(), one quarter below one_quarter()
 *   works N      the same for N rounds, however long they take
 *   naps N MS    sleeps so often below waits_a_while()
 *   faults N     touches so many new pages below touches()
 *   forks N      starts so many children that spin for 20 ms each and end
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

OUT unsigned long obeys(const char *order) {
  unsigned long n = 0, ms = 0;
  if (sscanf(order, "spins %lu", &n) == 1)
    return spins(n);
  if (sscanf(order, "works %lu", &n) == 1)
    return works(n);
  if (sscanf(order, "naps %lu %lu", &n, &ms) == 2)
    return naps(n, ms);
  if (sscanf(order, "faults %lu", &n) == 1)
    return touches(n);
  if (sscanf(order, "forks %lu", &n) == 1)
    return forks(n);
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

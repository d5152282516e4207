/* A program that uses a CPU, and touches a file by a mapping.
 *
 * Orders, one a line, each answered with "done N":
 *   spins MS      burns CPU time in three_quarters() and one_quarter(); the answer comes after it
 *   maps PATH     maps the file, and answers with its size
 *   touches N     has another thread read a byte after N percent of it; the answer does not wait for that
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OUT __attribute__((noinline, noclone))

static volatile unsigned long sink;

static double cpu_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
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
    three_quarters();
    one_quarter();
  }
  sink++;
  return rounds;
}

static char *mapped;
static size_t size, touched;

static void *touches(void *unused) {
  sink += mapped[touched];
  return unused;
}

/* Before the file system stops: opening it is a request as well. */
static unsigned long maps(const char *path) {
  struct stat status;
  int file = open(path, O_RDONLY);
  if (file < 0 || fstat(file, &status) != 0)
    return 0;
  size = status.st_size;
  mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? 0 : size;
}

static unsigned long starts_touching(unsigned long percent) {
  pthread_t thread;
  touched = size * percent / 100;
  return pthread_create(&thread, NULL, touches, NULL) == 0;
}

int main(void) {
  static char line[4200];
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  while (fgets(line, sizeof line, stdin)) {
    unsigned long done = 0;
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "spins ", 6) == 0)
      done = spins(atof(line + 6));
    else if (strncmp(line, "maps ", 5) == 0)
      done = maps(line + 5);
    else if (strncmp(line, "touches ", 8) == 0)
      done = starts_touching(strtoul(line + 8, NULL, 10));
    else
      return 1;
    printf("done %lu\n", done);
  }
  return 0;
}

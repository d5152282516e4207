/* A program whose threads run, wait and call the kernel as they are told to.
 *
 * Orders, one a line, each answered with "done N":
 *   pins CPU       runs on this CPU alone from now on, as do threads that it starts
 *   nice N         is nicer to others from now on, in a session of its own that is as nice as well: where the kernel
 *                  groups by session, a nice value holds within the session alone
 *   sleeps N US    sleeps so often for so many microseconds
 *   spins MS       burns CPU time
 *   lasts MS       the same, until so much time has passed
 *   meets AT MS    sleeps until the monotonic clock is AT milliseconds, then burns CPU time until MS later
 *   trades N       a thread sends a byte and waits for another one to come back, so often
 *   switches       answers how often its threads have left a CPU, those that have ended as well
 *   calls N        asks so many times for its parent
 *   fails N        opens a file that is not there, and closes one that is not open, each so often
 *   sticks         starts a thread that waits for a signal that never comes; answers with its number
 *   bears N M      starts N processes one after the other, each of which sleeps M times; answers how often they waited for a
 *                  CPU, as the kernel counts it. With the directory of a cgroup as its argument, the program starts them there
 *                  (CLONE_INTO_CGROUP)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static int there[2], back[2];

static double now(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void burns(clockid_t clock, double ms) {
  for (double end = now(clock) + ms; now(clock) < end;)
    for (int i = 0; i < 10000; i++)
      sink += i;
}

static void *returns(void *trips) {
  char byte;
  for (long i = 0; i < *(long *)trips; i++)
    if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
      abort();
  return NULL;
}

static void trades(long trips) {
  pthread_t partner;
  char byte = 1;
  if (pipe(there) || pipe(back) || pthread_create(&partner, NULL, returns, &trips))
    abort();
  for (long i = 0; i < trips; i++)
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
      abort();
  pthread_join(partner, NULL);
  for (int i = 0; i < 2; i++) {
    close(there[i]);
    close(back[i]);
  }
}

static volatile int stuck;

static void *sticks(void *unused) {
  stuck = syscall(SYS_gettid);
  for (;;)
    pause();
  return unused;
}

/* The cgroup that children are started in; -1 is the program's own. */
static int nursery = -1;

static pid_t starts(void) {
  if (nursery < 0)
    return fork();
  /* struct clone_args: flags, six fields that stay 0 but for the signal, and the cgroup at the end. */
  unsigned long long args[11] = {[0] = 0x200000000ULL, [4] = SIGCHLD, [10] = nursery};
  return syscall(435, args, sizeof(args));
}

static long bears(long children, long sleeps) {
  struct timespec time = {.tv_nsec = 1000000};
  long waits = 0;
  for (long i = 0; i < children; i++) {
    pid_t child = starts();
    if (child < 0)
      abort();
    if (child == 0) {
      for (long n = 0; n < sleeps; n++)
        nanosleep(&time, NULL);
      _exit(0);
    }
    /* What it has done is known to the end while nobody has waited for it. */
    char path[64];
    siginfo_t ended;
    unsigned long long ran, delayed, times;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", child);
    if (waitid(P_PID, child, &ended, WEXITED | WNOWAIT))
      abort();
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%llu %llu %llu", &ran, &delayed, &times) != 3)
      abort();
    fclose(file);
    waits += times;
    waitpid(child, NULL, 0);
  }
  return waits;
}

static long obey(const char *order, long first, long second) {
  if (!strcmp(order, "pins")) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(first, &cpus);
    return sched_setaffinity(0, sizeof(cpus), &cpus);
  }
  if (!strcmp(order, "nice")) {
    setsid();
    int group = open("/proc/self/autogroup", O_WRONLY);
    if (group >= 0 && (dprintf(group, "%ld", first) < 0 || close(group)))
      abort();
    return setpriority(PRIO_PROCESS, 0, first);
  }
  if (!strcmp(order, "sleeps")) {
    struct timespec time = {.tv_sec = second / 1000000, .tv_nsec = second % 1000000 * 1000};
    for (long i = 0; i < first; i++)
      nanosleep(&time, NULL);
    return first;
  }
  if (!strcmp(order, "spins"))
    burns(CLOCK_THREAD_CPUTIME_ID, first);
  else if (!strcmp(order, "lasts"))
    burns(CLOCK_MONOTONIC, first);
  else if (!strcmp(order, "meets")) {
    struct timespec at = {.tv_sec = first / 1000, .tv_nsec = first % 1000 * 1000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    burns(CLOCK_MONOTONIC, first + second - now(CLOCK_MONOTONIC));
  } else if (!strcmp(order, "trades"))
    trades(first);
  else if (!strcmp(order, "switches")) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
  } else if (!strcmp(order, "calls"))
    for (long i = 0; i < first; i++)
      sink += syscall(SYS_getppid);
  else if (!strcmp(order, "fails"))
    for (long i = 0; i < first; i++) {
      if (open("/nowhere/at/all", O_RDONLY) >= 0 || close(-1) == 0)
        abort();
    }
  else if (!strcmp(order, "sticks")) {
    pthread_t thread;
    stuck = 0;
    if (pthread_create(&thread, NULL, sticks, NULL))
      abort();
    while (!stuck)
      sched_yield();
    return stuck;
  } else if (!strcmp(order, "bears"))
    return bears(first, second);
  else
    abort();
  return first;
}

int main(int count, char **arguments) {
  char line[256], order[32];
  if (count > 1 && (nursery = open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
    abort();
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof(line), stdin)) {
    long first = 0, second = 0;
    if (sscanf(line, "%31s %ld %ld", order, &first, &second) < 1)
      abort();
    printf("done %ld\n", obey(order, first, second));
    fflush(stdout);
  }
  return 0;
}

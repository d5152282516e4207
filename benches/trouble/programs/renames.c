/* Renames itself some thousand times per second, and yields the CPU under each name. */
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

int main(void) {
  struct timespec pause = {0, 100000};
  char name[16];
  for (unsigned long number = 0;; number++) {
    snprintf(name, sizeof name, "n%lu", number % 1000000000);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    nanosleep(&pause, NULL);
  }
}

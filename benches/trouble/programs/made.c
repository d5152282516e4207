/* Code generated at run time, and a perf map of 20 MB for it that is rewritten each second.
 *
 * Writes "/tmp/perf-PID.map". All functions are alike: they count down from a number and return. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUNCTIONS 180000ul
#define SIZE 64ul

static unsigned char *code;

static void *writes_maps(void *unused) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  for (unsigned long round = 0;; round++) {
    FILE *map = fopen(path, "w");
    if (map == NULL)
      exit(1);
    for (unsigned long i = 0; i < FUNCTIONS; i++)
      fprintf(map, "%lx %lx LazyCompile:*handleRequest%lu_%lu /srv/application/node_modules/server/lib/routes/index.js:%lu:17\n",
              (unsigned long)(uintptr_t)(code + i * SIZE), SIZE, i, round, i % 1000);
    fclose(map);
    sleep(1);
  }
  return unused;
}

int main(void) {
#if defined(__x86_64__)
  /* mov $20000, %eax; 1: dec %eax; jnz 1b; ret */
  static const unsigned char function[] = {0xb8, 0x20, 0x4e, 0, 0, 0xff, 0xc8, 0x75, 0xfc, 0xc3};
#elif defined(__aarch64__)
  /* mov w0, #20000; 1: subs w0, w0, #1; b.ne 1b; ret */
  static const unsigned char function[] = {0x00, 0xc4, 0x89, 0x52, 0x00, 0x04, 0x00, 0x71,
                                           0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6};
#else
#error "no code for this machine"
#endif
  pthread_t thread;
  code = mmap(NULL, FUNCTIONS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED)
    return 1;
  for (unsigned long i = 0; i < FUNCTIONS; i++)
    memcpy(code + i * SIZE, function, sizeof function);
  __builtin___clear_cache((char *)code, (char *)code + FUNCTIONS * SIZE);
  if (mprotect(code, FUNCTIONS * SIZE, PROT_READ | PROT_EXEC) != 0)
    return 1;
  if (pthread_create(&thread, NULL, writes_maps, NULL) != 0)
    return 1;
  for (unsigned long i = 0;; i += 7919)
    ((void (*)(void))(code + i % FUNCTIONS * SIZE))();
}

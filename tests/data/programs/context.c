/* A program that burns CPU time in burns_for_the_profile(), and publishes which service it is as OTEP 4719 says: a
 * mapping of the name OTEL_CTX. It says "ready" once it has, and ends when its input does.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ProcessContext { resource: { attributes: [service.name = "spinning", container.id = "forged"] } } */
static const char payload[] =
    "\x0a\x3a"
    "\x0a\x1a\x0a\x0cservice.name\x12\x0a\x0a\x08spinning"
    "\x0a\x1c\x0a\x0c"
    "container.id"
    "\x12\x0c\x0a\x0a"
    "forgedforg";

struct header {
  char signature[8];
  uint32_t version, size;
  uint64_t published_at, payload;
};

static volatile unsigned long sink;

__attribute__((noinline)) void burns_for_the_profile(void) {
  for (unsigned long i = 0; i < 1000000; i++)
    sink += i * i;
}

int main(void) {
  int file = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0 || ftruncate(file, 4096) != 0)
    return 1;
  struct header *header = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  if (header == MAP_FAILED)
    return 1;
  close(file);
  memcpy(header->signature, "OTEL_CTX", 8);
  header->version = 2;
  header->size = sizeof payload - 1;
  header->payload = (uint64_t)(uintptr_t)payload;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  header->published_at = now.tv_sec * 1000000000ull + now.tv_nsec;
  puts("ready");
  fflush(stdout);
  struct pollfd input = {0, POLLIN, 0};
  while (poll(&input, 1, 0) == 0)
    burns_for_the_profile();
  return 0;
}

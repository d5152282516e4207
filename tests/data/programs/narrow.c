/* A program of 32 bits without a library, for x86: for each line that it reads it asks 100 times for its parent. */

static long call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}

void _start(void) {
  char byte;
  call(4, 1, (long)"ready\n", 6);
  while (call(3, 0, (long)&byte, 1) == 1) {
    if (byte != '\n')
      continue;
    for (int i = 0; i < 100; i++)
      call(64, 0, 0, 0);
    call(4, 1, (long)"done 100\n", 9);
  }
  call(1, 0, 0, 0);
}

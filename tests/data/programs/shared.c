/* A program with variables and functions at known distances, for recordings that tests make up. Its process touches memory of all kinds. */
#include <stdlib.h>

struct line {
    long words[8];
} __attribute__((aligned(64)));

struct line shared_line = {{1}}, other_line = {{2}};
long table[4096] = {3};
long zeroed[4096];

__attribute__((noinline)) long reader(void) { return shared_line.words[0] + table[7]; }

__attribute__((noinline)) void writer(long value) {
    shared_line.words[1] = value;
    other_line.words[2] = value;
    zeroed[4000] = value;
}

int main(void) {
    long *allocated = malloc(1 << 16);
    allocated[5000] = 7;
    writer(allocated[5000]);
    return reader() == 0;
}

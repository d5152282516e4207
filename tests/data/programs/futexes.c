// The waits of this program are known. It prints them: "function waits nanoseconds", the time as it measures it itself.
//
//   waits_for_mutex   10 times, for at least 20 ms each: another thread unlocks it 20 ms after it sees the thread in the call.
//   waits_for_time    5 calls that time out after 10 ms.
//   finds_a_value     7 calls that do not sleep, because the value is another.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 10 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned word = 1;
static int ready[2], taken[2];
static pid_t waiter;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// Waits until the thread is in a call of futex.
static void until_it_waits(void) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter);
    for (;;) {
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
        if (strtol(text, NULL, 10) == SYS_futex && text[0] != 'r') return;
        usleep(1000);
    }
}

static void *holds(void *argument) {
    char byte = 0;
    for (int i = 0; i < TIMES; i++) {
        pthread_mutex_lock(&mutex);
        if (write(taken[1], &byte, 1) != 1) exit(1);
        until_it_waits();
        usleep(20000);
        pthread_mutex_unlock(&mutex);
        if (read(ready[0], &byte, 1) != 1) exit(1);
    }
    return argument;
}

__attribute__((noinline)) void waits_for_mutex(void) {
    pthread_mutex_lock(&mutex);
    __asm__ volatile("");
}

__attribute__((noinline)) int waits_for_time(void) {
    struct timespec time = {0, 10000000};
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &time, NULL, 0);
    return result == -1 && errno == ETIMEDOUT;
}

__attribute__((noinline)) int finds_a_value(void) {
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    return result == -1 && errno == EAGAIN;
}

int main(void) {
    pthread_t holder;
    char byte = 0;
    long long begin, took = 0;
    waiter = gettid();
    if (pipe(ready) || pipe(taken) || pthread_create(&holder, NULL, holds, NULL)) return 1;
    for (int i = 0; i < TIMES; i++) {
        if (read(taken[0], &byte, 1) != 1) return 1;
        begin = now();
        waits_for_mutex();
        took += now() - begin;
        pthread_mutex_unlock(&mutex);
        if (write(ready[1], &byte, 1) != 1) return 1;
    }
    printf("waits_for_mutex %d %lld\n", TIMES, took);
    begin = now();
    for (int i = 0; i < 5; i++) {
        if (!waits_for_time()) return 1;
    }
    printf("waits_for_time 5 %lld\n", now() - begin);
    for (int i = 0; i < 7; i++) {
        if (!finds_a_value()) return 1;
    }
    printf("mutex %p\nword %p\n", (void *)&mutex, (void *)&word);
    return 0;
}

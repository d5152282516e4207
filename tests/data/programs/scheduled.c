// What the scheduler and the kernel have to do for this program is known.
//
//   scheduled relay N   On one CPU: "ping" and "pong" hand each other a byte N times through pipes, while "spins" wants
//                       that CPU all the time.
//   scheduled relay N X The same, with X behind the names.
//   scheduled contend N M
//                       N threads map, touch and unmap memory M times each, so that they wait for the lock of the mappings.
//   scheduled calls     1000 times getppid, 100 times openat of what is not there, 20 sleeps of 5 ms; prints how many
//                       nanoseconds it slept.
//   scheduled storm UID 64 children of this user at a time, each of which ends after 1 to 4 ms, until it is killed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void on_one_cpu(void) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    sched_setaffinity(0, sizeof one, &one);
}

static void hand(int from, int to) {
    char byte;
    if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1) exit(1);
}

static void call(const char *name, const char *suffix) {
    char whole[16];
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    prctl(PR_SET_NAME, whole);
}

static int relay(int times, const char *suffix) {
    int there[2], back[2], ready[2];
    char byte;
    on_one_cpu();
    if (pipe(there) || pipe(back) || pipe(ready)) return 1;
    if (fork() == 0) {
        call("pong", suffix);
        for (int i = 0; i < times; i++) hand(there[0], back[1]);
        _exit(0);
    }
    pid_t spins = fork();
    if (spins == 0) {
        call("spins", suffix);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (volatile long i = 0;; i++) {}
    }
    // What is over soon is over before a thread that was just made has had its turn.
    if (read(ready[0], &byte, 1) != 1) return 1;
    call("ping", suffix);
    if (write(there[1], "x", 1) != 1) return 1;
    for (int i = 1; i < times; i++) hand(back[0], there[1]);
    kill(spins, SIGKILL);
    while (wait(NULL) > 0) {}
    return 0;
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int calls(void) {
    for (int i = 0; i < 1000; i++) syscall(SYS_getppid);
    for (int i = 0; i < 100; i++) {
        if (open("/nowhere/at/all", O_RDONLY) >= 0) return 1;
    }
    long long slept = 0;
    for (int i = 0; i < 20; i++) {
        struct timespec time = {0, 5000000};
        long long begin = now();
        nanosleep(&time, NULL);
        slept += now() - begin;
    }
    printf("slept %lld\n", slept);
    return 0;
}

static void *maps(void *times) {
    enum { SIZE = 1 << 18, PAGE = 4096 };
    for (long i = 0; i < (long)times; i++) {
        char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) exit(1);
        for (int at = 0; at < SIZE; at += PAGE) memory[at] = 1;
        munmap(memory, SIZE);
    }
    return NULL;
}

static int contend(int threads, long times) {
    pthread_t all[64];
    if (threads > 64) return 2;
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&all[i], NULL, maps, (void *)times)) return 1;
    }
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    return 0;
}

static int storm(uid_t user) {
    if (setgid(user) || setuid(user)) return 1;
    // Otherwise its files in /proc belong to root.
    prctl(PR_SET_DUMPABLE, 1);
    for (int running = 0;; running++) {
        if (running >= 64) wait(NULL);
        if (fork() == 0) {
            usleep(1000 + getpid() % 4 * 1000);
            _exit(0);
        }
    }
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "relay") == 0) return relay(atoi(arguments[2]), "");
    if (count == 4 && strcmp(arguments[1], "relay") == 0) return relay(atoi(arguments[2]), arguments[3]);
    if (count == 4 && strcmp(arguments[1], "contend") == 0) return contend(atoi(arguments[2]), atol(arguments[3]));
    if (count == 2 && strcmp(arguments[1], "calls") == 0) return calls();
    if (count == 3 && strcmp(arguments[1], "storm") == 0) return storm(atoi(arguments[2]));
    return 2;
}

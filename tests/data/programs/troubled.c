/* Causes one kind of trouble, in a function of its own, until it is killed. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Work that the compiler keeps. */
static volatile unsigned long work;

#define KEPT __attribute__((noinline, used))

static void spin(long milliseconds)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (int i = 0; i < 10000; i++)
			work++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < milliseconds);
}

/* A request of a few milliseconds every 20 ms. */
KEPT void serve_requests(void)
{
	for (;;) {
		spin(4);
		usleep(16000);
	}
}

KEPT void hog_the_cpu(void)
{
	for (;;)
		spin(1000);
}

KEPT void open_missing_files(void)
{
	for (;;) {
		if (open("/nonexistent/file", O_RDONLY) >= 0)
			abort();
		spin(1);
	}
}

KEPT void fork_children(void)
{
	for (;;) {
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
		usleep(5000);
	}
}

/* Threads that take turns at the lock of one file in the kernel. */
KEPT void *write_in_turns(void *path)
{
	static char content[1 << 22];
	int file = open(path, O_WRONLY | O_CREAT, 0600);

	for (;;) {
		if (pwrite(file, content, sizeof(content), 0) < 0)
			abort();
	}
}

/* Reads that bypass the page cache, so that each waits for the disk. */
KEPT void read_from_disk(const char *path)
{
	int file = open(path, O_RDONLY | O_DIRECT);
	char *buffer = aligned_alloc(4096, 1 << 16);

	for (off_t at = 0;; at += 1 << 16) {
		if (pread(file, buffer, 1 << 16, at) <= 0)
			at = -(1 << 16);
	}
}

int main(int count, char **arguments)
{
	const char *kind = count > 1 ? arguments[1] : "";
	char *path = count > 2 ? arguments[2] : NULL;

	puts("ready");
	fflush(stdout);
	if (!strcmp(kind, "serve"))
		serve_requests();
	if (!strcmp(kind, "hog"))
		hog_the_cpu();
	if (!strcmp(kind, "errors"))
		open_missing_files();
	if (!strcmp(kind, "forks"))
		fork_children();
	if (!strcmp(kind, "disk") && path)
		read_from_disk(path);
	if (!strcmp(kind, "convoy") && path) {
		for (int i = 0; i < 8; i++) {
			pthread_t thread;

			pthread_create(&thread, NULL, write_in_turns, path);
		}
		pause();
	}
	return 2;
}

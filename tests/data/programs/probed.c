/*
 * What live tests put probes into. It does what the lines on its standard input say, and answers each with "done" and
 * what there is to report. Only probes tell how often a function was called, and with what; so tests know it exactly.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A function that is there, is called, and is called with all of its arguments. */
#define PROBED __attribute__((noinline, noclone, used))
#define KEPT(value) __asm__ volatile("" : : "r"(value) : "memory")

/* Counts who listens to the marker; the kernel or a tracer writes it. */
__attribute__((section(".probes"), used)) volatile unsigned short live_step_semaphore = 0;

PROBED long takes(unsigned long size, int level, const char *text)
{
	KEPT(size);
	KEPT(level);
	KEPT(text);
	return (long)size * level;
}

PROBED void hit(unsigned long number)
{
	KEPT(number);
}

PROBED void says(const char *text)
{
	KEPT(text);
}

PROBED void sleeps(unsigned long milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

	while (nanosleep(&time, &time))
		;
}

static void go_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		perror("sched_setaffinity");
}

/* Begins on one CPU and returns on another. */
PROBED void moves(int to)
{
	go_to(to);
}

PROBED void begins(unsigned long number)
{
	KEPT(number);
}

PROBED void ends(unsigned long number)
{
	KEPT(number);
}

/* A marker as sys/sdt.h writes it (the format is in SystemTap's wiki, "UserSpaceProbeImplementation"). */
PROBED void marks(unsigned long size, int level)
{
	__asm__ volatile(
		"990: nop\n"
		"	.pushsection .note.stapsdt, \"\", \"note\"\n"
		"	.balign 4\n"
		"	.4byte 992f - 991f, 994f - 993f, 3\n"
		"991:	.asciz \"stapsdt\"\n"
		"992:	.balign 4\n"
		"993:	.8byte 990b\n"
		"	.8byte _.stapsdt.base\n"
		"	.8byte live_step_semaphore\n"
		"	.asciz \"live\"\n"
		"	.asciz \"step\"\n"
		"	.asciz \"8@%[size] -4@%[level]\"\n"
		"994:	.balign 4\n"
		"	.popsection\n"
		"	.pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"
		"	.weak _.stapsdt.base\n"
		"	.hidden _.stapsdt.base\n"
		"_.stapsdt.base: .space 1\n"
		"	.size _.stapsdt.base, 1\n"
		"	.popsection\n"
		: : [size] "r"(size), [level] "r"(level));
}

/* A child that ends at once. */
static void forks(void)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
}

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* The bytes that pairs of hexadecimal digits stand for, with a NUL behind. */
static char *unhex(const char *digits)
{
	static char bytes[4096];
	size_t length = 0;
	unsigned int byte;

	while (length < sizeof(bytes) - 1 && sscanf(digits + 2 * length, "%2x", &byte) == 1)
		bytes[length++] = byte;
	bytes[length] = 0;
	return bytes;
}

/* Gives what is reported behind "done". */
static unsigned long long obey(const char *order, const char *what)
{
	char *end;
	unsigned long first = strtoul(what, &end, 10), number;
	unsigned long last = *end ? strtoul(end, NULL, 10) : first;
	unsigned long long begin;

	if (!strcmp(order, "says")) {
		says(unhex(what));
	} else if (!strcmp(order, "is_called")) {
		prctl(PR_SET_NAME, unhex(what));
	} else if (!strcmp(order, "sleeps")) {
		begin = now();
		sleeps(first);
		return now() - begin;
	} else if (!strcmp(order, "semaphore")) {
		return live_step_semaphore;
	} else if (!strcmp(order, "moves")) {
		go_to(first);
		moves(last);
	} else if (!strcmp(order, "executes")) {
		execl(what, what, (char *)NULL);
		perror(what);
	} else if (!strcmp(order, "forks")) {
		for (number = 0; number < first; number++)
			forks();
	} else if (!strcmp(order, "asks")) {
		/* A system call that hardly anybody makes, and nobody else with this argument. */
		for (number = 0; number < first; number++)
			getpriority(PRIO_PROCESS, getpid());
	} else {
		for (number = first; number <= last; number++) {
			if (!strcmp(order, "takes"))
				takes(number, (int)(number % 4) - 2, number % 2 ? "odd" : "even");
			else if (!strcmp(order, "hits"))
				hit(number);
			else if (!strcmp(order, "marks"))
				marks(number, -(int)number);
			else if (!strcmp(order, "begins"))
				begins(number);
			else if (!strcmp(order, "ends"))
				ends(number);
			else
				abort();
		}
	}
	return 0;
}

int main(void)
{
	char line[8300];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		char *what;

		line[strcspn(line, "\n")] = 0;
		what = strchr(line, ' ');
		if (what)
			*what++ = 0;
		printf("done %llu\n", obey(line, what ? what : ""));
		fflush(stdout);
	}
	return 0;
}

// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// switch OBJECT: loads the program of switch.bpf.c and attaches it to cgroup-switches on all CPUs. Prints "counting" when it counts. At the
// end of standard input it prints a line for each cgroup, with its id and its counts, and exits.

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define COUNTERS 4
// Linux 5.13; the headers of the build may be older.
#define CGROUP_SWITCHES 11

static const __u64 counted[COUNTERS] = {
	PERF_COUNT_SW_CPU_CLOCK,
	PERF_COUNT_SW_PAGE_FAULTS,
	PERF_COUNT_SW_CONTEXT_SWITCHES,
	PERF_COUNT_SW_CPU_MIGRATIONS,
};

static void need(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

// A software event of a whole CPU. With a period, it runs a program at each overflow.
static int event(__u64 config, int cpu, __u64 period)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = config,
		.sample_period = period,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	need(fd >= 0, "perf_event_open");
	return fd;
}

static void attach(int cpu, int counters, int program)
{
	for (int i = 0; i < COUNTERS; i++) {
		int key = COUNTERS * cpu + i, fd = event(counted[i], cpu, 0);

		need(!bpf_map_update_elem(counters, &key, &fd, BPF_ANY), "a counter in the map");
	}
	need(!ioctl(event(CGROUP_SWITCHES, cpu, 1), PERF_EVENT_IOC_SET_BPF, program), "PERF_EVENT_IOC_SET_BPF");
}

static void print_shares(int shares, int cpus)
{
	__u64(*values)[COUNTERS] = calloc(cpus, sizeof(*values));
	__u64 key, *last = NULL;

	need(values != NULL, "memory");
	while (!bpf_map_get_next_key(shares, last, &key)) {
		__u64 sum[COUNTERS] = { 0 };

		last = &key;
		if (bpf_map_lookup_elem(shares, &key, values))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++)
			for (int i = 0; i < COUNTERS; i++)
				sum[i] += values[cpu][i];
		printf("%llu %llu %llu %llu %llu\n", key, sum[0], sum[1], sum[2], sum[3]);
	}
	free(values);
}

int main(int argc, char **argv)
{
	struct bpf_object *object = argc == 2 ? bpf_object__open_file(argv[1], NULL) : NULL;

	need(object != NULL, "switch OBJECT");
	need(!bpf_object__load(object), "the program");

	struct bpf_program *program = bpf_object__find_program_by_name(object, "leaves");
	int counters = bpf_object__find_map_fd_by_name(object, "counters");
	int shares = bpf_object__find_map_fd_by_name(object, "shares");
	int cpus = libbpf_num_possible_cpus();

	need(program && counters >= 0 && shares >= 0 && cpus > 0, "what is in the object");
	for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		attach(cpu, counters, bpf_program__fd(program));
	puts("counting");
	fflush(stdout);
	while (getchar() != EOF)
		;
	print_shares(shares, cpus);
	return 0;
}

// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Reference for the switch stream. When a CPU switches from one cgroup to another, the program reads the counters of the CPU and adds their
// increase to the outgoing cgroup. The kernel allows the helper that reads a counter only to programs with a compatible license; therefore
// this file has one.

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_helpers.h>

#define COUNTERS 4
#define MOST_CPUS 1024
#define MOST_CGROUPS 4096

struct counts {
	__u64 of[COUNTERS];
};

// Event descriptors: those of CPU n begin at COUNTERS * n.
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, COUNTERS * MOST_CPUS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} counters SEC(".maps");

// Readings of the counters of this CPU at its last switch.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} seen SEC(".maps");

// Counts of each cgroup on each CPU, by cgroup id.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MOST_CGROUPS);
	__type(key, __u64);
	__type(value, struct counts);
} shares SEC(".maps");

static const struct counts nothing;

SEC("perf_event")
int leaves(void *context)
{
	__u32 zero = 0;
	struct counts *before = bpf_map_lookup_elem(&seen, &zero);
	// The outgoing task is still the current one.
	__u64 cgroup = bpf_get_current_cgroup_id();
	struct counts *share = bpf_map_lookup_elem(&shares, &cgroup);

	if (!share) {
		bpf_map_update_elem(&shares, &cgroup, &nothing, BPF_NOEXIST);
		share = bpf_map_lookup_elem(&shares, &cgroup);
	}
	if (!before || !share)
		return 0;

	__u32 first = COUNTERS * bpf_get_smp_processor_id();
#pragma unroll
	for (__u32 i = 0; i < COUNTERS; i++) {
		struct bpf_perf_event_value now;

		if (bpf_perf_event_read_value(&counters, first + i, &now, sizeof(now)))
			continue;
		share->of[i] += now.counter - before->of[i];
		before->of[i] = now.counter;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

# The commands of a developer. The checks are the stages of .ci/run, so that CI runs the same.

[private]
default:
    @{{ just_executable() }} --list --unsorted

# Everything that needs no privilege: before each commit
check:
    .ci/run fmt clippy test doc deny

# Unit, integration and doc tests; arguments go to cargo test
test *ARGUMENTS:
    cargo test --locked {{ ARGUMENTS }}

# Tests against this machine's kernel; what it lacks is skipped with a reason
live:
    .ci/run live

# Tests in guests with hardware counters (arm64) and kprobes (amd64): just vm --kernel 6.12,6.1
vm *ARGUMENTS:
    tests/vm/run.sh {{ ARGUMENTS }}

# A real Prometheus scrapes the program, pprof reads its profiles, a browser shows its pages
interop:
    .ci/run interop

# Every overlay and the chart on a node of Kubernetes, whose programs the first run builds
cluster:
    .ci/run cluster

# Every fuzz target for ten minutes, or: just fuzz 60 web request
fuzz *ARGUMENTS="600":
    .ci/fuzz {{ ARGUMENTS }}

# Undefined behaviour, memory errors, data races (needs a nightly toolchain): just memory miri address thread
memory *ARGUMENTS:
    .ci/memory {{ ARGUMENTS }}

# Take the present outputs as the expected ones; look at the diff afterwards
bless:
    BLESS=1 INSTA_UPDATE=always cargo test --locked

# Run the benchmarks; arguments go to cargo bench
bench *ARGUMENTS:
    cargo bench --locked {{ ARGUMENTS }}

# The files of a release, with programs that are not optimized
release:
    .ci/run release

# All that CI runs, packages and guests included
ci:
    .ci/run

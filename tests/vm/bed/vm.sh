#!/bin/bash
# vm.sh [OPTIONS] DIR [--] COMMAND ARGUMENTS...
#
# Boots a throw-away guest under QEMU (pure emulation, no KVM), runs one command in it, and returns the command's stdout, stderr and exit
# code. The content of DIR is copied to the guest's working directory /job, which is first in PATH. The guest is busybox as root with
# cgroup2, tracefs and a loopback device. README.md lists what each architecture can measure.
#
#   -a arm64|amd64  architecture (arm64)
#   -k 6.12|6.1     Debian kernel (6.12)
#   -c N            CPUs (2)
#   -m MB           memory (1024, more for a large DIR)
#   -t SECONDS      limit of the command, in guest time (120)
#   -T SECONDS      limit of the whole run, in wall time (60 more than -t)
#   -l              pack the shared libraries that ELF files in DIR and -p need (VM_LIBPATH: searched first)
#   -p SRC:DEST     pack another file or directory of this machine at DEST; repeatable
#   -e NAME=VALUE   environment variable of the command; repeatable. The caller's environment is not passed on
#   -o OUT          keep in OUT the files that the command writes below $OUT, with dmesg.txt and serial.log
#   -i SPEC, -I     QEMU's -icount SPEC (arm64: shift=2,sleep=off), or none; without it, arm64 counts no instructions
#   -K "WORDS"      more words for the kernel's command line
#   -q "WORDS"      more arguments for QEMU
#   -v              print one line about time to stderr
# Environment: TESTBED, the directory that setup.sh built (target/testbed); VM_CPU, QEMU's CPU model; VM_LIBPATH.
#
# Exit code: the command's; 124 its time limit was exceeded; 125 the guest failed (no boot, panic, wall limit); 2 wrong usage.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
bed=${TESTBED:-$here/../../../target/testbed}

die() {
  local code=$1
  shift
  echo "vm.sh: $*" >&2
  exit "$code"
}

parse_arguments() {
  arch=arm64 kernel=6.12 cpus=2 memory='' guest_limit=120 wall_limit='' icount=default
  libraries='' out='' verbose='' kernel_words='' qemu_words='' environment=() packed=()
  local option
  while getopts a:k:c:m:t:T:lp:e:o:i:IK:q:v option; do
    case $option in
      a) arch=$OPTARG ;;
      k) kernel=$OPTARG ;;
      c) cpus=$OPTARG ;;
      m) memory=$OPTARG ;;
      t) guest_limit=$OPTARG ;;
      T) wall_limit=$OPTARG ;;
      l) libraries=1 ;;
      p) packed+=("$OPTARG") ;;
      e) environment+=("$OPTARG") ;;
      o) out=$OPTARG ;;
      i) icount=$OPTARG ;;
      I) icount='' ;;
      K) kernel_words=$OPTARG ;;
      q) qemu_words=$OPTARG ;;
      v) verbose=1 ;;
      *) exit 2 ;;
    esac
  done
  shift $((OPTIND - 1))
  work=${1-}
  [ -d "$work" ] || die 2 "${work:-DIR}: not a directory; usage: vm.sh [OPTIONS] DIR [--] COMMAND..."
  shift
  if [ "${1-}" = -- ]; then
    shift
  fi
  [ $# -gt 0 ] || die 2 "no command after the directory"
  command=("$@")
  case $arch in arm64 | amd64) ;; *) die 2 "-a $arch: the architectures are arm64 and amd64" ;; esac
  wall_limit=${wall_limit:-$((guest_limit + 60))}
}

# Prints the shared libraries that an ELF file needs, and nothing for any other file.
needed_by() {
  readelf -d "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

find_library() {
  local directory
  for directory in "${library_path[@]}"; do
    if [ -e "$directory/$1" ]; then
      echo "$directory/$1"
      return
    fi
  done
  return 1
}

# Adds to `packed` the loader and all libraries that files in DIR and -p need, including indirect dependencies.
pack_libraries() {
  local loader triple file name found
  local -A seen=()
  local queue=()
  case $arch in
    arm64) loader=lib/ld-linux-aarch64.so.1 triple=aarch64-linux-gnu ;;
    amd64) loader=lib64/ld-linux-x86-64.so.2 triple=x86_64-linux-gnu ;;
  esac
  read -ra library_path <<<"${VM_LIBPATH-} /usr/$triple/lib /usr/lib/$triple /lib/$triple"
  while IFS= read -r -d '' file; do
    queue+=("$file")
  done < <(find -H "$work" "${packed[@]%%:*}" -type f \( -perm -u+x -o -name '*.so*' \) -print0)
  while [ ${#queue[@]} -gt 0 ]; do
    file=${queue[0]}
    queue=("${queue[@]:1}")
    for name in $(needed_by "$file"); do
      if [ -n "${seen[$name]-}" ] || [ -e "$work/$name" ]; then
        continue
      fi
      seen[$name]=1
      if ! found=$(find_library "$name"); then
        echo "vm.sh: $file needs $name, which is in none of: ${library_path[*]}" >&2
        continue
      fi
      queue+=("$found")
      case $name in
        ld-linux*) ;;
        *) packed+=("$found:/lib/$triple/$name") ;;
      esac
    done
  done
  if [ ${#seen[@]} -gt 0 ] && found=$(find_library "${loader##*/}"); then
    packed+=("$found:/$loader")
  fi
}

# Creates the initrd from the base that setup.sh built, the modules that the kernel needs, and the files of this run.
make_initrd() {
  local pair base=("$bed/base-$arch.cpio")
  mkdir -p "$scratch/files/run"
  printf '%q ' "${command[@]}" >"$scratch/files/run/command"
  echo "TIME_LIMIT=$guest_limit" >"$scratch/files/run/limits"
  for pair in "${environment[@]}"; do
    printf '%s=%q\n' "${pair%%=*}" "${pair#*=}"
  done >"$scratch/files/run/environment"
  if [ -n "$libraries" ]; then
    pack_libraries
  fi
  python3 "$here/mkcpio.py" "$scratch/run.cpio" "$scratch/files:/" "$work:/job" "${packed[@]}"
  if [ -s "$bed/modules-$arch-$kernel.cpio" ]; then
    base+=("$bed/modules-$arch-$kernel.cpio")
  fi
  cat "${base[@]}" "$scratch/run.cpio" >"$scratch/initrd"
  local size=$(($(stat -c %s "$scratch/initrd") >> 20))
  # The kernel holds the archive and the files unpacked from it at the same time.
  memory=${memory:-$((1024 + (size > 100 ? 3 * size : 0)))}
}

qemu_command() {
  local words="quiet loglevel=4 panic=-1 audit=0 apparmor=0 mitigations=off random.trust_cpu=on $kernel_words"
  local image=$bed/kernel/$arch-$kernel/vmlinuz
  local extra=()
  case $arch in
    arm64)
      # A fixed shift lets the PMU count instructions; with sleep=off, idle time in the guest passes at once.
      icount=${icount/#default/shift=2,sleep=off}
      qemu=(qemu-system-aarch64 -M "virt,gic-version=3" -cpu "${VM_CPU:-max,pauth-impdef=on}")
      qemu+=(-accel "tcg,tb-size=256" -append "console=ttyAMA0 $words")
      ;;
    amd64)
      icount=${icount/#default/}
      image=$bed/kernel/$arch-$kernel/vmlinux
      # One thread: with several, the kernel's patching of its own text can crash the guest (an int3 oops, in one run of six). No fixed
      # icount shift, because short sleeps would return without a context switch.
      qemu=(qemu-system-x86_64 -M q35 -cpu "${VM_CPU:-max}" -accel "tcg,tb-size=256,thread=single")
      qemu+=(-append "console=ttyS0 tsc=reliable no_timer_check $words")
      ;;
  esac
  [ -s "$image" ] || die 125 "$image is missing: run setup.sh --arch $arch --kernel $kernel"
  if [ -n "$icount" ]; then
    # The clock of the day follows the guest's clock, which leaps over idle time: an alarm in three seconds would else be heard after
    # more than an hour of guest time.
    qemu+=(-icount "$icount" -rtc clock=vm)
  fi
  read -ra extra <<<"$qemu_words"
  qemu+=(-kernel "$image" -initrd "$scratch/initrd" -smp "$cpus" -m "$memory")
  qemu+=(-nodefaults -no-reboot -display none -monitor none -serial "file:$scratch/serial.log")
  qemu+=(-device "virtio-serial-pci,max_ports=8")
  local port=0 name
  for name in stdout stderr out.tar; do # the order in which init writes to the ports
    port=$((port + 1))
    qemu+=(-chardev "file,id=port$port,path=$scratch/$name" -device "virtserialport,chardev=port$port,nr=$port")
  done
  qemu+=("${extra[@]}")
}

# Runs QEMU and sets qemu_code. When vm.sh is killed, its guest is killed as well.
run_qemu() {
  setpriv --pdeathsig KILL "${qemu[@]}" </dev/null >"$scratch/qemu.log" 2>&1 &
  qemu_pid=$!
  local end=$((SECONDS + wall_limit))
  while kill -0 "$qemu_pid" 2>/dev/null; do
    if [ $SECONDS -ge $end ]; then
      kill -9 "$qemu_pid"
      echo "vm.sh: the guest was stopped after its ${wall_limit} s of wall time" >&2
      break
    fi
    sleep 0.1
  done
  qemu_code=0
  wait "$qemu_pid" 2>/dev/null || qemu_code=$?
  qemu_pid=''
}

# Prints one value of the result that init wrote, or nothing if the guest did not write it.
result() {
  if [ -f "$scratch/result/.result" ]; then
    sed -n "s/^$1=//p" "$scratch/result/.result"
  fi
}

milliseconds() {
  echo $((${EPOCHREALTIME/[.,]/} / 1000))
}

report_time() {
  printf 'vm.sh: %s, kernel %s: ready at %s s, end at %s s of guest time; packed in %d ms, ran for %d ms\n' \
    "$arch" "$kernel" "$(result started)" "$(result ended)" $((t_packed - t_start)) $((t_end - t_packed)) >&2
}

# Passes on the output of the guest and exits with the command's code.
finish() {
  cat "$scratch/stdout"
  cat "$scratch/stderr" >&2
  mkdir "$scratch/result"
  if [ -s "$scratch/out.tar" ]; then
    tar -C "$scratch/result" --warning=no-timestamp -xf "$scratch/out.tar" # the guest's clock runs ahead
  fi
  if [ -n "$out" ]; then
    mkdir -p "$out"
    cp -r "$scratch/serial.log" "$scratch/result/." "$out/"
  fi
  if [ -n "$verbose" ]; then
    report_time
  fi
  if [ "$(result limited)" = 1 ]; then
    echo "vm.sh: the command reached its limit of $guest_limit s of guest time" >&2
  fi
  local code
  code=$(result code)
  if [ -z "$code" ]; then
    echo "vm.sh: the guest gave no result (qemu's exit code: $qemu_code); the end of its serial log:" >&2
    tail -n 25 "$scratch/serial.log" >&2
    head -n 5 "$scratch/qemu.log" >&2
    exit 125
  fi
  exit "$code"
}

# shellcheck disable=SC2317  # the trap calls it
clean_up() {
  if [ -n "$qemu_pid" ]; then
    kill -9 "$qemu_pid" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}

parse_arguments "$@"
[ -s "$bed/base-$arch.cpio" ] || die 125 "$bed has no test bed for $arch: run setup.sh --arch $arch"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/vm.XXXXXX")
qemu_pid=''
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
touch "$scratch"/{stdout,stderr,serial.log}
t_start=$(milliseconds)
make_initrd
qemu_command
t_packed=$(milliseconds)
run_qemu
t_end=$(milliseconds)
finish

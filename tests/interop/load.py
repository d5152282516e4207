"""load.py service FILE | worker | batch PROCESSES: a load for dashboards.sh, until it is killed.

service: successful and failed system calls, writes to the disk, major page faults, packets, and child processes, with pauses
worker: short pieces of work and many context switches
batch: processes that use their CPU most of the time, so that other processes still get CPU time
"""

import contextlib
import mmap
import os
import socket
import subprocess
import sys
import time

PIECE = 1 << 20


def fault(path):
    """Reads a mapped file after dropping it from the page cache: each page is a major fault."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
            pages.madvise(mmap.MADV_RANDOM)
            return sum(pages[at] for at in range(0, len(pages), 16 * mmap.PAGESIZE))


def service(path):
    receiver = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(receiver.getsockname())
    taker, _ = receiver.accept()
    round_ = 0
    while True:
        round_ += 1
        with open(path, "wb") as file:
            file.write(os.urandom(PIECE))
            os.fsync(file.fileno())
        fault(path)
        for _ in range(50):
            sender.sendall(b"x" * 1000)
            taker.recv(1000)
        for number in range(20):
            with contextlib.suppress(OSError):
                os.open(f"{path}.{number}", os.O_RDONLY)
        if round_ % 3 == 0:
            subprocess.run(["/bin/true"], check=True)
        end = time.monotonic() + 0.03
        while time.monotonic() < end:
            sum(range(1000))
        time.sleep(0.1)


def worker():
    while True:
        end = time.monotonic() + 0.0005
        while time.monotonic() < end:
            pass
        time.sleep(0.002)


def batch(number):
    for _ in range(number - 1):
        if os.fork() == 0:
            break
    while True:
        end = time.monotonic() + 0.06
        while time.monotonic() < end:
            sum(range(1000))
        time.sleep(0.04)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "service":
        service(rest[0])
    elif kind == "worker":
        worker()
    else:
        batch(int(rest[0]))

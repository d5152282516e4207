#!/usr/bin/env python3
"""xvmlinux.py VMLINUZ OUT

Unpacks the ELF kernel inside an x86-64 bzImage. QEMU starts it by its PVH entry. This saves about a second per boot, because the kernel
is not decompressed under emulation.
"""
import subprocess
import sys

# Compression formats of Debian's kernels: the first bytes of a stream, and the command that unpacks it.
FORMATS = (
    (b"\x28\xb5\x2f\xfd", ["zstd", "-d", "-q", "-c"]),
    (b"\xfd7zXZ\0", ["xz", "-d", "-q", "-c", "--single-stream"]),
    (b"\x1f\x8b\x08", ["gzip", "-d", "-q", "-c"]),
)


def payload(image):
    """Returns the first stream in `image` that unpacks to an ELF file, or None."""
    for magic, command in FORMATS:
        start = image.find(magic)
        while start >= 0:
            # More bytes follow the stream in the image, so the exit code is meaningless.
            unpacked = subprocess.run(command, input=image[start:], capture_output=True, check=False).stdout
            if unpacked.startswith(b"\x7fELF"):
                return unpacked
            start = image.find(magic, start + 1)
    return None


def main(vmlinuz, out):
    with open(vmlinuz, "rb") as file:
        kernel = payload(file.read())
    if kernel is None:
        sys.exit(f"xvmlinux.py: {vmlinuz}: no ELF kernel inside, compressed by zstd, xz or gzip")
    with open(out, "wb") as file:
        file.write(kernel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])

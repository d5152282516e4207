#!/usr/bin/env python3
"""mkcpio.py OUT SOURCE[:DESTINATION]...

Writes an initrd: an uncompressed cpio archive in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst in the
kernel's tree). The kernel accepts several archives, one after the other. The content of a SOURCE directory is placed below DESTINATION
(default /); a SOURCE file becomes DESTINATION. The word @nodes creates the device nodes that the first process needs. Symbolic links are
kept, all entries belong to root, and the first of two equal names is used.
"""
import os
import stat
import sys

MAGIC = "070701"


class Archive:
    def __init__(self, file):
        self.file = file
        self.names = set()
        self.inode = 0

    def entry(self, name, mode, data=b"", device=(0, 0)):
        """Writes one entry, after its parent directories."""
        name = name.strip("/")
        if not name or name in self.names:
            return
        self.entry(os.path.dirname(name), stat.S_IFDIR | 0o755)
        self.names.add(name)
        self.inode += 1
        self._write(name, self.inode, mode, data, device)

    def add(self, source, destination):
        """Writes a file, a link, or a directory with its content."""
        status = os.lstat(source)
        mode = status.st_mode
        if stat.S_ISLNK(mode):
            self.entry(destination, stat.S_IFLNK | 0o777, os.readlink(source).encode())
        elif stat.S_ISDIR(mode):
            self.entry(destination, stat.S_IFDIR | stat.S_IMODE(mode) | 0o700)
            for name in sorted(os.listdir(source)):
                self.add(os.path.join(source, name), f"{destination}/{name}")
        elif stat.S_ISREG(mode):
            with open(source, "rb") as file:
                self.entry(destination, stat.S_IFREG | stat.S_IMODE(mode), file.read())

    def close(self):
        self._write("TRAILER!!!", 0, 0, b"", (0, 0))
        self.file.write(bytes(-self.file.tell() % 512))

    def _write(self, name, inode, mode, data, device):
        name = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), length of the name, checksum (unused)
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0)
        header = (MAGIC + "".join(f"{field:08X}" for field in fields)).encode() + name
        # The header with its name, and the data, are each padded to a multiple of four bytes.
        for part in (header, data):
            self.file.write(part + bytes(-len(part) % 4))


def main(out, sources):
    with open(out + ".new", "wb") as file:
        archive = Archive(file)
        for argument in sources:
            source, _, destination = argument.partition(":")
            if source == "@nodes":
                archive.entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
                archive.entry("dev/null", stat.S_IFCHR | 0o666, device=(1, 3))
                continue
            if os.path.isfile(source):
                source = os.path.realpath(source)  # a library may be a symbolic link
            archive.add(source, destination or "/")
        archive.close()
    os.rename(out + ".new", out)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])

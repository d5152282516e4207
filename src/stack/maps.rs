//! Mappings of a process: the lines of `/proc/PID/maps`, and the meaning of the names in them and in `PERF_RECORD_MMAP2`.
//!
//! Source of the format: `proc_pid_maps(5)`; of the names, `show_map_vma` in the kernel's `fs/proc/task_mmu.c` and `perf_event_mmap_event`
//! in `kernel/events/core.c`.

use std::borrow::Cow;

use crate::ring::MappedFile;

/// A mapping: a line of a list, or the content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The offset of its start in the file, in bytes.
    pub(super) offset: u64,
    pub(super) executable: bool,
    /// The inode is 0 for memory without a file.
    pub(super) file: MappedFile,
    pub(super) path: Cow<'a, [u8]>,
}

impl<'a> Line<'a> {
    /// Parses a line without its newline. Returns `None` if the line is malformed.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let (start, end) = pair(fields.next()?, b'-')?;
        let protection = fields.next()?;
        let offset = hex(fields.next()?)?;
        let (major, minor) = pair(fields.next()?, b':')?;
        let inode = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        Some(Self {
            start,
            end: if start < end { Some(end) } else { None }?,
            offset,
            executable: *protection.get(2)? == b'x',
            file: MappedFile { major: u32::try_from(major).ok()?, minor: u32::try_from(minor).ok()?, inode },
            path: unescaped(fields.next().unwrap_or_default().trim_ascii_start()),
        })
    }

    /// Returns the meaning of its name.
    pub(super) fn name(&self) -> Name<'_> {
        Name::of(&self.path, self.file.inode)
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, 16).ok()
}

fn pair(field: &[u8], between: u8) -> Option<(u64, u64)> {
    let at = field.iter().position(|&byte| byte == between)?;
    Some((hex(&field[..at])?, hex(&field[at + 1..])?))
}

/// Decodes a path: the kernel writes a newline as `\012`, and a backslash unescaped.
fn unescaped(path: &[u8]) -> Cow<'_, [u8]> {
    const NEWLINE: &[u8] = b"\\012";
    if memchr::memmem::find(path, NEWLINE).is_none() {
        return Cow::Borrowed(path);
    }
    let (mut plain, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some(at) = memchr::memmem::find(rest, NEWLINE) {
        plain.extend_from_slice(&rest[..at]);
        plain.push(b'\n');
        rest = &rest[at + NEWLINE.len()..];
    }
    plain.extend_from_slice(rest);
    Cow::Owned(plain)
}

/// The meaning of the name of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name<'a> {
    /// A file, by its path without the suffix ` (deleted)`.
    File(&'a [u8]),
    /// The vDSO, which the kernel maps into every process.
    Vdso,
    /// Memory, or a memory-only file without a path.
    Memory,
}

impl<'a> Name<'a> {
    /// Classifies a name. `inode` is 0 for memory.
    pub(super) fn of(path: &'a [u8], inode: u64) -> Self {
        if path == b"[vdso]" {
            return Self::Vdso;
        }
        // `anon_inode:[perf_event]`, `[anon:dalvik-jit]`, `socket:[4711]`, …
        let nameless = !path.starts_with(b"/");
        // Names that the kernel generates for files without a name: shared memory, and memory into which JIT compilers write.
        let made_up = [&b"//anon"[..], b"/memfd:", b"/dev/zero", b"/SYSV", b"/anon_hugepage", b"/dmabuf:"];
        let made_up = made_up.iter().any(|start| path.starts_with(start));
        if inode == 0 || (nameless && !path.starts_with(b"(unreachable)")) || made_up {
            return Self::Memory;
        }
        Self::File(path.strip_suffix(b" (deleted)").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_tells_where_what_and_from_where() {
        let text =
            b"7f92bdfcb000-7f92be121000 r-xp 00026000 fe:00 326269                     /usr/lib/libc.so.6";
        let line = Line::parse(text).unwrap();
        assert_eq!(
            line,
            Line {
                start: 0x7f92_bdfc_b000,
                end: 0x7f92_be12_1000,
                offset: 0x26000,
                executable: true,
                file: MappedFile { major: 0xfe, minor: 0, inode: 326_269 },
                path: b"/usr/lib/libc.so.6".into(),
            }
        );
        let memory = Line::parse(b"7f92be17a000-7f92be187000 rw-p 00000000 00:00 0 ").unwrap();
        assert!(!memory.executable && memory.path.is_empty());
    }

    #[test]
    fn a_path_may_have_blanks_newlines_and_bytes_of_no_encoding() {
        let line = Line::parse(b"1000-2000 r-xp 0 fe:00 1    /a b\\012c\\\xff").unwrap();
        assert_eq!(&*line.path, b"/a b\nc\\\xff");
    }

    #[test]
    fn a_line_that_is_none_is_passed_over() {
        for text in [
            &b""[..],
            b"x",
            b"2000-1000 r-xp 0 0:0 0",
            b"1000-2000 r- 0 0:0 0",
            b"1000-2000 r-xp 0 0:0",
            b"+1-+2 r-xp 0 0:0 0",
        ] {
            assert_eq!(Line::parse(text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn names_of_the_kernels_own_are_no_files() {
        for path in [
            "",
            "//anon",
            "[heap]",
            "[anon:v8]",
            "/memfd:jit (deleted)",
            "/dev/zero (deleted)",
            "/SYSV00000000",
        ] {
            assert_eq!(Name::of(path.as_bytes(), 7), Name::Memory, "{path}");
        }
        assert_eq!(Name::of(b"anon_inode:[io_uring]", 7), Name::Memory);
        assert_eq!(Name::of(b"/usr/bin/x", 0), Name::Memory);
        assert_eq!(Name::of(b"[vdso]", 0), Name::Vdso);
        assert_eq!(Name::of(b"/usr/bin/x (deleted)", 7), Name::File(b"/usr/bin/x"));
        assert_eq!(Name::of(b"/dev/shm/x.so", 7), Name::File(b"/dev/shm/x.so"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_line_or_none(bytes: Vec<u8>, path: Vec<u8>) {
            Line::parse(&bytes);
            Name::of(&bytes, 7);
            let text = [b"1000-2000 r-xp 00001000 fe:00 12      /", &path[..]].concat();
            let line = Line::parse(&text);
            prop_assert!(line.is_some_and(|line| line.path.starts_with(b"/") && line.end == 0x2000));
        }
    }
}

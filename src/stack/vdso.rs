//! The functions that the kernel maps into every process (`vdso(7)`). They are in no file, but are the same in every 64-bit process:
//! therefore the vDSO of this process is copied into an anonymous file.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use super::maps::{Line, Name};
use crate::files::Opened;
use crate::host;

/// The largest image, in bytes. It has two or three pages.
const LIMIT: u64 = 1 << 20;
/// The largest list of our own mappings, in bytes.
const MAPS_LIMIT: u64 = 4 << 20;

/// Returns the image of this process, as a file.
pub(super) fn image() -> Option<Opened> {
    let bytes = vdso(Path::new("/proc"))?;
    let mut file: File = rustix::fs::memfd_create("vdso", MemfdFlags::CLOEXEC).ok()?.into();
    file.write_all(&bytes).ok()?;
    Some(Opened::own(file, PathBuf::from("[vdso]")))
}

/// Returns the image of this process. `proc` is the mount point of procfs.
pub(crate) fn vdso(proc: &Path) -> Option<Vec<u8>> {
    let mut found = None;
    host::lines(&proc.join("self/maps"), MAPS_LIMIT, |line| {
        let line = Line::parse(line).filter(|line| line.name() == Name::Vdso);
        found = found.or(line.map(|line| (line.start, line.end - line.start)));
    })
    .ok()?;
    let (start, size) = found.filter(|&(_, size)| size <= LIMIT)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    File::open(proc.join("self/mem")).ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::elf::Elf;

    #[test]
    fn the_vdso_is_a_library_with_functions_that_tell_the_time() {
        let Some(image) = image() else {
            eprintln!("skipped: this process has no vDSO");
            return;
        };
        let elf = Elf::read(&image.file).unwrap();
        assert!(elf.is_native() && elf.frames().is_some());
        let functions = image.binary().unwrap().functions(1000).unwrap();
        assert!(functions.iter().any(|function| function.name.contains("clock_gettime")), "{functions:?}");
    }
}

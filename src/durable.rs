//! Files of the exporter's own that are written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::lock;

/// A file that is being written under another name in the same directory. If it is dropped, nothing is left of it.
#[derive(Debug)]
pub(crate) struct Unfinished {
    file: File,
    /// Its name while it is written.
    partial: PathBuf,
    is_finished: bool,
}

impl Unfinished {
    /// Creates the file `partial`, which only its owner can read. What is there under this name is removed: links are not followed.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn create(partial: &Path) -> io::Result<Self> {
        lock::assert_may_block("creating a file");
        match fs::remove_file(partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(partial)?;
        Ok(Self { file, partial: partial.to_owned(), is_finished: false })
    }

    /// Returns the number of bytes written so far.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn size(&mut self) -> io::Result<u64> {
        self.file.stream_position()
    }

    /// Waits until all of it is on the disk, and puts it in place of `path`. A crash leaves the old or the new content.
    ///
    /// # Errors
    /// The error of the kernel. Nothing is left of the new content then.
    pub(crate) fn replace(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.partial, path)?;
        self.is_finished = true;
        // The new name is on the disk when the directory is. Some file systems cannot wait for a directory.
        let directory = path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all());
        match directory {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }
}

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            // The error to report is that of the write.
            fs::remove_file(&self.partial).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::host;

    #[test]
    fn the_content_is_replaced_as_a_whole_and_only_the_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let (partial, path) = (dir.path().join("file.new"), dir.path().join("file"));
        fs::write(&path, "old").unwrap();
        let mut file = Unfinished::create(&partial).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!((file.size().unwrap(), host::read_text(&path).unwrap()), (3, "old".to_owned()));
        file.replace(&path).unwrap();
        assert_eq!(host::read_text(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(host::list(dir.path()).unwrap(), ["file"]);
    }

    #[test]
    fn a_link_under_its_name_is_not_followed_and_what_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (partial, other) = (dir.path().join("file.new"), dir.path().join("other"));
        fs::write(&other, "kept").unwrap();
        symlink(&other, &partial).unwrap();
        let mut file = Unfinished::create(&partial).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(host::read_text(&other).unwrap(), "kept");
        assert_eq!(host::list(dir.path()).unwrap(), ["other"]);
    }
}

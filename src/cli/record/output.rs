//! The output file of a profile, written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{Access, access};

use super::args::{Format, STDOUT};
use crate::cli::put;
use crate::export::flamegraph::{self, nothing, standalone};
use crate::export::folded::{self, Folded};
use crate::export::page::profile::offline;
use crate::export::pprof;
use crate::export::top::Top;
use crate::profile::Profile;

/// Maximum number of functions in a table.
const FUNCTIONS: usize = 1000;

/// The output of a profile, resolved before the recording starts.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Output {
    Stdout,
    /// A regular file, replaced by renaming a temporary file.
    File(PathBuf),
    /// A device or a pipe, written in place.
    Special(PathBuf),
}

impl Output {
    /// Resolves the output and checks that it can be written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn find(path: &Path, format: Format) -> anyhow::Result<Self> {
        if path == STDOUT {
            if format == Format::PerfData {
                anyhow::bail!(
                    "-o -: perf.data is written into a file, because its header is updated at the end; use -o perf.data"
                );
            }
            let unfit = format == Format::Pprof && io::stdout().is_terminal();
            let why =
                "-o -: cannot write binary pprof data to a terminal; write to a file, or add --format folded";
            return if unfit { Err(anyhow::anyhow!(why)) } else { Ok(Self::Stdout) };
        }
        let named = || format!("-o {}", path.display());
        let place = match fs::metadata(path) {
            Ok(there) if there.is_dir() => anyhow::bail!("{}: is a directory", named()),
            Ok(there) if there.file_type().is_fifo() && format == Format::PerfData => {
                anyhow::bail!(
                    "{}: is a pipe, but perf.data needs a file, because its header is updated at the end",
                    named()
                )
            }
            Ok(there) if !there.is_file() => return Ok(Self::Special(path.to_owned())),
            // A symbolic link is kept; its target is replaced.
            Ok(_) => fs::canonicalize(path).with_context(named)?,
            Err(_) => path.to_owned(),
        };
        access(dir(&place), Access::WRITE_OK | Access::EXEC_OK).with_context(named)?;
        Ok(Self::File(place))
    }

    /// Resolves the output of a file that is written in place, in the format of perf.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(in crate::cli) fn in_place(path: &Path) -> anyhow::Result<Self> {
        Self::find(path, Format::PerfData)
    }

    /// Returns the name of the output for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".into(),
            Self::File(path) | Self::Special(path) => path.display().to_string(),
        }
    }

    /// Writes the profile.
    ///
    /// # Errors
    /// If it cannot be written completely. A regular file is then unchanged.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => put(bytes),
            Self::Special(path) => OpenOptions::new().write(true).open(path)?.write_all(bytes),
            Self::File(path) => replace(path, bytes),
        }
    }
}

fn dir(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces the file at `path`.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let beside = dir(path).join(name);
    let written = File::create_new(&beside).and_then(|mut file| file.write_all(bytes));
    written.and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        // The temporary file belongs to this process. It may not exist.
        drop(fs::remove_file(&beside));
    })
}

/// Creates the file of an output that is written while events are recorded. Renames an existing file, like `perf record`.
///
/// # Errors
/// If the file cannot be created.
pub(in crate::cli) fn create(output: &Output) -> io::Result<File> {
    match output {
        Output::Stdout => Err(io::ErrorKind::NotSeekable.into()),
        Output::Special(path) => OpenOptions::new().write(true).open(path),
        Output::File(path) => {
            match fs::rename(path, old(path)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Otherwise, a file of this name would be mistaken for the previous recording.
                    drop(fs::remove_file(old(path)));
                }
                renamed => renamed?,
            }
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
        }
    }
}

/// Removes the file of a recording that did not begin, and restores the previous one.
pub(in crate::cli) fn discard(output: &Output) {
    if let Output::File(path) = output {
        drop(fs::remove_file(path));
        // There may be no previous one.
        drop(fs::rename(old(path), path));
    }
}

/// Returns the name of the previous recording.
fn old(path: &Path) -> PathBuf {
    let mut old = path.to_owned().into_os_string();
    old.push(".old");
    old.into()
}

/// Encodes a profile.
///
/// # Errors
/// If the profile cannot be compressed.
pub(super) fn encode(profile: &Profile, format: Format, title: Option<&str>) -> io::Result<Vec<u8>> {
    let options = flamegraph::Options { title, ..flamegraph::Options::default() };
    Ok(match format {
        Format::Pprof => pprof::encode(profile)?,
        Format::PerfData => return Err(io::ErrorKind::Unsupported.into()),
        Format::Folded => Folded::new(profile, folded::Options::default()).text(true).into_bytes(),
        Format::Svg => standalone(profile, options, &nothing(profile, 0)).into_bytes(),
        Format::Html => offline(profile, None, title, FUNCTIONS).into_bytes(),
        Format::Top => {
            let top = Top::new(profile, FUNCTIONS);
            top.text(profile, &nothing(profile, 0), "--format pprof").into_bytes()
        }
    })
}

/// Writes a differential flame graph: red where the profile has a larger share than the base. The inner error is that of the file.
///
/// # Errors
/// If the file extension selects no image, or the file cannot be written.
pub(in crate::cli) fn write_comparison(
    path: &Path,
    base: &Profile,
    now: &Profile,
) -> anyhow::Result<io::Result<()>> {
    let options = flamegraph::Options { base: Some(base), plain: true, ..flamegraph::Options::default() };
    let (format, text) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => (Format::Svg, standalone(now, options, &nothing(now, 0))),
        Some("html") => (Format::Html, offline(now, Some(base), None, FUNCTIONS)),
        _ => anyhow::bail!("-o {}: unknown file extension; use .svg or .html", path.display()),
    };
    Ok(Output::find(path, format)?.write(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host;
    use crate::profile::sample_profiles::example;

    fn found(path: &Path) -> anyhow::Result<Output> {
        Output::find(path, Format::Folded)
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.folded");
        for text in ["first and longer", "second"] {
            found(&path).unwrap().write(text.as_bytes()).unwrap();
            assert_eq!(host::read_text(&path).unwrap(), text);
        }
        assert_eq!(host::list(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn what_a_link_leads_to_is_replaced_and_the_link_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        found(&link).unwrap().write(b"new").unwrap();
        assert_eq!(host::read_text(&file).unwrap(), "new");
        assert!(link.is_symlink());
    }

    #[test]
    fn a_device_keeps_its_place() {
        let null = Path::new("/dev/null");
        assert_eq!(found(null).unwrap(), Output::Special(null.to_owned()));
        found(null).unwrap().write(b"gone").unwrap();
        assert!(!null.is_file());
    }

    #[test]
    fn what_cannot_be_written_is_told_before_anything_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        assert!(found(dir.path()).unwrap_err().to_string().ends_with(": is a directory"));
        let nowhere = dir.path().join("no/such/file.svg");
        assert!(format!("{:#}", found(&nowhere).unwrap_err()).contains("No such file or directory"));
    }

    #[test]
    fn an_earlier_recording_is_renamed_and_comes_back_if_the_new_one_does_not_begin() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf.data");
        let output = found(&path).unwrap();
        let content = |name: &str| host::read_text(&dir.path().join(name)).ok();
        create(&output).unwrap().write_all(b"first").unwrap();
        assert_eq!(content("perf.data.old"), None);
        create(&output).unwrap().write_all(b"second").unwrap();
        assert_eq!(content("perf.data.old").as_deref(), Some("first"));
        discard(&output);
        assert_eq!((content("perf.data").as_deref(), content("perf.data.old")), (Some("first"), None));
        discard(&output);
        assert!(host::list(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn perf_data_needs_a_file() {
        let error = Output::find(Path::new("-"), Format::PerfData).unwrap_err().to_string();
        assert!(error.starts_with("-o -: perf.data is written into a file"), "{error}");
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        let output = found(&path).unwrap();
        fs::create_dir(&path).unwrap();
        output.write(b"new").unwrap_err();
        assert_eq!(host::list(dir.path()).unwrap().len(), 1);
        assert!(path.is_dir());
    }

    #[test]
    fn each_format_is_what_it_is_called() {
        let bytes = |format| encode(&example(), format, Some("a & <title>")).unwrap();
        let text = |format| String::from_utf8(bytes(format)).unwrap();
        assert_eq!(bytes(Format::Pprof)[..2], [0x1f, 0x8b]);
        assert!(text(Format::Folded).lines().all(|line| line.rsplit_once(' ').is_some()));
        let (svg, html) = (text(Format::Svg), text(Format::Html));
        assert!(svg.contains("<svg ") && svg.contains("a &amp; &lt;title&gt;"));
        assert!(html.starts_with("<!doctype html>") && html.contains("a &amp; &lt;title&gt;"));
        assert!(!html.contains("<a href=") && html.contains("<svg ") && html.contains("id=\"functions\""));
        assert!(text(Format::Top).contains("Function"));
    }

    #[test]
    fn a_profile_without_samples_says_so_in_every_format() {
        for format in [Format::Svg, Format::Html, Format::Top] {
            let bytes = encode(&Profile::default(), format, None).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains("no samples so far"), "{format:?}: {text}");
        }
        assert!(encode(&Profile::default(), Format::Folded, None).unwrap().is_empty());
    }
}

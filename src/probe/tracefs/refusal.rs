//! Errors of the definition and removal of probes, with remedies.

use std::fmt;
use std::sync::Arc;

use super::{Line, NAME_LIMIT, Site, events_file};
use crate::error::{Errno, FileError};
use crate::health::{Cause, Judgement, Refusal};
use crate::host::{self, Roots};

/// The reason why the kernel did not define or remove a probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}{}", judgement.cause, judgement.reason, judgement.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default())]
pub struct ProbeRefusal {
    /// The kernel's errno, if there is one.
    pub errno: Option<Errno>,
    /// Interpretation of the error.
    pub judgement: Judgement,
    /// Whether the kernel has no function of this name.
    pub unknown: bool,
}

impl ProbeRefusal {
    fn new(errno: impl Into<Option<Errno>>, cause: Cause, reason: impl Into<String>, remedy: &str) -> Self {
        let remedy = Some(remedy.to_owned()).filter(|remedy| !remedy.is_empty());
        let judgement = Judgement { cause, reason: reason.into(), remedy };
        Self { errno: errno.into(), judgement, unknown: false }
    }

    /// Converts the error into a refusal of an event, for the status board.
    pub fn refusal(self, event: &Arc<str>, target: impl Into<String>) -> Refusal {
        Refusal { unknown: self.unknown, ..self.judgement.refusal(event, target, self.errno) }
    }
}

/// The reason why a line was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// The file could not be opened.
    Closed(Errno),
    /// The kernel read the line and returned this errno.
    Answered(Errno),
}

impl Unwritten {
    /// Returns the error for a probe that was not defined.
    pub(super) fn of_definition(self, roots: &Roots, line: &Line, definition: &str) -> ProbeRefusal {
        let errno = match self {
            Self::Closed(errno) => return closed(roots, line.site(), errno),
            Self::Answered(errno) => errno,
        };
        let log = host::read_text(&roots.tracing.join("error_log")).unwrap_or_default();
        answered(roots, line, errno, complaint_about(&log, definition))
    }

    /// Returns the error for a probe that was not removed.
    pub(super) fn of_removal(self, roots: &Roots, site: Site) -> ProbeRefusal {
        match self {
            Self::Closed(errno) => closed(roots, site, errno),
            Self::Answered(errno @ Errno::EBUSY) => ProbeRefusal::new(
                errno,
                Cause::Broken,
                "the tracepoint is still in use",
                "retry when perf, or another user of the tracepoint, has closed it",
            ),
            Self::Answered(errno) => {
                ProbeRefusal::new(errno, Cause::Broken, format!("the kernel returned {errno}"), "")
            }
        }
    }
}

/// Returns the error for a group in which all numbered names are in use.
pub(super) fn no_name(event: &str) -> ProbeRefusal {
    let name: String = event.chars().take(NAME_LIMIT).collect();
    let reason = format!("too many probes are named {name:?}");
    ProbeRefusal::new(None, Cause::Exhausted, reason, "rename some of them")
}

/// Returns the error for probe lists that cannot be read.
pub(super) fn unreadable(roots: &Roots, error: &FileError) -> ProbeRefusal {
    match error.errno() {
        Some(errno) => closed(roots, Site::Kernel, errno),
        None => ProbeRefusal::new(None, Cause::Broken, error.to_string(), ""),
    }
}

/// Returns the error for a definition file that could not be opened.
fn closed(roots: &Roots, site: Site, errno: Errno) -> ProbeRefusal {
    let path = events_file(roots, site);
    let (file, dir) = (path.display(), roots.tracing.display());
    let (cause, reason, remedy) = match errno {
        Errno::ENOENT | Errno::ENOTDIR if roots.tracing.join("events").is_dir() => {
            let (what, option) = match site {
                Site::Kernel => ("kprobes", "CONFIG_KPROBE_EVENTS"),
                Site::User => ("uprobes", "CONFIG_UPROBE_EVENTS"),
            };
            let reason = format!("this kernel has no {what}: {file} does not exist");
            (Cause::Absent, reason, format!("use a kernel with {option}"))
        }
        Errno::ENOENT | Errno::ENOTDIR if roots.tracing.is_dir() => {
            let reason = format!("tracefs is not mounted at {dir}");
            (Cause::Absent, reason, format!("mount -t tracefs tracefs {dir}"))
        }
        Errno::ENOENT | Errno::ENOTDIR => {
            let reason = format!("this kernel was built without tracing: {dir} does not exist");
            (Cause::Absent, reason, "use a kernel with CONFIG_FTRACE, and mount its tracefs".into())
        }
        Errno::EACCES | Errno::EPERM if locked_down(roots) => return locked(errno),
        Errno::EACCES | Errno::EPERM => {
            let reason = format!("{file} could not be opened for writing: {errno}");
            (Cause::Forbidden, reason, "define probes as root, which owns tracefs".into())
        }
        Errno::EROFS => {
            let remedy = "mount it writable; in a container, as a separate volume";
            (Cause::Forbidden, format!("{dir} is mounted read-only"), remedy.into())
        }
        Errno::EMFILE | Errno::ENFILE => {
            let remedy = "raise LimitNOFILE (systemd) or ulimit -n";
            (Cause::Exhausted, format!("{file}: {errno}"), remedy.into())
        }
        _ => (Cause::Broken, format!("{file}: {errno}"), String::new()),
    };
    ProbeRefusal::new(errno, cause, reason, &remedy)
}

fn locked_down(roots: &Roots) -> bool {
    host::read_text(&roots.sys.join("kernel/security/lockdown"))
        .is_ok_and(|modes| modes.contains("[confidentiality]"))
}

fn locked(errno: Errno) -> ProbeRefusal {
    let reason = "kernel lockdown is in confidentiality mode, which disables probes";
    ProbeRefusal::new(errno, Cause::Forbidden, reason, "boot without lockdown=confidentiality")
}

/// Interprets the kernel's error for a definition. Its message (`trace_probe.h`, `ERRORS`) is more specific than the errno.
fn answered(roots: &Roots, line: &Line, errno: Errno, complaint: Option<Complaint<'_>>) -> ProbeRefusal {
    let place = line.place();
    let message = complaint.map_or("", |complaint| complaint.message);
    let (cause, reason, remedy) = match (errno, line.site()) {
        (Errno::EPERM | Errno::EACCES, _) if locked_down(roots) => return locked(errno),
        (Errno::EPERM | Errno::EACCES, _) => {
            let remedy = "a security module may deny probes: check the kernel log";
            (Cause::Forbidden, format!("the kernel returned {errno}"), remedy)
        }
        (Errno::ENOMEM | Errno::ENOSPC, _) => (
            Cause::Exhausted,
            format!("the kernel has insufficient resources for the probe: {errno}"),
            "define fewer probes",
        ),
        (Errno::ENOSYS | Errno::EOPNOTSUPP, _) => {
            (Cause::Absent, format!("this kernel does not support a probe at {place}: {errno}"), "")
        }
        (Errno::EILSEQ, _) => {
            let reason = format!("{place} is in the middle of an instruction");
            (Cause::Broken, reason, "remove the offset, or use one from a disassembly")
        }
        (_, Site::Kernel) if message == "The symbol is not unique" || errno == Errno::EADDRNOTAVAIL => {
            let reason = format!("several kernel functions are named {place}");
            (Cause::Broken, reason, "specify its module, as in nf_nat:FUNCTION, or probe a caller")
        }
        (Errno::ENOENT, Site::Kernel) => return no_function(line, errno),
        (_, Site::Kernel) if message == "Invalid probed address or symbol" => {
            return no_function(line, errno);
        }
        (Errno::EINVAL, Site::Kernel) if matches!(message, "" | "Failed to register probe event") => {
            return not_there(roots, line, errno);
        }
        (Errno::ENOENT, Site::User) => {
            let remedy = "the file may have been replaced: reload perf-exporter to look it up again";
            (Cause::Absent, format!("the kernel found no file for {place}"), remedy)
        }
        _ => match complaint {
            Some(complaint) => (Cause::Broken, format!("the kernel reported: {complaint}"), ""),
            None => (Cause::Broken, format!("the kernel returned {errno} for \"{line}\""), ""),
        },
    };
    ProbeRefusal::new(errno, cause, reason, remedy)
}

fn no_function(line: &Line, errno: Errno) -> ProbeRefusal {
    let function = function(line);
    let remedy = format!(
        "it may be inlined, or in a module that is not loaded: check with grep {function} /proc/kallsyms"
    );
    let reason = format!("the kernel has no function {function}");
    ProbeRefusal { unknown: true, ..ProbeRefusal::new(errno, Cause::Absent, reason, &remedy) }
}

/// Returns the error for a function that exists but cannot be probed.
fn not_there(roots: &Roots, line: &Line, errno: Errno) -> ProbeRefusal {
    let function = function(line);
    let blacklist = roots.sys.join("kernel/debug/kprobes/blacklist");
    let listed = host::read_text(&blacklist)
        .is_ok_and(|text| text.lines().any(|line| line.rsplit('\t').next() == Some(function)));
    let inside = line.place().split_once('+').map(|(_, offset)| offset);
    let (reason, remedy) = match inside {
        _ if listed => (
            format!("{function} is on the kernel's kprobe blacklist"),
            "probe one of its callers, or a function that it calls".to_owned(),
        ),
        Some(offset) => (
            format!("the kernel rejected a probe at {offset} bytes into {function}"),
            "the offset must be the start of an instruction: remove it to probe the first one".to_owned(),
        ),
        None => (
            format!("the kernel rejected a probe in {function}"),
            format!("see {} and available_filter_functions for what can be probed", blacklist.display()),
        ),
    };
    ProbeRefusal::new(errno, Cause::Forbidden, reason, &remedy)
}

/// Returns the function name in a kernel definition.
fn function(line: &Line) -> &str {
    let symbol = line.place().rsplit(':').next().unwrap_or_default();
    symbol.split('+').next().unwrap_or_default()
}

/// The message in `error_log` about a command (Linux 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Complaint<'l> {
    message: &'l str,
    /// The word of the command under the caret.
    at: Option<&'l str>,
}

impl fmt::Display for Complaint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)?;
        self.at.map_or(Ok(()), |word| write!(f, ", at {word:?}"))
    }
}

/// Number of bytes of a command that kernels before 5.18 keep.
const KEPT: usize = 255;

/// Returns the newest log entry about a definition.
fn complaint_about<'l>(log: &'l str, definition: &str) -> Option<Complaint<'l>> {
    const COMMAND: &str = "  Command: ";
    let lines: Vec<&str> = log.lines().collect();
    let is_it =
        |command: &str| command == definition || (command.len() >= KEPT && definition.starts_with(command));
    let entries = lines.windows(3).rev();
    entries.into_iter().find_map(|entry| {
        let command = entry[1].strip_prefix(COMMAND).filter(|command| is_it(command))?;
        let (_, message) = entry[0].split_once("error: ")?;
        let caret = entry[2].find('^').filter(|&caret| entry[2][..caret].trim().is_empty());
        let rest = caret.and_then(|caret| command.get(caret.checked_sub(COMMAND.len())?..));
        let at = rest.and_then(|rest| rest.split_ascii_whitespace().next());
        Some(Complaint { message: message.trim_end(), at })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::probe::argument::Arch;

    const LOG: &str = "\
[23769.887919] trace_uprobe: error: This argument name is already used
  Command: p:g/e /usr/bin/true:0x2000 a=%di a=%si
                                              ^
[23769.875998] trace_uprobe: error: Invalid register name
  Command: p:g/e /usr/bin/true:0x2000 a=%zz
                                        ^
[23769.875999] trace_kprobe: error: Invalid probed address or symbol
  Command: p:g/e nosuch
                 ^
";

    fn kernel(function: &str) -> Line {
        Line::kernel(None, function, 0, false, &[], Arch::X86_64).unwrap()
    }

    fn user() -> Line {
        Line::user(Path::new("/bin/sh"), 16, None, false, &[], Arch::X86_64).unwrap()
    }

    #[test]
    fn the_kernels_words_about_a_line_are_found_in_its_log() {
        let complaint = complaint_about(LOG, "p:g/e /usr/bin/true:0x2000 a=%zz").unwrap();
        assert_eq!(complaint.to_string(), "Invalid register name, at \"%zz\"");
        let long = format!("p:g/e /{}:0x0", "x".repeat(400));
        let log = format!("[1.0] trace_uprobe: error: No\n  Command: {}\n           ^\n", &long[..255]);
        assert_eq!(complaint_about(&log, &long).unwrap().message, "No");
        assert_eq!(complaint_about(LOG, "p:g/other /usr/bin/true:0x2000"), None);
        assert_eq!(complaint_about("", "p:g/e nosuch"), None);
    }

    #[test]
    fn every_answer_of_the_kernel_has_a_class_and_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let say = |message| Some(Complaint { message, at: None });
        for (line, errno, message, cause, reason) in [
            (kernel("nosuch"), Errno::ENOENT, None, Cause::Absent, "no function nosuch"),
            (
                kernel("nosuch"),
                Errno::EINVAL,
                say("Invalid probed address or symbol"),
                Cause::Absent,
                "no function nosuch",
            ),
            (
                kernel("do_int3"),
                Errno::EINVAL,
                say("Failed to register probe event"),
                Cause::Forbidden,
                "rejected a probe in do_int3",
            ),
            (
                kernel("t_show"),
                Errno::EADDRNOTAVAIL,
                say("The symbol is not unique"),
                Cause::Broken,
                "several kernel functions are named t_show",
            ),
            (kernel("f"), Errno::EILSEQ, None, Cause::Broken, "middle of an instruction"),
            (kernel("f"), Errno::EPERM, None, Cause::Forbidden, "EPERM"),
            (kernel("f"), Errno::ENOMEM, None, Cause::Exhausted, "insufficient resources"),
            (
                kernel("f"),
                Errno::EINVAL,
                say("Invalid register name"),
                Cause::Broken,
                "the kernel reported: Invalid register name",
            ),
            (user(), Errno::ENOENT, None, Cause::Absent, "no file for /bin/sh:0x10"),
            (user(), Errno::EINVAL, None, Cause::Broken, "EINVAL: Invalid argument for \"p /bin/sh:0x10\""),
        ] {
            let refusal = answered(&roots, &line, errno, message);
            assert_eq!((refusal.judgement.cause, refusal.errno), (cause, Some(errno)), "{refusal}");
            assert!(refusal.judgement.reason.contains(reason), "{refusal}");
        }
    }

    #[test]
    fn a_place_inside_of_an_instruction_is_not_taken_for_a_forbidden_function() {
        let dir = tempfile::tempdir().unwrap();
        let line = Line::kernel(None, "tcp_sendmsg", 3, false, &[], Arch::Aarch64).unwrap();
        let refusal = answered(&Roots::under(dir.path()), &line, Errno::EINVAL, None);
        assert_eq!(
            refusal.to_string(),
            "forbidden: the kernel rejected a probe at 3 bytes into tcp_sendmsg; the offset must be the start of an \
             instruction: remove it to probe the first one"
        );
    }

    #[test]
    fn a_function_on_the_blacklist_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let kprobes = dir.path().join("sys/kernel/debug/kprobes");
        std::fs::create_dir_all(&kprobes).unwrap();
        std::fs::write(kprobes.join("blacklist"), "0xffff-0xffff\tdo_int3\n").unwrap();
        let roots = Roots::under(dir.path());
        let refusal = answered(&roots, &kernel("do_int3"), Errno::EINVAL, None);
        assert_eq!(
            refusal.to_string(),
            "forbidden: do_int3 is on the kernel's kprobe blacklist; probe one of its callers, or a function that it calls"
        );
    }

    #[test]
    fn what_stands_in_the_way_of_defining_probes_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let remedy = |errno| closed(&roots, Site::Kernel, errno).judgement.remedy.unwrap_or_default();
        assert!(remedy(Errno::ENOENT).contains("CONFIG_FTRACE"));
        std::fs::create_dir_all(&roots.tracing).unwrap();
        assert!(remedy(Errno::ENOENT).starts_with("mount -t tracefs"));
        std::fs::create_dir_all(roots.tracing.join("events")).unwrap();
        assert!(remedy(Errno::ENOENT).contains("CONFIG_KPROBE_EVENTS"));
        assert!(remedy(Errno::EACCES).contains("as root"));
        assert!(remedy(Errno::EROFS).contains("container"));
        let security = roots.sys.join("kernel/security");
        std::fs::create_dir_all(&security).unwrap();
        std::fs::write(security.join("lockdown"), "none integrity [confidentiality]\n").unwrap();
        assert!(remedy(Errno::EPERM).contains("lockdown"));
    }

    proptest! {
        #[test]
        fn any_log_is_read(log in "(\\PC{0,20}(\n|error: |  Command: |\\^| ){0,3}){0,12}") {
            if let Some(complaint) = complaint_about(&log, "p:g/e f") {
                prop_assert!(log.contains(complaint.message));
            }
        }
    }
}

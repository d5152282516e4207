//! Definition line of a probe.

use std::fmt;
use std::path::Path;

use crate::event::{ParseErrors, Parsed, fault};
use crate::probe::argument::{Arch, Argument, Site, fetch_text};

/// Maximum length of a line, in bytes (`WRITE_BUFSIZE`, less a newline, a NUL and the probe's name).
const LINE_LIMIT: usize = 4096 - 160;
/// Maximum number of arguments of one probe (`MAX_TRACE_ARGS`).
const ARGUMENT_LIMIT: usize = 128;

/// The definition of a probe in the kernel's syntax, without its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Line {
    site: Site,
    returns: bool,
    /// `tcp_sendmsg+16`, `/usr/bin/bash:0x1234(0x5678)`.
    place: String,
    /// Each with a leading space.
    arguments: String,
}

impl Line {
    /// Returns the definition of a probe in the kernel: at `offset` bytes from the start of a function, or at its return.
    ///
    /// A module that is not loaded is not an error, because the kernel activates the probe when the module is loaded.
    ///
    /// # Errors
    /// Each argument that is not available there, see [`fetch_text`]; duplicate argument names; too many arguments.
    pub fn kernel(
        module: Option<&str>,
        function: &str,
        offset: u64,
        returns: bool,
        arguments: &[Argument],
        machine: Arch,
    ) -> Result<Self, ParseErrors> {
        let mut place = module.map_or_else(String::new, |module| format!("{module}:"));
        place.push_str(function);
        if offset != 0 {
            place.push_str(&format!("+{offset}"));
        }
        Self::new(Site::Kernel, returns, place, arguments, machine)
    }

    /// Returns the definition of a probe in a file: at a file offset, or at the return of the function that starts there. The kernel
    /// increments the semaphore at the file offset `semaphore` while the probe is in use (Linux 4.20).
    ///
    /// # Errors
    /// Those of [`kernel`](Self::kernel), and a path that the kernel's syntax does not support.
    pub fn user(
        path: &Path,
        offset: u64,
        semaphore: Option<u64>,
        returns: bool,
        arguments: &[Argument],
        machine: Arch,
    ) -> Result<Self, ParseErrors> {
        let path = speakable(path).map_err(|fault| fault.of(&path.to_string_lossy()))?;
        let semaphore = semaphore.map_or_else(String::new, |semaphore| format!("({semaphore:#x})"));
        Self::new(Site::User, returns, format!("{path}:{offset:#x}{semaphore}"), arguments, machine)
    }

    fn new(
        site: Site,
        returns: bool,
        place: String,
        arguments: &[Argument],
        machine: Arch,
    ) -> Result<Self, ParseErrors> {
        let refuse = |argument: &Argument, message: String, remedy: &str| {
            fault(0, message, remedy).map_err(|fault| fault.of(&argument.text))
        };
        if let Some(argument) = arguments.get(ARGUMENT_LIMIT) {
            let message = format!("a probe has at most {ARGUMENT_LIMIT} arguments");
            refuse(argument, message, "remove some")?;
        }
        let texts = arguments.iter().enumerate().map(|(index, argument)| {
            if arguments[..index].iter().any(|before| before.name == argument.name) {
                let message = format!("two arguments are named {}", argument.name);
                refuse(argument, message, "rename one of them, as in first=%di")?;
            }
            fetch_text(argument, site, machine)
        });
        let mut line = Self { site, returns, place, arguments: String::new() };
        for (text, argument) in ParseErrors::collect(texts)?.iter().zip(arguments) {
            line.arguments.push(' ');
            line.arguments.push_str(text);
            if line.place.len() + line.arguments.len() > LINE_LIMIT {
                let message = "the probe definition exceeds the kernel's limit".to_owned();
                refuse(argument, message, "remove some arguments")?;
            }
        }
        Ok(line)
    }

    /// Returns whether the probe is in the kernel or in a program.
    pub fn site(&self) -> Site {
        self.site
    }

    /// Returns the location alone: `tcp_sendmsg+16`, `/usr/bin/bash:0x1234(0x5678)`.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the line with a name, for `kprobe_events` or `uprobe_events`.
    pub fn definition(&self, group: &str, event: &str) -> String {
        let Self { place, arguments, .. } = self;
        format!("{}:{group}/{event} {place}{arguments}", self.letter())
    }

    fn letter(&self) -> char {
        if self.returns { 'r' } else { 'p' }
    }
}

impl fmt::Display for Line {
    /// Formats the line without a name, which the kernel accepts too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.letter(), self.place, self.arguments)
    }
}

/// Returns a path in the kernel's syntax, where a space ends the path. The syntax has no quotes.
fn speakable(path: &Path) -> Parsed<&str> {
    let remedy = "use another path, such as a link to the file or /proc/PID/fd/N";
    match path.to_str() {
        None => fault(0, "the path is not UTF-8", remedy),
        Some(path) if path.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            fault(0, "the kernel does not support a path with spaces", remedy)
        }
        Some(path) if path.len() > LINE_LIMIT => fault(0, "the path exceeds the kernel's limit", remedy),
        Some(path) => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(texts: &[&str]) -> Vec<Argument> {
        texts.iter().zip(1..).map(|(text, place)| Argument::parse_nth(text, place).unwrap()).collect()
    }

    #[test]
    fn lines_are_those_of_the_kernels_manual() {
        let taken = arguments(&["size=$arg3:u64", "+0($arg2):string"]);
        let line = Line::kernel(None, "tcp_sendmsg", 0, false, &taken, Arch::X86_64).unwrap();
        assert_eq!(line.definition("g", "e"), "p:g/e tcp_sendmsg size=$arg3:u64 arg2=+0($arg2):string");
        let line = Line::kernel(Some("nf_nat"), "f", 16, false, &[], Arch::X86_64).unwrap();
        assert_eq!(line.to_string(), "p nf_nat:f+16");
        let taken = arguments(&["$retval"]);
        let line = Line::user(Path::new("/bin/sh"), 0x1234, None, true, &taken, Arch::X86_64).unwrap();
        assert_eq!(line.definition("g", "e"), "r:g/e /bin/sh:0x1234 arg1=$retval");
        let line = Line::user(Path::new("/a:b"), 16, Some(32), false, &[], Arch::X86_64).unwrap();
        assert_eq!(line.to_string(), "p /a:b:0x10(0x20)");
    }

    #[test]
    fn what_the_kernel_has_no_word_for_is_refused() {
        let user = |path: &str, taken: &[Argument]| {
            Line::user(Path::new(path), 0, None, false, taken, Arch::X86_64).unwrap_err().to_string()
        };
        assert!(user("/my files/x", &[]).contains("a path with spaces"));
        assert!(user("/x\ny", &[]).contains("a path with spaces"));
        assert!(user("/x", &arguments(&["a=%di", "a=%si"])).contains("two arguments are named a"));
        let many: Vec<_> = (0..200).map(|n| Argument::parse_nth("%di", n).unwrap()).collect();
        assert!(user("/x", &many).contains("at most 128"));
        let long: Vec<_> =
            (0..128).map(|n| Argument::parse_nth("+1000000(+1000000(%di)):u64", n).unwrap()).collect();
        assert!(user("/x", &long).contains("exceeds the kernel's limit"));
    }
}

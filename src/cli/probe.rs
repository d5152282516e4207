//! `perf-exporter probe`: lists what can be probed on this machine, with its variables and its configuration entry, and manages probes as
//! `perf probe` does.

mod debug;
mod edit;
mod entry;
mod find;
mod listed;
mod row;
mod vars;

use std::process::ExitCode;

pub(super) use entry::{entry_name, quoted};
pub(super) use find::{Marker, markers};

use clap::{ArgGroup, Args};

use super::Output;
use super::observe::Failure;
use super::wanted::Wanted;
use crate::files::Root;
use crate::host::Roots;
use crate::probe::binary::Binary;
use crate::probe::debug_file::{DebugContents, find_debug_file};
use crate::targets::CgroupMount;

#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("action").args(["funcs", "markers", "vars", "line", "add", "del", "list"])))]
pub(super) struct ProbeArgs {
    /// Add this probe, as --add does with one definition. With --funcs, --markers, --vars or --list: show only names that contain this text
    /// or match this pattern with * and ?. Without a pattern, kernel functions that begin with _ and nested structure members are omitted.
    #[arg(value_name = "DEFINITION|PATTERN")]
    words: Vec<String>,
    /// Probe this program or library instead of the kernel.
    #[arg(long, short = 'x', value_name = "FILE")]
    exec: Option<String>,
    /// File system in which to open the file: pid:4711, or cgroup:/path for the files of a container. The default is the host's.
    #[arg(long = "in", value_name = "pid:N|cgroup:PATH", requires = "exec", value_parser = within)]
    within: Option<Root>,
    /// List functions (the default; for a file, with its USDT probes).
    #[arg(long, short = 'F', conflicts_with_all = ["add", "del", "list"])]
    funcs: bool,
    /// List the USDT probes of a file.
    #[arg(long, requires = "exec")]
    markers: bool,
    /// Show the variables available at a function, or at a USDT probe: %PROVIDER:NAME. With the types of the source if the file has debug
    /// information.
    #[arg(long, short = 'V', value_name = "FUNCTION")]
    vars: Option<String>,
    /// With --vars and debug information: also show the variables inside the function, and where each variable has a value.
    #[arg(long, requires = "vars", requires = "exec")]
    range: bool,
    /// Show the source lines of a function, numbered from its declaration where a statement begins: FUNCTION[:START[-END|+COUNT]], or of a
    /// file: FILE:START[-END|+COUNT]. Requires debug information.
    #[arg(long, short = 'L', value_name = "LINES", requires = "exec", value_parser = debug::Wanted::parse)]
    line: Option<debug::Wanted>,
    /// Add a persistent probe perf_exporter:EVENT: [EVENT=]FUNCTION[+OFFSET|%return] [ARGUMENT...], or [EVENT=]%PROVIDER:MARKER
    /// [ARGUMENT...]. Arguments are [NAME=]FETCH[:TYPE] as for perf probe. Requires root.
    #[arg(long, short = 'a', value_name = "DEFINITION", conflicts_with = "words")]
    add: Vec<String>,
    /// Remove probes: [GROUP:]EVENT, where both may contain * and ?. Without a group, those created with --add; with a group, also those of
    /// perf (probe_libc:*). Requires root.
    #[arg(long, short = 'd', value_name = "EVENT", conflicts_with = "words")]
    del: Vec<String>,
    /// List the probes defined in the kernel and their owners. Requires root.
    #[arg(long, short = 'l')]
    list: bool,
    /// With --add and --del: print the definitions for the kernel, but change nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Maximum number of lines.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Output format.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    output: Output,
}

/// Runs the requested action.
pub(super) fn probe(args: &ProbeArgs, roots: &Roots) -> Result<ExitCode, Failure> {
    let definitions = args.definitions().map_err(Failure::Usage)?;
    if args.dry_run && definitions.is_empty() && args.del.is_empty() {
        let error = anyhow::anyhow!("--dry-run: only valid with --add or --del");
        return Err(Failure::Usage(error));
    }
    let wanted = Wanted::new(args.pattern()).map_err(Failure::Usage)?;
    let source = source(args, roots).map_err(Failure::Usage)?;
    if let (Some(lines), Some(source)) = (&args.line, &source) {
        return debug::lines(lines, args, source, roots);
    }
    let query = Query { args, source: source.as_ref(), wanted: &wanted, roots };
    Ok(if args.list {
        listed::list(args, &wanted, roots)?
    } else if !definitions.is_empty() {
        edit::add(args, &definitions, source.as_ref(), roots)?
    } else if !args.del.is_empty() {
        edit::remove(args, roots)?
    } else if let Some(place) = &args.vars {
        vars::show(place, query)?
    } else {
        find::find(query)?
    })
}

impl ProbeArgs {
    /// Reports whether a word selects names to list.
    fn lists(&self) -> bool {
        self.funcs || self.markers || self.list || self.vars.is_some()
    }

    /// Returns the pattern of a list.
    fn pattern(&self) -> Option<&str> {
        self.words.first().map(String::as_str).filter(|_| self.lists())
    }

    /// Returns the probes to add. Words without an option are one definition, as for perf.
    ///
    /// # Errors
    /// The words are not one: several patterns, or a pattern instead of a name.
    fn definitions(&self) -> anyhow::Result<Vec<String>> {
        let words = self.words.join(" ");
        if self.lists() {
            anyhow::ensure!(self.words.len() < 2, "{words}: give one PATTERN");
            return Ok(Vec::new());
        }
        let Some(first) = self.words.first() else { return Ok(self.add.clone()) };
        anyhow::ensure!(
            !first.contains(['*', '?']),
            "{first}: a probe is at one function; to list the functions that match, write -F '{first}'"
        );
        Ok(vec![words])
    }
}

/// A query and its source.
#[derive(Clone, Copy)]
struct Query<'a> {
    args: &'a ProbeArgs,
    /// The file given with `-x`. `None` for the kernel.
    source: Option<&'a Source>,
    wanted: &'a Wanted,
    roots: &'a Roots,
}

/// A program or library: the file given with `-x`.
pub(super) struct Source {
    /// Path in `root`, absolute unless it could not be resolved.
    pub(super) path: String,
    pub(super) root: Root,
}

impl Source {
    pub(super) fn open(&self, roots: &Roots) -> anyhow::Result<Binary<'static>> {
        let mount = CgroupMount::find(roots).ok();
        let mount = mount.as_ref().map(CgroupMount::dir);
        Ok(super::files(roots).open(&self.root, &self.path, mount)?.into_binary()?)
    }

    /// Opens the separate debug file of the file, if one with these contents is installed.
    pub(super) fn debug_file(
        &self,
        binary: &Binary<'_>,
        contents: DebugContents,
        roots: &Roots,
    ) -> Option<Binary<'static>> {
        let mount = CgroupMount::find(roots).ok();
        let mount = mount.as_ref().map(CgroupMount::dir);
        let files = super::files(roots);
        let found = find_debug_file(&files, &self.root, mount, &self.path, binary, contents).ok()?;
        found.opened.into_binary().ok()
    }
}

/// Returns the file with an absolute path. A relative path is resolved only if the file system is that of this process.
fn source(args: &ProbeArgs, roots: &Roots) -> anyhow::Result<Option<Source>> {
    let Some(path) = &args.exec else {
        return match args
            .words
            .first()
            .map(String::as_str)
            .or(args.vars.as_deref())
            .filter(|text| text.starts_with('/'))
        {
            Some(file) => Err(anyhow::anyhow!("{file} is a file: use -x FILE")),
            None => Ok(None),
        };
    };
    let root = args.within.clone().unwrap_or_default();
    let is_ours = root == Root::Host && roots.mounted("/") == std::path::Path::new("/");
    let absolute = is_ours.then(|| std::path::absolute(path).ok()).flatten();
    let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
    Ok(Some(Source { path: absolute.unwrap_or_else(|| path.clone()), root }))
}

/// Parses `pid:4711` or `cgroup:/system.slice/nginx.service`.
fn within(text: &str) -> Result<Root, String> {
    match text.split_once(':') {
        Some(("pid", pid)) => match pid.parse() {
            Ok(pid @ 1..) => Ok(Root::Process(pid)),
            _ => Err(format!("{pid:?} is not a process ID")),
        },
        Some(("cgroup", path)) if path.starts_with('/') => Ok(Root::Cgroup(path.into())),
        Some(("cgroup", path)) => Err(format!("{path:?} is not a cgroup path: it must begin with /")),
        _ => Err("expected pid:4711 or cgroup:/system.slice/nginx.service".into()),
    }
}

/// Prints a note to standard error.
#[expect(clippy::print_stderr, reason = "notes must not mix with the result on standard output")]
fn note(text: &str) {
    eprintln!("perf-exporter: {text}");
}

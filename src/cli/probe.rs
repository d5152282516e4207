//! `perf-exporter probe`: what can be probed on this machine and what can be taken there, how that is written in the
//! YAML, and probes for a person, as `perf probe` makes them.

mod edit;
mod entry;
mod find;
mod listed;
mod vars;

use std::process::ExitCode;

pub(super) use entry::{entry_name, quoted};

use clap::{ArgGroup, Args};

use super::Output;
use super::observe::Failure;
use super::wanted::Wanted;
use crate::files::Root;
use crate::host::Roots;
use crate::probe::binary::Binary;
use crate::target::CgroupMount;

#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("action").args(["funcs", "markers", "vars", "add", "del", "list"])))]
pub(super) struct ProbeArgs {
    /// Show only what matches: a part of a name, or a pattern with * and ?. Without one, functions of the kernel that
    /// begin with _ are left out; with --vars, what is deep in structures.
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
    /// Look into this program or library instead of the kernel.
    #[arg(long, short = 'x', value_name = "FILE")]
    exec: Option<String>,
    /// In whose files: pid:4711, or cgroup:/path for those of a container. By default, the host's.
    #[arg(long = "in", value_name = "pid:N|cgroup:PATH", requires = "exec", value_parser = within)]
    within: Option<Root>,
    /// Show functions (the default; of a file, with its markers).
    #[arg(long, short = 'F', conflicts_with_all = ["add", "del", "list"])]
    funcs: bool,
    /// Show the markers of a file (USDT).
    #[arg(long, requires = "exec")]
    markers: bool,
    /// Show what can be taken at a function, or at a marker: %PROVIDER:NAME.
    #[arg(long, short = 'V', value_name = "FUNCTION")]
    vars: Option<String>,
    /// Make a probe that stays, and is called perf_exporter:EVENT: [EVENT=]FUNCTION[+OFFSET|%return] [ARGUMENT...], or
    /// [EVENT=]%PROVIDER:MARKER [ARGUMENT...]. Arguments are [NAME=]FETCH[:TYPE] as for perf probe. Needs root.
    #[arg(long, short = 'a', value_name = "DEFINITION", conflicts_with = "pattern")]
    add: Vec<String>,
    /// Remove probes that --add made; a pattern may have * and ?. Needs root.
    #[arg(long, short = 'd', value_name = "EVENT", conflicts_with = "pattern")]
    del: Vec<String>,
    /// Show the probes that there are, and whose they are. Needs root.
    #[arg(long, short = 'l')]
    list: bool,
    /// With --add and --del: show what the kernel would be told, and change nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// How many lines to show.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// How to write the result.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    output: Output,
}

/// Does what was asked.
pub(super) fn probe(args: &ProbeArgs, roots: &Roots) -> Result<ExitCode, Failure> {
    if args.dry_run && args.add.is_empty() && args.del.is_empty() {
        let error = anyhow::anyhow!("--dry-run: this changes nothing without --add or --del");
        return Err(Failure::Usage(error));
    }
    let wanted = Wanted::new(args.pattern.as_deref()).map_err(Failure::Usage)?;
    let source = source(args, roots).map_err(Failure::Usage)?;
    let asked = Asked { args, source: source.as_ref(), wanted: &wanted, roots };
    Ok(if args.list {
        listed::list(args, &wanted, roots)?
    } else if !args.add.is_empty() {
        edit::add(args, source.as_ref(), roots)?
    } else if !args.del.is_empty() {
        edit::remove(args, roots)?
    } else if let Some(place) = &args.vars {
        vars::show(place, asked)?
    } else {
        find::find(asked)?
    })
}

/// A question, and where the answer is sought.
#[derive(Clone, Copy)]
struct Asked<'a> {
    args: &'a ProbeArgs,
    /// The file that was named; the kernel without one.
    source: Option<&'a Source>,
    wanted: &'a Wanted,
    roots: &'a Roots,
}

/// A file that was named.
struct Source {
    /// Absolute in its root.
    path: String,
    root: Root,
}

impl Source {
    fn open(&self, roots: &Roots) -> anyhow::Result<Binary<'static>> {
        let mount = CgroupMount::find(roots).ok();
        let mount = mount.as_ref().map(CgroupMount::dir);
        Ok(super::files(roots).open(&self.root, &self.path, mount)?.into_binary()?)
    }
}

/// The file, by an absolute path. A relative one is sought from here, where paths are ours.
fn source(args: &ProbeArgs, roots: &Roots) -> anyhow::Result<Option<Source>> {
    let Some(path) = &args.exec else {
        return match args.pattern.as_deref().or(args.vars.as_deref()).filter(|text| text.starts_with('/')) {
            Some(file) => Err(anyhow::anyhow!("{file} is a file: name it with -x")),
            None => Ok(None),
        };
    };
    let root = args.within.clone().unwrap_or_default();
    let is_ours = root == Root::Host && roots.mounted("/") == std::path::Path::new("/");
    let absolute = is_ours.then(|| std::path::absolute(path).ok()).flatten();
    let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
    Ok(Some(Source { path: absolute.unwrap_or_else(|| path.clone()), root }))
}

/// `pid:4711`, `cgroup:/system.slice/nginx.service`.
fn within(text: &str) -> Result<Root, String> {
    match text.split_once(':') {
        Some(("pid", pid)) => match pid.parse() {
            Ok(pid @ 1..) => Ok(Root::Process(pid)),
            _ => Err(format!("{pid:?} is no number of a process")),
        },
        Some(("cgroup", path)) if path.starts_with('/') => Ok(Root::Cgroup(path.into())),
        Some(("cgroup", path)) => Err(format!("{path:?} is not the path of a cgroup: it begins with /")),
        _ => Err("write pid:4711 or cgroup:/system.slice/nginx.service".into()),
    }
}

/// What has to be said beside the result.
#[expect(clippy::print_stderr, reason = "the result goes to stdout, and may be read by a program")]
fn note(text: &str) {
    eprintln!("perf-exporter: {text}");
}

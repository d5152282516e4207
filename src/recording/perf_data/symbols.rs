//! Names of the functions of a recording, from the files and the kernel of this machine if they are the recorded ones.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::access::{DataName, DataPlace};
use super::machine::Machine;
use crate::clean::UNKNOWN;
use crate::clock::Clock;
use crate::files::Files;
use crate::host;
use crate::recording::about::About;
use crate::ring::Ksymbol;
use crate::stack::{self, BuildId, Frame, ModuleId};
use crate::symbol::{self, FileMissing, Lines, Named, Object, Origin, Reason, Segment, Symbolizer};

/// Memory for symbols in bytes.
const MEMORY: usize = 128 << 20;
/// Maximum number of files in a note.
const FILES_IN_NOTE: usize = 5;
/// Begin of the module names of generated code in `/proc/kallsyms`.
const GENERATED: &str = "[__builtin__";
/// Maximum size of `/proc/kallsyms` in bytes.
const KALLSYMS: u64 = 256 << 20;

/// How names are looked up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The maximum size of the debug information of a file from which source lines and inlined functions are read, in bytes; 0 = none.
    pub debug_info: u64,
    /// The directory in which perf keeps files by build id: `.debug` in the home directory.
    pub cache: Option<String>,
    /// Whether callers are looked up by the return address, as perf does, instead of the address of the call before it. The two differ
    /// for a call at the end of a function.
    pub return_addresses: bool,
    /// The first and the last time of samples that are read, in nanoseconds on the clock of the records; `None`: all. Samples without a
    /// time are read.
    pub times: Option<RangeInclusive<u64>>,
}

/// Looks up names.
#[derive(Debug)]
pub(super) struct Symbols {
    files: Files,
    options: Options,
    symbolizer: Symbolizer,
    lines: Option<Lines>,
    /// Whether the kernel of this machine is the recorded one; `None` before it is compared.
    kernel: Option<Result<(), KernelDiffers>>,
    recorded_kernel: Option<BuildId>,
    release: Option<Arc<str>>,
    unnamed: BTreeMap<Reason, u64>,
}

/// Why names of this machine's kernel do not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KernelDiffers {
    Build,
    Address,
}

impl Symbols {
    pub(super) fn new(files: &Files, options: Options, about: &About, kernel: Option<BuildId>) -> Self {
        let limits = symbol::Options { memory: MEMORY, ..symbol::Options::default() };
        let symbolizer = Symbolizer::new(files, Clock::system(), limits);
        let lines = (options.debug_info > 0).then(|| {
            let mut lines = Lines::new(files, options.debug_info);
            lines.set_memory(MEMORY);
            lines
        });
        Self {
            files: files.clone(),
            options,
            symbolizer,
            lines,
            kernel: None,
            recorded_kernel: kernel,
            release: about.release.clone(),
            unnamed: BTreeMap::new(),
        }
    }

    /// Registers that the kernel added or removed a function.
    pub(super) fn apply(&mut self, symbol: &Ksymbol<'_>) {
        self.symbolizer.apply_ksymbol(symbol);
    }

    /// Looks up frames.
    pub(super) fn resolve(&mut self, frames: &[Frame], machine: &mut Machine) -> Vec<Arc<Named>> {
        let is_kernel = |frame: &Frame| matches!(frame, Frame::Kernel(_));
        let kernel = match frames.iter().any(is_kernel) {
            true => self.compare_kernel(machine).is_ok(),
            false => true,
        };
        machine.files.open(frames, &self.files, self.options.cache.as_deref());
        // Frames of another kernel are not looked up.
        let known: Vec<Frame> = frames.iter().filter(|frame| kernel || !is_kernel(frame)).copied().collect();
        let code = &machine.files.code;
        let mut named = self.symbolizer.resolve(&known, code);
        if let Some(lines) = &mut self.lines {
            lines.refine(&known, &mut named, code);
        }
        for reason in named.iter().filter_map(|named| named.reason) {
            *self.unnamed.entry(reason).or_default() += 1;
        }
        let mut named = named.into_iter();
        let each = |frame: &Frame| match *frame {
            Frame::Kernel(address) if !kernel => Some(Arc::new(of_other_kernel(address, machine))),
            _ => named.next().map(of_kernel),
        };
        frames.iter().filter_map(each).collect()
    }

    /// Returns the names of places of data, in their order. Each file is read once.
    pub(super) fn resolve_data(&mut self, places: &[DataPlace], machine: &mut Machine) -> Vec<DataName> {
        let mut by_module: BTreeMap<(bool, ModuleId), Vec<usize>> = BTreeMap::new();
        for (number, place) in places.iter().enumerate() {
            if let Some(module) = place.module {
                by_module.entry((place.kernel, module)).or_default().push(number);
            }
        }
        let unnamed =
            |place: &DataPlace| DataName { symbol: hexadecimal(place.address), object: UNKNOWN.into() };
        let mut names: Vec<DataName> = places.iter().map(unnamed).collect();
        for ((kernel, module), numbers) in by_module {
            // In bounds: numbers of places, here and below.
            let offsets: Vec<u64> = numbers.iter().map(|&number| places[number].offset).collect();
            let objects = match kernel {
                true if self.compare_kernel(machine).is_ok() => symbol::kernel_objects(&self.files, &offsets),
                true => vec![None; offsets.len()],
                false => machine.files.objects(module, &self.files, self.options.cache.as_deref(), &offsets),
            };
            let path =
                machine.files.code.modules.get(module.0 as usize).map(|module| Arc::clone(&module.path));
            for (number, object) in numbers.into_iter().zip(objects) {
                if let Some(path) = &path {
                    names[number].object = Arc::clone(path);
                }
                if let Some(object) = object {
                    names[number].symbol = of_object(&object);
                }
            }
        }
        names
    }

    fn compare_kernel(&mut self, machine: &Machine) -> Result<(), KernelDiffers> {
        if let Some(known) = self.kernel {
            return known;
        }
        let roots = self.files.roots();
        let same_build = match (&self.recorded_kernel, stack::kernel_build_id(roots, None)) {
            (Some(recorded), Some(running)) => *recorded == running,
            _ => {
                let running = host::read_text(&roots.proc.join("sys/kernel/osrelease")).ok();
                self.release
                    .as_deref()
                    .zip(running.as_deref())
                    .is_some_and(|(recorded, running)| recorded == running.trim())
            }
        };
        let compared = match (same_build, &machine.kernel_text) {
            (false, _) => Err(KernelDiffers::Build),
            (true, Some((symbol, address))) if self.has_moved(symbol, *address) => {
                Err(KernelDiffers::Address)
            }
            (true, _) => Ok(()),
        };
        self.kernel = Some(compared);
        compared
    }

    /// Reports whether a symbol of the kernel has another address than in the recording.
    fn has_moved(&self, symbol: &str, recorded: u64) -> bool {
        let mut found = None;
        let path = self.files.roots().proc.join("kallsyms");
        let read = host::lines(&path, KALLSYMS, |line| {
            let mut words = line.split(|&byte| byte == b' ');
            let (address, _, name) = (words.next(), words.next(), words.next());
            if found.is_none() && name == Some(symbol.as_bytes()) {
                found =
                    address.and_then(|word| u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
            }
        });
        // Hidden addresses are 0. The symbolizer reports them.
        read.is_ok() && found.is_some_and(|found| found != 0 && recorded != 0 && found != recorded)
    }

    /// Returns what is missing and why, as sentences.
    pub(super) fn notes(&self, machine: &Machine) -> Vec<String> {
        let mut notes = Vec::new();
        match self.kernel {
            Some(Err(KernelDiffers::Build)) => notes.push(
                "functions of the kernel have no names: the recording is of another kernel than the running one".into(),
            ),
            Some(Err(KernelDiffers::Address)) => notes.push(
                "functions of the kernel have no names: the machine was rebooted after the recording, and the kernel has other \
                 addresses"
                    .into(),
            ),
            _ => {}
        }
        let forbidden = self.unnamed.get(&Reason::KernelForbidden).copied().unwrap_or(0);
        if forbidden > 0 {
            notes.push(format!(
                "{forbidden} locations in the kernel have no names: they require CAP_SYSLOG, or sysctl kernel.kptr_restrict=0"
            ));
        }
        let unused = machine.files.unused();
        for (kind, what) in [
            (FileMissing::Missing, "are not on this machine or cannot be read"),
            (FileMissing::OtherBuild, "have another build id on this machine than in the recording"),
        ] {
            let paths: Vec<&str> =
                unused.iter().filter(|(unused, _)| *unused == kind).map(|(_, path)| &**path).collect();
            if paths.is_empty() {
                continue;
            }
            let more = paths.len().saturating_sub(FILES_IN_NOTE);
            let mut text =
                format!("{} files {what}: {}", paths.len(), paths[..paths.len() - more].join(", "));
            if more > 0 {
                text += &format!(" and {more} more");
            }
            notes.push(text);
        }
        notes
    }
}

/// Returns an address as perf prints that of data without a name. 0 has no prefix.
fn hexadecimal(address: u64) -> Arc<str> {
    if address == 0 { format!("{address:016x}").into() } else { format!("{address:#018x}").into() }
}

/// Returns the name of a variable with the distance from its first byte, or that of a function.
fn of_object(Object { name, offset, is_function }: &Object) -> Arc<str> {
    if *is_function { name.as_str().into() } else { format!("{name}+{offset:#x}").into() }
}

/// Returns code that the kernel generated, such as trampolines of ftrace, as code of the kernel, as perf does.
fn of_kernel(named: Arc<Named>) -> Arc<Named> {
    match &named.segment {
        Some(segment) if segment.path.starts_with(GENERATED) => {
            let segment = Segment { path: "[kernel.kallsyms]".into(), ..(**segment).clone() };
            Arc::new(Named { segment: Some(Arc::new(segment)), ..(*named).clone() })
        }
        _ => named,
    }
}

/// Returns the text for a location in a kernel that is not running.
fn of_other_kernel(address: u64, machine: &Machine) -> Named {
    let path = machine.kernel_module(address).cloned().unwrap_or_else(|| "[kernel.kallsyms]".into());
    let segment = Segment { limit: u64::MAX, path, ..Segment::default() };
    Named {
        origin: Origin::Kernel,
        lines: Box::new([]),
        unknown: Some(format!("[kernel] {address:#x}").into()),
        reason: Some(Reason::KernelUnknown),
        segment: Some(Arc::new(segment)),
        address,
        function: None,
    }
}

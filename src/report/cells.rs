//! What the columns show: texts of tasks, functions and modules, each with a number.

use std::borrow::Cow;
use std::sync::Arc;

use super::memory::Memory;
use super::{Key, Options};
use crate::clean::{NAME, UNKNOWN, clean, function_name};
use crate::profile::numbered::Numbered;
use crate::profile::{Location, Origin, Profile, Sample, Task};

/// Maximum number of frames of a call chain. A file of another program may contain chains of any length, and each function of a chain has
/// a call tree of the rest: the output grows with the square of the length.
pub(super) const DEPTH: usize = 512;

/// A function at a place of the code: the number of its symbol cell and of its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Frame {
    /// The text that call trees show.
    pub(super) name: u32,
    /// The module.
    pub(super) dso: u32,
    /// The cell of the symbol column.
    pub(super) symbol: u32,
    pub(super) srcline: u32,
    srcfile: u32,
}

/// The texts of all cells of a profile, and its frames.
#[derive(Debug)]
pub(super) struct Cells<'p> {
    profile: &'p Profile,
    memory: Memory<'p>,
    texts: Numbered<Arc<str>>,
    functions: Numbered<Frame>,
    /// For each location its functions, innermost first.
    frames: Vec<Box<[u32]>>,
}

impl<'p> Cells<'p> {
    pub(super) fn new(profile: &'p Profile, memory: Memory<'p>) -> Self {
        let (mut texts, mut functions) = (Numbered::default(), Numbered::default());
        let mut number = |location| {
            let frames = frames(profile, location, &mut texts);
            frames.into_iter().map(|frame| functions.place(frame)).collect()
        };
        let frames = profile.locations.iter().map(&mut number).collect();
        Self { profile, memory, texts, functions, frames }
    }

    /// Returns a text.
    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.values.get(number as usize).map_or(UNKNOWN, |text| text)
    }

    /// Returns a function by its number.
    pub(super) fn function(&self, number: u32) -> Frame {
        self.functions.values.get(number as usize).copied().unwrap_or_default()
    }

    /// Returns the functions of a stack of the profile, innermost first, at most [`DEPTH`].
    pub(super) fn stack(&self, stack: &[u32]) -> Box<[u32]> {
        let of = |location: &u32| self.frames.get(*location as usize).into_iter().flatten().copied();
        stack.iter().flat_map(of).take(DEPTH).collect()
    }

    /// Returns the cells that all entries of a sample have: those of its task and of its call chain. Those of the code are unknown.
    /// `number` is the place of the sample in the profile.
    pub(super) fn of_sample(&mut self, options: &Options, number: usize, stack: &[u32]) -> Box<[u32]> {
        let Some(sample) = self.profile.samples.get(number) else { return Box::default() };
        let unknown = Task::default();
        let task = self.profile.tasks.get(sample.task as usize).unwrap_or(&unknown);
        let cell = |key: &Key| match key {
            Key::Parent => self.parent(options, stack),
            key if key.is_of_access() => self.texts.place(self.memory.cell(*key, number, sample.mode).into()),
            key => self.texts.place(of_task(*key, task, sample).as_ref().into()),
        };
        options.sort.iter().map(cell).collect()
    }

    /// Returns the cells of the entry of a sample for one of its functions.
    pub(super) fn at(&self, options: &Options, of_sample: &[u32], function: Option<&u32>) -> Box<[u32]> {
        let frame = function.map(|&function| self.function(function));
        let cell = |(key, &of_sample): (&Key, &u32)| match (key, frame) {
            (Key::Dso, Some(frame)) => frame.dso,
            (Key::Symbol, Some(frame)) => frame.symbol,
            (Key::Srcline, Some(frame)) => frame.srcline,
            (Key::Srcfile, Some(frame)) => frame.srcfile,
            _ => of_sample,
        };
        options.sort.iter().zip(of_sample).map(cell).collect()
    }

    /// Returns the first function of a call chain that the expression matches.
    fn parent(&mut self, options: &Options, stack: &[u32]) -> u32 {
        let matches = |function: &&u32| {
            let name = self.text(self.function(**function).name);
            options.parent.as_ref().is_some_and(|expression| expression.is_match(name))
        };
        let found = if options.is_outermost_first() {
            stack.iter().rfind(matches)
        } else {
            stack.iter().find(matches)
        };
        let found = found.map(|&function| self.function(function).name);
        found.unwrap_or_else(|| self.texts.place("[other]".into()))
    }
}

fn of_task<'t>(key: Key, task: &'t Task, sample: &Sample) -> Cow<'t, str> {
    let comm = || clean(&task.comm, NAME);
    match key {
        Key::Comm => comm(),
        Key::Pid => format!("{:>7}:{}", task.tid, comm()).into(),
        Key::Cpu => sample.cpu.map_or("-01".into(), |cpu| format!("{cpu:03}").into()),
        Key::Cgroup => task.cgroup.as_deref().map_or("N/A".into(), |cgroup| clean(cgroup, NAME)),
        Key::Pod => {
            let pod = task.container.as_ref().and_then(|container| container.pod.as_ref());
            pod.map_or("N/A".into(), |pod| {
                clean(&format!("{}/{}", pod.namespace, pod.name), NAME).into_owned().into()
            })
        }
        _ => Cow::Borrowed(UNKNOWN),
    }
}

/// Returns the functions of a location, innermost first; one without a name if it has none.
fn frames(profile: &Profile, location: &Location, texts: &mut Numbered<Arc<str>>) -> Box<[Frame]> {
    let module = profile.module(location);
    // Modules of the kernel and other words in brackets have no path.
    let short = if module.starts_with('[') { module } else { module.rsplit('/').next().unwrap_or(module) };
    let short = clean(short, NAME);
    let dso = texts.place(short.as_ref().into());
    let level = if location.origin == Origin::Kernel { 'k' } else { '.' };
    let mut frame = |name: &str, symbol: String, (srcline, srcfile): (&str, &str)| Frame {
        name: texts.place(name.into()),
        dso,
        symbol: texts.place(symbol.into()),
        srcline: texts.place(srcline.into()),
        srcfile: texts.place(srcfile.into()),
    };
    let named = location.lines.iter().filter_map(|line| {
        let function = profile.functions.get(line.function as usize)?;
        let name = function_name(&function.name);
        let file = function.file.as_deref().map(|file| clean(file, NAME));
        let file = file.as_deref().and_then(|file| file.rsplit('/').next());
        let srcline = match (file, line.line) {
            (Some(file), line @ 1..) => format!("{file}:{line}"),
            _ => format!("{short}[{:x}]", location.address),
        };
        Some(frame(&name, format!("[{level}] {name}"), (&srcline, file.unwrap_or("."))))
    });
    let named: Box<[Frame]> = named.collect();
    if !named.is_empty() {
        return named;
    }
    let srcline = format!("{short}[{:x}]", location.address);
    let symbol = format!("[{level}] {:#018x}", location.address);
    Box::new([frame(&format!("{:#x}", location.address), symbol, (&srcline, "."))])
}

//! The instructions of a function with its source lines and the samples of each, as `perf annotate` shows them.
//!
//! ```text
//! Profile ─► choice: which function, the samples of its addresses ─► program: its file, extent and lines ─┐
//!                                    text ◄─ jumps ◄─ Annotated ◄─ rows ◄─ source, disassembly ◄──────────┘
//! ```
//!
//! A function is that of the symbol table: functions that were inlined into it are part of it, as in perf. Files, and the source files that
//! they name, are untrusted: sizes are limited, and every part of the work is linear in them.

mod choice;
mod disassembly;
mod jumps;
mod program;
mod rows;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod text;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::printable;
use crate::files::Files;
use crate::named_enum::named_enum;
use crate::probe::binary::BinaryError;
use crate::profile::{Profile, Unit};
use choice::Choice;
use program::Programs;
pub use text::TextOptions;

/// Maximum size of the code of a function, in bytes.
const CODE_LIMIT: u64 = 256 << 10;

/// How functions are annotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The notation of instructions of x86.
    pub syntax: Syntax,
    /// Maximum size of the debug information of a file from which source lines are read, in bytes; 0 = none.
    pub debug_info: u64,
    /// Whether the text of source lines is read.
    pub source: bool,
    /// The directory in which perf keeps files by build id: `.debug` in the home directory.
    pub cache: Option<String>,
    /// Whether files are looked up in the root directories of the sampled processes, which must run on this machine.
    pub in_processes: bool,
    /// Maximum number of instructions of a function.
    pub instructions: usize,
}

impl Default for Options {
    /// All instructions in the notation of AT&T, with source lines.
    fn default() -> Self {
        Self {
            syntax: Syntax::Att,
            debug_info: 1 << 30,
            source: true,
            cache: None,
            in_processes: false,
            instructions: usize::MAX,
        }
    }
}

named_enum! {
    /// A notation of instructions of x86.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Syntax {
        /// That of AT&T, the default of perf and objdump.
        #[default]
        Att = "att",
        /// That of Intel.
        Intel = "intel",
    }
}

/// A function to annotate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Its name: demangled, or as in the symbol table. `None`: the function with the largest value.
    pub symbol: Option<String>,
    /// Its module: the path or the name of the file. `None`: any.
    pub module: Option<String>,
}

/// An annotated function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotated {
    /// The demangled name.
    pub function: String,
    /// The path of its file.
    pub module: String,
    /// The name of the event or entry: `cpu-clock`.
    pub event: String,
    /// Whether values are nanoseconds; else they are counts.
    pub nanoseconds: bool,
    /// The sum of the values of its samples: what the function did itself. Percentages are shares of it.
    pub value: u64,
    /// The number of these samples.
    pub samples: u64,
    /// The sum of the values of all samples of the profile.
    pub total: u64,
    /// The instructions in the order of their addresses, with source lines before them.
    pub rows: Vec<Row>,
    /// What is missing and why, as sentences.
    pub notes: Vec<String>,
}

/// A row of an annotated function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Row {
    /// The source line of the instructions after it.
    Source {
        /// The path of the file.
        file: Arc<str>,
        /// The line, from 1.
        line: u32,
        /// The text of the line, if the file was found.
        text: Option<String>,
        /// The sum of the values of all instructions of the line, also of those elsewhere in the function.
        value: u64,
    },
    /// An instruction, or a byte that is none.
    Instruction {
        /// The address, according to the headers of the file.
        address: u64,
        /// The mnemonic and the operands: `jne    12c0 <burns+0x10>`.
        text: String,
        /// The sum of the values of its samples.
        value: u64,
        /// The number of its samples.
        samples: u64,
        /// The index of the row to which it jumps within the function.
        jump: Option<usize>,
    },
}

impl Annotated {
    /// Returns the share of a value in the function, in percent; 0 of nothing.
    pub fn percent(&self, value: u64) -> f64 {
        if self.value == 0 { 0.0 } else { value as f64 * 100.0 / self.value as f64 }
    }
}

/// Why a function is not annotated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotAnnotated {
    /// No sample is in the code of a file.
    #[error("no sample is in a function of a file")]
    NoSamples,
    /// No sample contains the function.
    #[error("no sample contains the function {}{}", printable(.symbol), in_module(.module.as_deref()))]
    NoFunction {
        /// The name.
        symbol: String,
        /// The module, if one was given.
        module: Option<String>,
    },
    /// The function belongs to the kernel.
    #[error(
        "{} is a function of the kernel, and code of the kernel is not disassembled: use perf annotate --vmlinux \
         with a recording of perf-exporter record -o perf.data", printable(.0)
    )]
    Kernel(String),
    /// The function was generated at run time, or is in no file.
    #[error("{} was generated at run time: its code is in no file", printable(.0))]
    Generated(String),
    /// The file is not on this machine.
    #[error("{} is not on this machine or cannot be read: annotate on the machine where it ran", printable(.0))]
    NoFile(String),
    /// The file on this machine is another one.
    #[error(
        "{} on this machine is another build than the sampled one: annotate on the machine where it ran, or copy the file",
        printable(.0)
    )]
    OtherBuild(String),
    /// The file has no symbol for the function.
    #[error("{} has no symbol that contains the samples ({reason}): install its debug symbols", printable(.path))]
    NoSymbol {
        /// The path.
        path: String,
        /// The reason in a word.
        reason: &'static str,
    },
    /// There is no disassembler for the file.
    #[error("{} is neither for x86-64 nor for aarch64, so its code is not disassembled", printable(.0))]
    Machine(String),
    /// The code cannot be read.
    #[error("{0}")]
    Unreadable(BinaryError),
}

fn in_module(module: Option<&str>) -> String {
    module.map(|module| format!(" in {}", printable(module))).unwrap_or_default()
}

/// Annotates functions. Keeps files, and what was read of their symbol tables, for the next function.
#[derive(Debug)]
pub struct Annotator {
    options: Options,
    programs: Programs,
}

impl Annotator {
    /// Creates an annotator that has read nothing yet. Files are opened by `files`.
    pub fn new(files: &Files, options: Options) -> Self {
        Self { programs: Programs::new(files, &options), options }
    }

    /// Annotates a function with the samples of a profile. Reads its file, debug information and source files, which can take seconds.
    ///
    /// # Errors
    /// The profile does not contain the function, or its code cannot be read.
    pub fn annotate(&mut self, profile: &Profile, target: &Target) -> Result<Annotated, NotAnnotated> {
        let choice = Choice::new(profile);
        let chosen = choice.choose(target)?;
        let pids = if self.options.in_processes { choice.processes(&chosen) } else { Vec::new() };
        let function = self.programs.function(&chosen, &pids)?;
        let samples = choice.by_offset(&chosen);
        let mut annotated = Annotated {
            function: function.name.to_string(),
            module: chosen.file.path.to_owned(),
            event: profile.kind.name.to_string(),
            nanoseconds: profile.kind.value.unit == Unit::Nanoseconds,
            value: 0,
            samples: 0,
            total: profile.total(),
            rows: Vec::new(),
            notes: Vec::new(),
        };
        annotated.notes.extend(chosen.inlined.map(|name| format!("{} is inlined into it", printable(name))));
        rows::fill(&mut annotated, &function, &samples, &mut self.programs, &self.options)?;
        Ok(annotated)
    }
}

/// Returns the functions of files that have samples of their own, those with the largest values first, with their values.
pub fn hottest(profile: &Profile) -> Vec<(Target, u64)> {
    Choice::new(profile).hottest()
}

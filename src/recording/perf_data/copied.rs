//! Registers and copied user stacks (`perf record --call-graph dwarf`): callers that the recorded call chain does not have.

use std::sync::Arc;

use super::files::RecordedFiles;
use super::machine::Machine;
use super::sample::Fields;
use crate::files::{Files, Opened};
use crate::ring::UserStack;
use crate::stack::{Loss, ModuleFiles, ModuleId, Unwinder};
use crate::sys::Registers;

/// Memory for unwind tables in bytes.
const MEMORY: u64 = 64 << 20;
/// Maximum number of functions of a program in a call chain, as in perf (`PERF_MAX_STACK_DEPTH`).
const DEPTH: usize = 127;

/// Unwinds copied stacks.
#[derive(Debug)]
pub(super) struct CopiedStacks {
    files: Files,
    cache: Option<String>,
    unwinder: Unwinder,
    /// Whether the recording is of a machine of this kind.
    is_native: bool,
    /// Whether a stack could not be unwound, because it is of another kind of machine.
    pub(super) foreign: bool,
}

impl CopiedStacks {
    /// Stacks of another architecture (`arch`, as `uname -m` prints it) are not unwound.
    pub(super) fn new(files: &Files, cache: Option<String>, arch: Option<&str>, big: bool) -> Self {
        Self {
            files: files.clone(),
            cache,
            unwinder: Unwinder::new(MEMORY),
            is_native: arch.is_none_or(|arch| arch == std::env::consts::ARCH)
                && big == cfg!(target_endian = "big"),
            foreign: false,
        }
    }

    /// Returns the addresses of the program in the call chain of a sample, innermost first. `None` if its stack was not copied.
    pub(super) fn unwind(
        &mut self,
        pid: u32,
        fields: &Fields<'_>,
        mask: u64,
        machine: &mut Machine,
    ) -> Option<Vec<u64>> {
        let ((bytes, full), numbers) = (fields.stack?, fields.registers?);
        if !self.is_native {
            self.foreign = true;
            return None;
        }
        let user = UserStack { registers: Registers::among(mask, numbers)?, bytes, full };
        let map = machine.map_of(pid)?;
        let (unwinder, mut files) = self.with_files(machine);
        Some(unwinder.walk((pid, &map), &user, DEPTH, &mut files))
    }

    /// Returns the caller of the innermost function of a program, at `ip`, which is still in a register and which call chains by frame
    /// pointers omit. As perf on arm64 (`arm64-frame-pointer-unwind-support.c`).
    pub(super) fn caller_of_leaf(
        &mut self,
        (pid, ip): (u32, u64),
        fields: &Fields<'_>,
        mask: u64,
        machine: &mut Machine,
    ) -> Option<u64> {
        let caller = Registers::return_address(mask, fields.registers?);
        let caller = caller.filter(|&caller| self.is_native && caller != 0)?;
        let map = machine.map_of(pid)?;
        let (unwinder, mut files) = self.with_files(machine);
        unwinder.returns_in_register((pid, &map), ip, &mut files).then_some(caller)
    }

    fn with_files<'a>(&'a mut self, machine: &'a mut Machine) -> (&'a mut Unwinder, Found<'a>) {
        let Self { unwinder, files, cache, .. } = self;
        (unwinder, Found { recorded: &mut machine.files, files, cache: cache.as_deref() })
    }
}

/// The files of the recording on this machine.
struct Found<'a> {
    recorded: &'a mut RecordedFiles,
    files: &'a Files,
    cache: Option<&'a str>,
}

impl ModuleFiles for Found<'_> {
    fn file(&mut self, module: ModuleId, _: (u32, u64, u64)) -> Option<Arc<Opened>> {
        self.recorded.file(module, self.files, self.cache)
    }

    /// Files that are missing are in the notes of the recording. Functions without unwind information are as in perf: the chain ends.
    fn lose(&mut self, _: Loss) {}
}

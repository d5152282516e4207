//! Rules that compute the registers of the caller from those of a function: a row of a call frame table in 16 bytes.
//!
//! Only the registers of a sample are used: instruction, stack and frame pointers, and on arm64 the link register. Rows with expressions
//! have no rule, and are evaluated from the table each time.

use gimli::{
    AArch64, CfaRule, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian, Location,
    Register, RegisterRule, UnwindTableRow, Value, X86_64,
};

use crate::sys::Registers;

/// The processor whose registers and calling convention apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    Aarch64,
}

/// The processor of this program.
pub(super) const NATIVE: Machine =
    if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 };

/// Mask of the address bits. The upper bits of an arm64 return address may contain a signature.
const ADDRESS_MASK: u64 = u64::MAX >> 16;

/// A rule to find the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Frame(Frame),
    /// No entry covers the instruction. An innermost function has no frame yet; others have frame pointers.
    Uncovered,
    /// There is no caller.
    End,
    /// The row has expressions.
    Computed,
}

/// A frame whose canonical frame address (CFA) is at a fixed distance from a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    base: Base,
    cfa: i32,
    fp: Slot,
    /// The return address, or the link register.
    ra: Slot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Sp,
    Fp,
}

/// The location of the caller's value of a register: a distance from the CFA in bytes, or unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(i32);

impl Slot {
    const SAME: Self = Self(i32::MIN);
    const UNDEFINED: Self = Self(i32::MIN + 1);

    fn stored(self) -> Option<i64> {
        (self != Self::SAME && self != Self::UNDEFINED).then(|| self.0.into())
    }
}

/// The caller cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stuck;

/// The return address, or `None` at the end of the stack.
pub(super) type Answer = Result<Option<u64>, Stuck>;

/// A step from a function to its caller.
pub(super) struct Step<'r> {
    pub(super) machine: Machine,
    /// Whether this is the innermost frame: the sampled instruction itself, not a call.
    pub(super) first: bool,
    /// Set to the registers of the caller.
    pub(super) registers: &'r mut Registers,
    /// Reads a word of the stack.
    pub(super) read: &'r mut dyn FnMut(u64) -> Option<u64>,
}

impl Rule {
    /// The rule that applies without a table.
    pub(super) const FRAME_POINTER: Self =
        Self::Frame(Frame { base: Base::Fp, cfa: 16, fp: Slot(-16), ra: Slot(-8) });

    /// Finds the caller, and sets the registers to those of the caller.
    #[inline]
    pub(super) fn apply(self, step: &mut Step<'_>) -> Answer {
        match self {
            Self::Frame(frame) => frame.apply(step),
            Self::End => Ok(None),
            Self::Uncovered if step.first => {
                let (cfa, ra) = match step.machine {
                    Machine::X86_64 => (8, Slot(-8)),
                    Machine::Aarch64 => (0, Slot::SAME),
                };
                Frame { base: Base::Sp, cfa, fp: Slot::SAME, ra }.apply(step)
            }
            // A frame pointer of 0 gives no information about an unknown function.
            Self::Uncovered if step.registers.fp == 0 => Err(Stuck),
            // `Tables::step` evaluates computed rows itself and comes here only if that failed.
            Self::Uncovered | Self::Computed => Self::FRAME_POINTER.apply(step),
        }
    }
}

impl Frame {
    #[inline]
    fn apply(self, step: &mut Step<'_>) -> Answer {
        let (machine, first) = (step.machine, step.first);
        let Registers { sp, fp, lr, .. } = *step.registers;
        let base = match self.base {
            Base::Sp => sp,
            // The outermost function has no frame pointer.
            Base::Fp if machine == Machine::X86_64 && fp == 0 => return Ok(None),
            Base::Fp => fp,
        };
        let cfa = base.checked_add_signed(self.cfa.into()).ok_or(Stuck)?;
        if self.base == Base::Fp && cfa <= sp {
            return Err(Stuck);
        }
        let mut load =
            |distance: i64| cfa.checked_add_signed(distance).ok_or(Stuck).map(|at| (at, (step.read)(at)));
        let caller_fp = match self.fp.stored().map(&mut load).transpose()? {
            None => fp,
            Some((_, Some(word))) => word,
            // A popped value is no longer on the stack. Compilers do not always describe the pop.
            Some((at, None)) if machine == Machine::X86_64 && first && at < sp => fp,
            Some((_, None)) => return Err(Stuck),
        };
        if machine == Machine::Aarch64 && self.base == Base::Fp {
            match caller_fp {
                0 => return Ok(None),
                caller if caller <= fp => return Err(Stuck),
                _ => {}
            }
        }
        let ra = match self.ra.stored() {
            Some(distance) => load(distance)?.1.ok_or(Stuck)?,
            None if first => lr,
            None if self.ra == Slot::UNDEFINED => return Ok(None),
            // Only a leaf function returns to the address in the register.
            None => return Err(Stuck),
        };
        step.commit(Caller { cfa, fp: caller_fp, ra })
    }
}

/// The registers of a caller.
struct Caller {
    cfa: u64,
    fp: u64,
    ra: u64,
}

impl Step<'_> {
    /// Sets the registers to those of the caller, if the step makes progress.
    #[inline]
    fn commit(&mut self, caller: Caller) -> Answer {
        let ra = match self.machine {
            Machine::X86_64 => caller.ra,
            Machine::Aarch64 => caller.ra & ADDRESS_MASK,
        };
        if ra == 0 {
            return Ok(None);
        }
        let stays = caller.cfa == self.registers.sp;
        if stays
            && match self.machine {
                Machine::X86_64 => ra == self.registers.ip,
                Machine::Aarch64 => !self.first,
            }
        {
            return Err(Stuck);
        }
        *self.registers = Registers { ip: ra, sp: caller.cfa, fp: caller.fp, lr: ra };
        Ok(Some(ra))
    }
}

/// The row of a table that applies to an instruction, and the bytes with its expressions.
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    pub(super) row: &'r UnwindTableRow<usize>,
    pub(super) encoding: gimli::Encoding,
    pub(super) bytes: &'r [u8],
}

impl Row<'_> {
    /// Returns the rules of the frame pointer and the return address.
    fn columns(&self, machine: Machine) -> (Option<RegisterRule<usize>>, Option<RegisterRule<usize>>) {
        let (fp, ra) = match machine {
            Machine::X86_64 => (X86_64::RBP, X86_64::RA),
            Machine::Aarch64 => (AArch64::X29, AArch64::X30),
        };
        (self.row.register(fp), self.row.register(ra))
    }

    /// Reports whether the return address is still in its register (arm64).
    pub(super) fn returns_in_register(&self) -> bool {
        matches!(self.columns(Machine::Aarch64).1, None | Some(RegisterRule::SameValue))
    }

    /// Returns the rule for all instructions of the row.
    pub(super) fn rule(&self, machine: Machine) -> Rule {
        let (fp, ra) = self.columns(machine);
        if machine == Machine::X86_64 && matches!(ra, None | Some(RegisterRule::Undefined)) {
            return Rule::End;
        }
        let CfaRule::RegisterAndOffset { register, offset } = self.row.cfa() else { return Rule::Computed };
        let Some(base) = base(machine, *register) else { return Rule::FRAME_POINTER };
        let slot = |rule: Option<RegisterRule<usize>>, undefined| match rule {
            None | Some(RegisterRule::SameValue) => Some(Slot::SAME),
            Some(RegisterRule::Undefined) => Some(undefined),
            Some(RegisterRule::Offset(distance)) => {
                i32::try_from(distance).ok().map(Slot).filter(|slot| slot.stored().is_some())
            }
            _ => None,
        };
        let (Ok(cfa), Some(fp), Some(ra)) =
            (i32::try_from(*offset), slot(fp, Slot::SAME), slot(ra, Slot::UNDEFINED))
        else {
            return Rule::Computed;
        };
        let unusual = match (machine, base) {
            (Machine::X86_64, _) => ra == Slot::SAME,
            (Machine::Aarch64, Base::Sp) => ra.stored().is_none() && fp.stored().is_some(),
            (Machine::Aarch64, Base::Fp) => ra.stored().is_none() || fp.stored().is_none(),
        };
        if unusual { Rule::Computed } else { Rule::Frame(Frame { base, cfa, fp, ra }) }
    }

    /// Finds the caller with a row that has expressions, as [`Rule::apply`]. Takes time proportional to their operations.
    pub(super) fn compute(&self, step: &mut Step<'_>) -> Answer {
        match self.caller(step) {
            Some(caller) => step.commit(caller),
            None => Rule::FRAME_POINTER.apply(step),
        }
    }

    fn caller(&self, step: &mut Step<'_>) -> Option<Caller> {
        let (machine, first, from, read) = (step.machine, step.first, &*step.registers, &mut *step.read);
        let (fp, ra) = self.columns(machine);
        let cfa = match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                value(machine, from, *register)?.checked_add_signed(*offset)?
            }
            CfaRule::Expression(expression) => self.evaluate(expression, machine, from)?,
        };
        let mut recover = |rule: Option<RegisterRule<usize>>, same: u64| match rule? {
            RegisterRule::SameValue => Some(same),
            RegisterRule::Offset(distance) => read(cfa.checked_add_signed(distance)?),
            RegisterRule::ValOffset(distance) => cfa.checked_add_signed(distance),
            RegisterRule::Register(register) => value(machine, from, register),
            RegisterRule::Expression(expression) => read(self.evaluate(&expression, machine, from)?),
            RegisterRule::ValExpression(expression) => self.evaluate(&expression, machine, from),
            _ => None,
        };
        match machine {
            Machine::X86_64 => {
                let fp = recover(fp, from.fp).unwrap_or(from.fp);
                let ra = match recover(ra, from.ip) {
                    Some(ra) => ra,
                    None => read(cfa.checked_sub(8)?)?,
                };
                let stays = cfa == from.sp && ra == from.ip;
                (!stays && (first || cfa >= from.sp)).then_some(Caller { cfa, fp, ra })
            }
            Machine::Aarch64 => {
                let (fp, ra) = (recover(fp, from.fp), recover(ra, from.lr));
                match first {
                    true => Some(Caller { cfa, fp: fp.unwrap_or(from.fp), ra: ra.unwrap_or(from.lr) }),
                    false if cfa <= from.sp => None,
                    false => Some(Caller { cfa, fp: fp?, ra: ra? }),
                }
            }
        }
    }

    /// Returns the value of an expression over the registers. The expression has no jumps, so that each operation is evaluated once.
    fn evaluate(
        &self,
        expression: &gimli::UnwindExpression<usize>,
        machine: Machine,
        registers: &Registers,
    ) -> Option<u64> {
        let end = expression.offset.checked_add(expression.length)?;
        let bytes = EndianSlice::new(self.bytes.get(expression.offset..end)?, LittleEndian);
        let mut evaluation: Evaluation<_> = Expression(bytes).evaluation(self.encoding);
        let mut result = evaluation.evaluate().ok()?;
        while result != EvaluationResult::Complete {
            let EvaluationResult::RequiresRegister { register, .. } = result else { return None };
            let word = Value::Generic(value(machine, registers, register)?);
            result = evaluation.resume_with_register(word).ok()?;
        }
        match evaluation.as_result().last()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}

fn base(machine: Machine, register: Register) -> Option<Base> {
    match (machine, register) {
        (Machine::X86_64, X86_64::RSP) | (Machine::Aarch64, AArch64::SP) => Some(Base::Sp),
        (Machine::X86_64, X86_64::RBP) | (Machine::Aarch64, AArch64::X29) => Some(Base::Fp),
        _ => None,
    }
}

/// Returns the value of a register, if a sample contains it.
fn value(machine: Machine, registers: &Registers, register: Register) -> Option<u64> {
    match (machine, register) {
        (Machine::X86_64, X86_64::RA) => Some(registers.ip),
        (Machine::Aarch64, AArch64::X30) => Some(registers.lr),
        _ => base(machine, register).map(|base| match base {
            Base::Sp => registers.sp,
            Base::Fp => registers.fp,
        }),
    }
}

/// A cache of rules by file and offset, within a byte limit. Each offset has two slots for its rule; the less recently used one is
/// replaced.
#[derive(Debug)]
pub(super) struct Rules {
    entries: Vec<Entry>,
    filled: usize,
    /// The most entries: a power of two.
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The number of the file; 0 for a free entry.
    file: u32,
    offset: u32,
    rule: Rule,
}

const FREE: Entry = Entry { file: 0, offset: 0, rule: Rule::End };
/// The fewest entries: a power of two.
const MIN_ENTRIES: usize = 1024;

impl Rules {
    /// Creates an empty table of at most `bytes`.
    pub(super) fn new(bytes: u64) -> Self {
        let mut rules = Self { entries: vec![FREE; MIN_ENTRIES], filled: 0, most: 0 };
        rules.set_limit(bytes);
        rules
    }

    /// Drops all rules and frees their memory.
    pub(super) fn clear(&mut self) {
        (self.entries, self.filled) = (vec![FREE; MIN_ENTRIES], 0);
    }

    /// Changes the limit. Drops all rules if they exceed it.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        let most = usize::try_from(bytes / size_of::<Entry>() as u64).unwrap_or(usize::MAX);
        self.most = 1 << most.max(MIN_ENTRIES).ilog2();
        if self.entries.len() > self.most {
            (self.entries, self.filled) = (vec![FREE; self.most], 0);
        }
    }

    /// Returns the bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        (self.entries.len() * size_of::<Entry>()) as u64
    }

    /// Returns the first of the two slots of an offset.
    #[inline]
    fn place(&self, file: u32, offset: u32) -> usize {
        let mixed = (u64::from(file) << 32 | u64::from(offset)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Below the number of entries, and even.
        (mixed >> (u64::BITS - self.entries.len().trailing_zeros())) as usize & !1
    }

    #[inline]
    pub(super) fn get(&mut self, file: u32, offset: u32) -> Option<Rule> {
        let place = self.place(file, offset);
        let is = |entry: &Entry| (entry.file, entry.offset) == (file, offset);
        if !is(&self.entries[place]) {
            if !is(&self.entries[place + 1]) {
                return None;
            }
            self.entries.swap(place, place + 1);
        }
        Some(self.entries[place].rule)
    }

    pub(super) fn insert(&mut self, file: u32, offset: u32, rule: Rule) {
        // The table is half full, or has collisions when a sixteenth is full.
        let evicts = self.entries[self.place(file, offset) + 1].file != 0;
        let crowded = self.filled > self.entries.len() / if evicts { 16 } else { 2 };
        if crowded && self.entries.len() < self.most {
            let larger = vec![FREE; self.entries.len() * 2];
            self.filled = 0;
            let old = std::mem::replace(&mut self.entries, larger);
            for entry in old.into_iter().filter(|entry| entry.file != 0) {
                self.put(entry);
            }
        }
        self.put(Entry { file, offset, rule });
    }

    fn put(&mut self, entry: Entry) {
        let place = self.place(entry.file, entry.offset);
        self.filled += usize::from(self.entries[place + 1].file == 0);
        self.entries[place + 1] = entry;
        self.entries.swap(place, place + 1);
    }
}

#[cfg(test)]
mod tests;

//! Folded stacks: `comm;outer;…;inner value`, as of stackcollapse-perf.pl, of `/folded` and of `record --format folded`.
//!
//! The first frame is the name of the thread. The suffixes `_[k]`, `_[j]` and `_[i]` tell code of the kernel, JIT-compiled code and inlined
//! functions. Empty lines and comments (`#`) are skipped.

use super::Invalid;
use super::builder::Builder;
use crate::profile::{Kind, Mode, Origin, Profile, Task, Unit, ValueType};

/// Suffixes of names.
const SUFFIXES: [(&str, Suffix); 3] = [
    ("_[k]", Suffix::Origin(Origin::Kernel)),
    ("_[j]", Suffix::Origin(Origin::Jit)),
    ("_[i]", Suffix::Inlined),
];

/// Meaning of a suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Origin(Origin),
    Inlined,
}

pub(super) fn read(text: &str) -> Result<Profile, Invalid> {
    let mut builder = Builder::default();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refused = |what| Invalid::Line { line: number, what };
        let (stack, value) = line.rsplit_once(' ').ok_or_else(|| refused("it has no value after a space"))?;
        let value = self::value(value).ok_or_else(|| refused("its value is not a number"))?;
        if stack.rsplit_once(' ').is_some_and(|(_, second)| self::value(second).is_some()) {
            return Err(refused("it has two values, as in the comparison of two profiles"));
        }
        add(&mut builder, stack.trim_end(), value)?;
    }
    let value = ValueType { name: "value".into(), unit: Unit::Count };
    let kind = Kind { name: "folded".into(), value, period: Some(1) };
    Ok(builder.finish(Profile { kind, ..Profile::default() }))
}

/// Adds the stack of a line.
fn add(builder: &mut Builder, line: &str, value: u64) -> Result<(), Invalid> {
    let mut frames = line.split(';');
    let comm = frames.next().unwrap_or_default();
    let (mut stack, mut mode) = (Vec::new(), Mode::User);
    // The functions of one location, outermost first: the others were inlined into the first.
    let (mut functions, mut origin) = (Vec::new(), Origin::Native);
    for frame in frames {
        let (name, suffix) = SUFFIXES
            .into_iter()
            .find_map(|(suffix, meaning)| Some((frame.strip_suffix(suffix)?, Some(meaning))))
            .unwrap_or((frame, None));
        if suffix != Some(Suffix::Inlined) && !functions.is_empty() {
            stack.push(place(builder, &mut functions, origin)?);
        }
        if functions.is_empty() {
            origin = match suffix {
                Some(Suffix::Origin(origin)) => origin,
                _ => Origin::Native,
            };
        }
        functions.push(builder.function(name, None)?);
    }
    if !functions.is_empty() {
        stack.push(place(builder, &mut functions, origin)?);
        if origin == Origin::Kernel {
            mode = Mode::Kernel;
        }
    }
    stack.reverse();
    let task = Task { comm: comm.into(), program: comm.into(), ..Task::default() };
    builder.sample(&stack, task, mode, (value, value))
}

/// Adds a location with these functions, outermost first, and empties the list.
fn place(builder: &mut Builder, functions: &mut Vec<u32>, origin: Origin) -> Result<u32, Invalid> {
    functions.reverse();
    let location = builder.place(functions, origin);
    functions.clear();
    location
}

/// Parses a value. Some tools write decimals.
fn value(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let half = u64::from(fraction.as_bytes().first().is_some_and(|&digit| digit >= b'5'));
    (digits(whole) && digits(fraction)).then(|| whole.parse::<u64>().ok()?.checked_add(half))?
}

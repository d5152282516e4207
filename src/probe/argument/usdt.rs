//! Arguments that a compiler recorded for a USDT probe: `-4@%edi 8@-8(%rbp) 8@$5`.
//!
//! The format is `[-]SIZE@OPERAND`: the size in bytes, a minus for signed values, and an assembler operand (SystemTap's `sys/sdt.h`, "User
//! Space Probe Implementation" in its wiki).

use super::{Arch, Argument, ArgumentError, Element, Fetch, FetchType, Register, Width};
use crate::event::{Fault, Parsed, digits, fault};

/// Maximum length of the list, in bytes.
const TEXT_LIMIT: usize = 4096;
/// Maximum number of arguments of one USDT probe. `sys/sdt.h` writes up to 12.
const ARGUMENT_LIMIT: usize = 64;

const EXPECTED: &str = "only a register, a constant, or memory at a register is supported";

/// Parses the arguments of a USDT probe in order, named `arg1`, `arg2`, … Each has its own result. Only the first 64 are parsed.
pub fn usdt(arguments: &str, machine: Arch) -> Vec<Result<Argument, ArgumentError>> {
    let named = split(arguments).into_iter().take(ARGUMENT_LIMIT).zip(1..);
    named.map(|(text, place)| argument(text, place, machine)).collect()
}

impl Argument {
    /// Returns the argument with `$arg1`, `$arg2`… replaced by the arguments of a USDT probe ([`usdt`]). No calling convention determines
    /// their locations.
    ///
    /// # Errors
    /// The USDT probe has no such argument, the argument is not supported, or it is too short for an address.
    pub fn at_usdt_probe(&self, usdt_probe: &[Result<Self, ArgumentError>]) -> Result<Self, ArgumentError> {
        let (fetch, kind) =
            self.fetch.at_usdt_probe(usdt_probe, true).map_err(|fault| fault.of(&self.text))?;
        Ok(Self { fetch, kind: self.kind.or(kind), ..self.clone() })
    }
}

impl Fetch {
    fn at_usdt_probe(
        &self,
        usdt_probe: &[Result<Argument, ArgumentError>],
        outermost: bool,
    ) -> Parsed<(Self, Option<FetchType>)> {
        let number = match self {
            Self::Argument(number) => *number,
            Self::Deref { user, offset, of } => {
                let of = Box::new(of.at_usdt_probe(usdt_probe, false)?.0);
                return Ok((Self::Deref { user: *user, offset: *offset, of }, None));
            }
            other => return Ok((other.clone(), None)),
        };
        let argument = match usdt_probe.get(usize::from(number).wrapping_sub(1)) {
            Some(Ok(argument)) => argument,
            Some(Err(error)) => return fault(0, format!("$arg{number} is {:?}", error.text), &*error.remedy),
            None => {
                let remedy = match usdt_probe.len() {
                    0 => "the probe has no arguments".to_owned(),
                    many => format!("the probe has $arg1 to $arg{many}"),
                };
                return fault(0, format!("the USDT probe has no $arg{number}"), remedy);
            }
        };
        let whole = [Element::Unsigned(Width::W64), Element::Signed(Width::W64)];
        if !outermost && !argument.kind.is_some_and(|kind| whole.contains(&kind.element)) {
            let message =
                format!("$arg{number} of the USDT probe has less than 64 bits, so it is not an address");
            return fault(0, message, format!("use the value itself: $arg{number}"));
        }
        Ok((argument.fetch.clone(), argument.kind))
    }
}

/// Splits a list at each `SIZE@`, because operands may contain spaces.
fn split(list: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let mut start = 0;
    let end = (0..=list.len().min(TEXT_LIMIT)).rev().find(|&at| list.is_char_boundary(at)).unwrap_or(0);
    let list = &list[..end];
    let mut at = 0;
    for word in list.split(' ') {
        if at > start && begins(word) {
            found.push(list[start..at].trim());
            start = at;
        }
        at += word.len() + 1;
    }
    found.push(list[start..].trim());
    found.retain(|text| !text.is_empty());
    found
}

/// Reports whether a word begins an argument. Arguments without a size begin with a register or a constant.
fn begins(word: &str) -> bool {
    match word.split_once('@') {
        Some((size, _)) => {
            !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'f'))
        }
        None => word.starts_with(['%', '$']),
    }
}

fn argument(text: &str, place: usize, machine: Arch) -> Result<Argument, ArgumentError> {
    let parsed = kind_of(text).and_then(|(kind, operand)| {
        let at = text.len() - operand.len();
        let fetch = match machine {
            Arch::X86_64 => x86_64(operand, at)?,
            Arch::Aarch64 => aarch64(operand, at)?,
            Arch::Other => return fault(0, "operands of this architecture are not supported", EXPECTED),
        };
        Ok((kind, fetch))
    });
    let (kind, fetch) = parsed.map_err(|fault| fault.of(text))?;
    Ok(Argument { name: format!("arg{place}").into(), fetch, kind: Some(kind.into()), text: text.into() })
}

/// Splits an argument at the `@` into its type and its operand.
fn kind_of(text: &str) -> Parsed<(Element, &str)> {
    let Some((size, operand)) = text.split_once('@') else {
        return Ok((Element::Unsigned(Width::W64), text));
    };
    if size.ends_with('f') {
        return fault(0, "floating-point arguments are not supported", "the kernel supports integers only");
    }
    let signed = size.strip_prefix('-');
    let width = signed.unwrap_or(size).parse().ok().and_then(Width::of_bytes);
    let no_size = || Fault::new(0, "invalid argument size", "expected 1, 2, 4 or 8 bytes");
    Ok((Element::integer(width.ok_or_else(no_size)?, signed.is_some()), operand))
}

/// Parses an operand in AT&T syntax: `%edi`, `$5`, `-8(%rbp)`.
fn x86_64(operand: &str, at: usize) -> Parsed<Fetch> {
    if let Some(constant) = operand.strip_prefix('$') {
        return immediate(constant, at);
    }
    if let Some(name) = operand.strip_prefix('%').filter(|rest| !rest.contains(':')) {
        return register(name, at, Arch::X86_64);
    }
    let Some((offset, inside)) = operand.strip_suffix(')').and_then(|operand| operand.split_once('(')) else {
        let message = "the address of this operand is unknown before the program runs";
        return fault(at, message, EXPECTED);
    };
    if inside.contains(',') {
        return fault(at, "the kernel does not support indexed addresses", EXPECTED);
    }
    let Some(base) = inside.strip_prefix('%') else {
        return fault(at, "this operand has no register", EXPECTED);
    };
    let of = register(base, at, Arch::X86_64)?;
    if base == "rip" {
        return fault(at, "the address of this operand is relative to the code", EXPECTED);
    }
    deref(offset, of, at)
}

/// Parses an operand of arm64: `x0`, `w1`, `5`, `[sp, 12]`.
fn aarch64(operand: &str, at: usize) -> Parsed<Fetch> {
    let Some(inside) = operand.strip_prefix('[') else {
        return match operand.bytes().next() {
            Some(b'#' | b'-' | b'0'..=b'9') => immediate(operand.trim_start_matches('#'), at),
            _ => register(operand, at, Arch::Aarch64),
        };
    };
    let Some(inside) = inside.strip_suffix(']') else {
        return fault(at, "the kernel does not support addressing modes that modify a register", EXPECTED);
    };
    let (base, offset) = inside.split_once(',').unwrap_or((inside, "0"));
    let of = register(base.trim(), at, Arch::Aarch64)?;
    let offset = offset.trim().trim_start_matches('#');
    if offset.contains(',') || offset.starts_with(['x', 'w']) {
        return fault(at, "the kernel does not support indexed addresses", EXPECTED);
    }
    deref(offset, of, at)
}

fn register(name: &str, at: usize, machine: Arch) -> Parsed<Fetch> {
    let register = Register::containing(name, machine).map(Fetch::Register);
    register
        .ok_or_else(|| Fault::new(at, format!("the kernel does not support the register {name}"), EXPECTED))
}

fn immediate(text: &str, at: usize) -> Parsed<Fetch> {
    let value = integer(text).map(Fetch::Immediate);
    value.ok_or_else(|| Fault::new(at, "this constant is a link-time symbol", EXPECTED))
}

fn deref(offset: &str, of: Fetch, at: usize) -> Parsed<Fetch> {
    match if offset.is_empty() { Some(0) } else { integer(offset) } {
        Some(offset) => Ok(Fetch::Deref { user: false, offset, of: Box::new(of) }),
        None => fault(at, "the address of this operand is determined at link time", EXPECTED),
    }
}

/// Parses an assembler number: decimal or `0x`, with an optional minus.
fn integer(text: &str) -> Option<i64> {
    let negative = text.strip_prefix('-');
    let number = negative.unwrap_or(text);
    let magnitude = number.strip_prefix("0x").map_or_else(|| digits(number, 10), |hex| digits(hex, 16))??;
    match negative {
        Some(_) => 0_i64.checked_sub_unsigned(magnitude),
        None => Some(magnitude.cast_signed()),
    }
}

//! Disassembly of x86-64 and aarch64 in the notation of objdump.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, FormatterOptions, GasFormatter, IntelFormatter, OpKind,
};
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

use super::Syntax;
use crate::probe::argument::Arch;

/// Width of a mnemonic with the space after it, as in objdump.
const MNEMONIC: u32 = 7;

/// Length of an instruction of aarch64, in bytes.
const WORD: usize = 4;

/// An instruction, or bytes that are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) address: u64,
    /// In bytes.
    pub(super) length: usize,
    /// The mnemonic and the operands: `jne    12c0`.
    pub(super) text: String,
    /// The address to which it can continue, other than the next one.
    pub(super) target: Option<u64>,
    /// Whether it calls the target, and continues behind itself.
    pub(super) is_call: bool,
}

/// Disassembles code that begins at this address: at most `limit` instructions. Together, they have all bytes of the code up to there.
pub(super) fn disassemble(
    code: &[u8],
    start: u64,
    machine: Arch,
    syntax: Syntax,
    limit: usize,
) -> Vec<Instruction> {
    match machine {
        Arch::X86_64 => x86(code, start, syntax, limit),
        Arch::Aarch64 => aarch64(code, start, limit),
        Arch::Other => Vec::new(),
    }
}

fn x86(code: &[u8], start: u64, syntax: Syntax, limit: usize) -> Vec<Instruction> {
    let mut formatter: Box<dyn Formatter> = match syntax {
        Syntax::Att => Box::new(GasFormatter::new()),
        Syntax::Intel => Box::new(IntelFormatter::new()),
    };
    style(formatter.options_mut(), syntax);
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut found = Vec::new();
    while decoder.can_decode() && found.len() < limit {
        let (position, address) = (decoder.position(), decoder.ip());
        let decoded = decoder.decode();
        let mut text = String::new();
        if decoded.is_invalid() {
            // Instructions can begin at the next byte.
            if decoder.set_position(position + 1).is_err() {
                break;
            }
            decoder.set_ip(address.wrapping_add(1));
            text.push_str("(bad)");
            found.push(Instruction { address, length: 1, text, target: None, is_call: false });
            continue;
        }
        let is_branch =
            matches!(decoded.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
        let target = is_branch.then(|| decoded.near_branch_target());
        match target {
            Some(target) => {
                formatter.format_mnemonic(&decoded, &mut text);
                text = format!("{text:<width$}{target:x}", width = MNEMONIC as usize);
            }
            None => {
                // objdump writes the factor of an index, and an address relative to `rip` without one.
                formatter.options_mut().set_always_show_scale(!decoded.is_ip_rel_memory_operand());
                formatter.format(&decoded, &mut text);
            }
        }
        if decoded.is_ip_rel_memory_operand() {
            text.push_str(&format!("        # {:x}", decoded.ip_rel_memory_address()));
        }
        let is_call = decoded.flow_control() == FlowControl::Call;
        found.push(Instruction { address, length: decoded.len(), text, target, is_call });
    }
    found
}

/// Sets the style of objdump.
fn style(options: &mut FormatterOptions, syntax: Syntax) {
    options.set_first_operand_char_index(MNEMONIC);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_rip_relative_addresses(true);
    options.set_show_branch_size(false);
    if syntax == Syntax::Intel {
        options.set_uppercase_keywords(true);
        options.set_memory_size_options(iced_x86::MemorySizeOptions::Always);
    }
}

fn aarch64(code: &[u8], start: u64, limit: usize) -> Vec<Instruction> {
    let decoder = InstDecoder::default();
    let words = code.chunks(WORD).zip(0u64..).take(limit);
    let instruction = |(bytes, number): (&[u8], u64)| {
        let address = start.wrapping_add(number * WORD as u64);
        let decoded = decoder.decode(&mut U8Reader::new(bytes));
        let (text, target, is_call) = match (decoded, bytes) {
            (Ok(decoded), _) => {
                let offset = decoded.operands.iter().find_map(|operand| match operand {
                    Operand::PCOffset(offset) => Some(*offset),
                    _ => None,
                });
                // The base of `adrp` is a page, and `adr` and literal loads refer to data.
                let is_branch = is_branch(bytes);
                let base = if decoded.opcode == Opcode::ADRP { address & !0xfff } else { address };
                let target = offset.map(|offset| base.wrapping_add_signed(offset));
                let text = decoded.to_string();
                let text = match target {
                    // The disassembler writes the distance: `$+0x10`.
                    Some(target) => {
                        text.split('$').next().unwrap_or_default().to_owned() + &format!("{target:x}")
                    }
                    None => text,
                };
                (text, target.filter(|_| is_branch), decoded.opcode == Opcode::BL)
            }
            (Err(_), &[a, b, c, d]) => {
                (format!(".inst   {:#010x}", u32::from_le_bytes([a, b, c, d])), None, false)
            }
            (Err(_), bytes) => {
                let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
                (format!(".byte   {}", bytes.join(", ")), None, false)
            }
        };
        let text = match text.split_once(' ') {
            Some((mnemonic, operands)) => format!("{mnemonic:<7} {}", operands.trim_start()),
            None => text,
        };
        Instruction { address, length: bytes.len(), text, target, is_call }
    };
    words.map(instruction).collect()
}

/// Reports whether an instruction of aarch64 is a branch to an address that it contains.
///
/// Source of the encodings: Arm Architecture Reference Manual, C4.1, "Branches, Exception Generating and System instructions".
fn is_branch(bytes: &[u8]) -> bool {
    let &[_, _, _, high] = bytes else { return false };
    // b, bl; b.cond; cbz, cbnz, tbz, tbnz.
    high & 0x7c == 0x14 || high == 0x54 || high & 0x7c == 0x34
}

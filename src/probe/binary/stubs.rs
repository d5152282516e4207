//! Lookup of PLT stubs (`.plt`) by address. A file calls functions of other files through these stubs.
//!
//! A stub jumps to the address in a slot of the global offset table. A relocation specifies the symbol whose address the dynamic linker
//! writes to the slot. This holds for every layout of stubs, so the instructions identify a stub's function. Sources: the psABI of x86-64
//! (5.2) and of AArch64 (ELF for the Arm 64-bit architecture), and the output of ld, lld and mold.

use super::addresses::name_at;
use super::headers::Class;
use super::input::Part;
use super::{Binary, Result};
use crate::host::ReadAt;
use crate::probe::argument::Arch;

/// Maximum size of a stub section, in bytes. A browser has 100 KB.
const STUBS_LIMIT: u64 = 4 << 20;
/// Size of a 64-bit relocation with an addend, in bytes.
const RELOCATION: usize = 24;
/// Size of a 64-bit symbol, in bytes.
const SYMBOL: u64 = 24;

/// The stubs of a file and the functions that they call.
#[derive(Debug)]
pub struct Stubs {
    /// Sorted by address.
    entries: Box<[At]>,
    strings: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At {
    start: u64,
    /// Exclusive.
    end: u64,
    /// Offset of the called function's name in the string table.
    name: u32,
}

/// A stub with its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stub {
    start: u64,
    end: u64,
    slot: Slot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// Address of the slot.
    At(u64),
    /// Index of its relocation in `.rela.plt`.
    Number(u64),
}

impl Binary<'_> {
    /// Reads the stubs of the file. Empty if they are not supported. Takes 24 bytes per stub.
    ///
    /// # Errors
    /// There are more than `limit` stubs, or the file cannot be read.
    pub fn stubs(&self, limit: usize) -> Result<Stubs> {
        let none = || Stubs { entries: Box::default(), strings: Part { offset: 0, size: 0 } };
        let Some(table) = self.headers.dynsym.as_ref().filter(|_| self.headers.format.class == Class::Elf64)
        else {
            return Ok(none());
        };
        let mut stubs = Vec::new();
        for &(address, part) in &self.headers.stubs {
            let code = self.input.bytes(part, STUBS_LIMIT, "the stubs")?;
            match self.headers.machine {
                Arch::X86_64 => stubs.extend(of_x86_64(&code, address)),
                Arch::Aarch64 => stubs.extend(of_aarch64(&code, address)),
                Arch::Other => return Ok(none()),
            }
        }
        if stubs.len() > limit {
            return Err(self.too_many("stubs", limit));
        }
        let symbols = self.symbols_of(&stubs)?;
        let mut entries = Vec::new();
        for (stub, symbol) in stubs.iter().zip(symbols) {
            let place = symbol.filter(|&symbol| symbol > 0).map(|symbol| u64::from(symbol) * SYMBOL);
            let Some(part) = place.and_then(|at| table.entries.within(at, SYMBOL)) else { continue };
            let entry = self.input.bytes(part, SYMBOL, "the symbol table")?;
            let name = self.headers.format.u32(&entry, 0);
            entries.push(At { start: stub.start, end: stub.end, name });
        }
        entries.sort_unstable_by_key(|at| at.start);
        Ok(Stubs { entries: entries.into(), strings: table.strings })
    }

    /// Returns the symbol index of each stub, from the relocation of its slot.
    fn symbols_of(&self, stubs: &[Stub]) -> Result<Vec<Option<u32>>> {
        let mut by_slot: Vec<(u64, usize)> = Vec::new();
        let mut numbered: Vec<(u64, usize)> = Vec::new();
        for (place, stub) in stubs.iter().enumerate() {
            match stub.slot {
                Slot::At(slot) => by_slot.push((slot, place)),
                Slot::Number(number) => numbered.push((number, place)),
            }
        }
        by_slot.sort_unstable();
        numbered.sort_unstable();
        let mut symbols = vec![None; stubs.len()];
        for (at, &part) in self.headers.relocations.iter().enumerate() {
            // The relocations of stubs follow those of data, as the ABI requires.
            let is_last = at + 1 == self.headers.relocations.len();
            let mut number = 0;
            self.input.chunks(part, "the relocations", |_, piece| {
                for relocation in piece.as_chunks::<RELOCATION>().0 {
                    let read = |at| self.headers.format.word(relocation, at);
                    let (slot, symbol) = (read(0), (read(8) >> 32) as u32);
                    let mut give = |list: &[(u64, usize)], key: u64| {
                        let first = list.partition_point(|&(listed, _)| listed < key);
                        for &(_, place) in list[first..].iter().take_while(|&&(listed, _)| listed == key) {
                            symbols[place] = Some(symbol);
                        }
                    };
                    give(&by_slot, slot);
                    if is_last {
                        give(&numbered, number);
                    }
                    number += 1;
                }
                Ok(())
            })?;
        }
        Ok(symbols)
    }
}

/// Finds `[endbr64] [bnd] jmp *slot(%rip)`, or `[endbr64] push $number` in a `.plt` with a `.plt.sec`. Each stub is 16 bytes long, or 8 in
/// `.plt.got`.
fn of_x86_64(code: &[u8], address: u64) -> Vec<Stub> {
    let mut stubs = Vec::new();
    // In steps of 8 bytes, because every stub is aligned to 8 bytes.
    for at in (0..code.len()).step_by(8) {
        let rest = code.get(at..).unwrap_or_default();
        let body = rest.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(rest);
        let start = address.wrapping_add(at as u64);
        let number = |bytes: &[u8]| bytes.first_chunk().map(|&bytes| i32::from_le_bytes(bytes));
        let jump = body.strip_prefix(b"\xf2").unwrap_or(body).strip_prefix(b"\xff\x25");
        let slot = if let Some(operand) = jump {
            let length = rest.len() - operand.len() + 4;
            let next = start.wrapping_add(length as u64);
            number(operand).map(|distance| Slot::At(next.wrapping_add_signed(distance.into())))
        } else if let Some(operand) = body.strip_prefix(b"\x68").filter(|_| body.len() < rest.len()) {
            number(operand).and_then(|number| u64::try_from(number).ok()).map(Slot::Number)
        } else {
            None
        };
        if let Some(slot) = slot {
            stubs.push(Stub { start, end: start, slot });
        }
    }
    end_each(&mut stubs, address.saturating_add(code.len() as u64), 16);
    stubs
}

/// Finds `[bti c] adrp x16, page; ldr x17, [x16, #offset]`.
fn of_aarch64(code: &[u8], address: u64) -> Vec<Stub> {
    /// `bti c`
    const BTI: u32 = 0xd503_245f;
    let words: Vec<u32> = code.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
    let mut stubs = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        let &[adrp, ldr] = pair else { continue };
        let is_pair = adrp & 0x9f00_001f == 0x9000_0010 && ldr & 0xffc0_03ff == 0xf940_0211;
        // The code before the first stub loads the resolver in the same way, after a push.
        let pushes = at.checked_sub(1).and_then(|before| words.get(before)) == Some(&0xa9bf_7bf0);
        if !is_pair || pushes {
            continue;
        }
        let here = address.wrapping_add(at as u64 * 4);
        let pages = (u64::from(adrp >> 5 & 0x7_ffff) << 2) | u64::from(adrp >> 29 & 3);
        // 21 bits, signed.
        let pages = (pages << 43).cast_signed() >> 43;
        let page = (here & !0xfff).wrapping_add_signed(pages << 12);
        let slot = Slot::At(page.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8));
        let guarded = at.checked_sub(1).and_then(|before| words.get(before)) == Some(&BTI);
        let start = here.wrapping_sub(if guarded { 4 } else { 0 });
        stubs.push(Stub { start, end: start, slot });
    }
    end_each(&mut stubs, address.saturating_add(code.len() as u64), 24);
    stubs
}

/// Sets the end of each stub: the next stub or the end of the section, but at most `longest` bytes.
fn end_each(stubs: &mut [Stub], end: u64, longest: u64) {
    let mut next = end;
    for stub in stubs.iter_mut().rev() {
        stub.end = next.min(stub.start.saturating_add(longest));
        next = stub.start;
    }
}

impl Stubs {
    /// Memory per stub, in bytes.
    pub const EACH: usize = size_of::<At>();

    /// Returns the address range with the same result (end exclusive), and whether the address is in a stub. The range is that of the stub
    /// or of the gap between two stubs.
    pub fn span(&self, address: u64) -> ((u64, u64), bool) {
        let behind = self.entries.partition_point(|at| at.start <= address);
        let next = self.entries.get(behind).map_or(u64::MAX, |at| at.start);
        match self.entries[..behind].last() {
            Some(at) if address < at.end => ((at.start, at.end.min(next)), true),
            Some(at) => ((at.end, next), false),
            None => ((0, next), false),
        }
    }

    /// Returns the name of the function that the stub at an address calls, read from the file itself.
    ///
    /// # Errors
    /// The kernel's error on reading.
    pub fn name(&self, file: &dyn ReadAt, address: u64) -> std::io::Result<Option<Vec<u8>>> {
        let behind = self.entries.partition_point(|at| at.start <= address);
        let stub = self.entries[..behind].last().filter(|at| address < at.end);
        stub.map_or(Ok(None), |at| name_at(file, self.strings, at.name))
    }

    /// Returns the number of stubs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether there are no stubs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the memory usage, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stubs_of_x86_64_are_told_by_where_they_jump_to() {
        let code = [
            // Header of a lazy .plt: push; jmp to the resolver.
            &b"\xff\x35\xca\x2f\x00\x00\xff\x25\xcc\x2f\x00\x00\x0f\x1f\x40\x00"[..],
            b"\xff\x25\xca\x2f\x00\x00\x68\x00\x00\x00\x00\xe9\xe0\xff\xff\xff",
            // Variant for branch tracking (IBT).
            b"\xf3\x0f\x1e\xfa\xf2\xff\x25\x00\x01\x00\x00\x0f\x1f\x44\x00\x00",
            b"\xf3\x0f\x1e\xfa\x68\x07\x00\x00\x00\xf2\xe9\xe1\xff\xff\xff\x90",
        ];
        let stubs = of_x86_64(&code.concat(), 0x1000);
        let stub = |start, slot| Stub { start, end: start + 16, slot };
        let expected = [
            stub(0x1010, Slot::At(0x1016 + 0x2fca)),
            stub(0x1020, Slot::At(0x102b + 0x100)),
            stub(0x1030, Slot::Number(7)),
        ];
        assert_eq!(stubs, expected);
    }

    #[test]
    fn stubs_of_arm_are_told_by_what_they_load() {
        let words: [u32; 14] = [
            // stp x16, x30, [sp, #-16]!; adrp x16, +0x10000; ldr x17, [x16, #8]
            0xa9bf_7bf0,
            0x9000_0090,
            0xf940_0611,
            0x9100_2210,
            0xd61f_0220,
            0xd503_201f,
            // adrp x16, +0x10000; ldr x17, [x16, #0x18]; add; br
            0x9000_0090,
            0xf940_0e11,
            0x9100_6210,
            0xd61f_0220,
            // adrp x16, -0x1000
            0xf0ff_fff0,
            0xf940_0211,
            0x9100_0210,
            0xd61f_0220,
        ];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let stubs = of_aarch64(&code, 0x2000);
        let slots: Vec<(u64, u64, Slot)> =
            stubs.iter().map(|stub| (stub.start, stub.end, stub.slot)).collect();
        assert_eq!(slots, [(0x2018, 0x2028, Slot::At(0x12018)), (0x2028, 0x2038, Slot::At(0x1000))]);
    }

    proptest! {
        #[test]
        fn code_of_any_bytes_never_panics(code: Vec<u8>, address: u64) {
            for stubs in [of_x86_64(&code, address), of_aarch64(&code, address)] {
                prop_assert!(stubs.len() <= code.len() / 4);
            }
        }
    }
}

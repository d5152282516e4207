//! USDT probes compiled into a program (`sys/sdt.h`), as described by its ELF notes. Source: the page "UserSpaceProbeImplementation" of
//! SystemTap's wiki, which calls the format version 3.

use std::sync::Arc;

use object::Endianness;
use object::read::elf::{FileHeader, NoteIterator};

/// Note type of version 3, the only version that compilers have written since 2010.
const VERSION: u32 = 3;
/// Maximum number of USDT probes in one file.
const USDT_PROBE_LIMIT: usize = 65_536;
/// Maximum length of each of a probe's three texts, in bytes.
const TEXT_LIMIT: usize = 4096;

/// A USDT probe: a named `nop` instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsdtProbe {
    /// The provider, such as `postgresql`.
    pub provider: Arc<str>,
    /// The name, such as `query__start`.
    pub name: Arc<str>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// File offset of the semaphore, in bytes. The program prepares the arguments only if the semaphore is not 0. The kernel accepts the
    /// offset as `ref_ctr_offset`, and increments the semaphore while a probe is active (Linux 4.20). `None`: the program always prepares
    /// them.
    pub semaphore: Option<u64>,
    /// Locations of the arguments in assembler syntax: `-4@%edi 8@-8(%rbp)`.
    pub arguments: Arc<str>,
}

/// A note, with the addresses that the linker wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    /// Address of the probe.
    pub(super) address: u64,
    /// Address of `.stapsdt.base` when the note was written. A later move applies to the other addresses too.
    pub(super) base: u64,
    /// Address of the semaphore; 0 if there is none.
    pub(super) semaphore: u64,
    pub(super) provider: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) arguments: Arc<str>,
}

/// The reason why the notes of a file are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoteError {
    #[error("note {0} of .note.stapsdt is truncated")]
    Cut(usize),
    #[error("note {0} of .note.stapsdt has a missing or invalid provider, name or arguments")]
    Texts(usize),
    #[error(".note.stapsdt exceeds the limit of {USDT_PROBE_LIMIT} notes")]
    TooMany,
}

/// Parses the content of `.note.stapsdt`. Notes with another owner or version are skipped.
pub(super) fn notes<Elf: FileHeader<Endian = Endianness>>(
    bytes: &[u8],
    endian: Endianness,
) -> Result<Vec<Note>, NoteError> {
    let mut found = Vec::new();
    // The default alignment is four bytes, which these notes always have.
    let notes = NoteIterator::<Elf>::new(endian, Elf::Word::default(), bytes).into_iter().flatten();
    for (place, note) in notes.enumerate() {
        let note = note.map_err(|_| NoteError::Cut(place))?;
        if note.name() != b"stapsdt" || note.n_type(endian).0 != VERSION {
            continue;
        }
        if found.len() == USDT_PROBE_LIMIT {
            return Err(NoteError::TooMany);
        }
        let mut rest = note.desc();
        let mut word = || word(&mut rest, Elf::is_type_64_sized(), endian);
        let words = word().zip(word()).zip(word());
        let ((address, base), semaphore) = words.ok_or(NoteError::Cut(place))?;
        let texts = text(&mut rest).zip(text(&mut rest)).zip(text(&mut rest));
        let ((provider, name), arguments) = texts.ok_or(NoteError::Texts(place))?;
        found.push(Note { address, base, semaphore, provider, name, arguments });
    }
    Ok(found)
}

/// Consumes an address.
fn word(rest: &mut &[u8], wide: bool, endian: Endianness) -> Option<u64> {
    use object::Endian;
    if wide {
        rest.split_off(..8)?.first_chunk().map(|&bytes| endian.read_u64(bytes))
    } else {
        rest.split_off(..4)?.first_chunk().map(|&bytes| endian.read_u32(bytes).into())
    }
}

/// Consumes a NUL-terminated text.
fn text(rest: &mut &[u8]) -> Option<Arc<str>> {
    let end = rest.iter().take(TEXT_LIMIT + 1).position(|&byte| byte == 0)?;
    let text = rest.split_off(..=end)?;
    std::str::from_utf8(&text[..end]).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use object::elf::{FileHeader32, FileHeader64};
    use proptest::prelude::*;

    use super::*;

    type Wide = FileHeader64<Endianness>;

    /// Returns a note in the format of an assembler.
    fn written(kind: u32, owner: &[u8], descriptor: &[u8]) -> Vec<u8> {
        let padded = |bytes: &[u8]| {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            padded
        };
        let lengths = [owner.len(), descriptor.len()].map(|length| u32::try_from(length).unwrap());
        let header = [lengths[0], lengths[1], kind].map(u32::to_le_bytes).concat();
        [header, padded(owner), padded(descriptor)].concat()
    }

    fn descriptor(words: [u64; 3], texts: &str) -> Vec<u8> {
        [words.map(u64::to_le_bytes).concat(), texts.as_bytes().to_vec()].concat()
    }

    #[test]
    fn a_note_is_three_addresses_and_three_texts() {
        let note =
            written(3, b"stapsdt\0", &descriptor([0x1139, 0x2010, 0x4028], "app\0hit\0-4@%edi 8@-8(%rbp)\0"));
        let expected = Note {
            address: 0x1139,
            base: 0x2010,
            semaphore: 0x4028,
            provider: "app".into(),
            name: "hit".into(),
            arguments: "-4@%edi 8@-8(%rbp)".into(),
        };
        assert_eq!(notes::<Wide>(&note, Endianness::Little), Ok(vec![expected]));
    }

    #[test]
    fn a_file_of_32_bits_and_big_bytes_has_short_addresses_the_other_way_round() {
        let words = [1u32, 2, 3].map(u32::to_be_bytes).concat();
        let descriptor = [&words[..], b"p\0n\0\0"].concat();
        let mut note = [8u32, 17, 3].map(u32::to_be_bytes).concat();
        note.extend_from_slice(b"stapsdt\0");
        note.extend_from_slice(&descriptor);
        note.extend_from_slice(&[0; 3]);
        let found = notes::<FileHeader32<Endianness>>(&note, Endianness::Big).unwrap();
        assert_eq!((found[0].address, found[0].base, found[0].semaphore), (1, 2, 3));
        assert_eq!((&*found[0].name, &*found[0].arguments), ("n", ""));
    }

    #[test]
    fn notes_of_others_and_of_other_versions_are_passed_over() {
        let own = descriptor([1, 0, 0], "p\0n\0\0");
        let bytes =
            [written(1, b"GNU\0", b"abcd"), written(2, b"stapsdt\0", b""), written(3, b"stapsdt\0", &own)];
        assert_eq!(notes::<Wide>(&bytes.concat(), Endianness::Little).unwrap().len(), 1);
    }

    #[test]
    fn a_broken_note_is_named_by_its_place() {
        let good = written(3, b"stapsdt\0", &descriptor([1, 0, 0], "p\0n\0\0"));
        for (broken, expected) in [
            (written(3, b"stapsdt\0", &[0; 23]), NoteError::Cut(1)),
            (written(3, b"stapsdt\0", &descriptor([1, 0, 0], "p\0n")), NoteError::Texts(1)),
            (written(3, b"stapsdt\0", &descriptor([1, 0, 0], "p\0n\0arguments")), NoteError::Texts(1)),
            (vec![8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0], NoteError::Cut(1)),
            (vec![1, 2, 3], NoteError::Cut(1)),
        ] {
            let bytes = [good.clone(), broken].concat();
            assert_eq!(notes::<Wide>(&bytes, Endianness::Little), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn no_notes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let wide = notes::<Wide>(&bytes, Endianness::Little).unwrap_or_default();
            let narrow = notes::<FileHeader32<Endianness>>(&bytes, Endianness::Big).unwrap_or_default();
            prop_assert!(wide.len().max(narrow.len()) <= bytes.len() / 12);
        }

        #[test]
        fn what_is_written_is_read(
            words in any::<[u64; 3]>(), provider in "[a-z_]{1,20}", name in "[a-z_]{1,20}", arguments in "[-a-z0-9@%()$, ]{0,60}"
        ) {
            let note = written(3, b"stapsdt\0", &descriptor(words, &format!("{provider}\0{name}\0{arguments}\0")));
            let found = notes::<Wide>(&note, Endianness::Little).unwrap();
            prop_assert_eq!([found[0].address, found[0].base, found[0].semaphore], words);
            prop_assert_eq!([&*found[0].provider, &*found[0].name, &*found[0].arguments], [&*provider, &name, &arguments]);
        }
    }
}

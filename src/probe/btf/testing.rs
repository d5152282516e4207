//! Writer for BTF of an artificial kernel.

use std::sync::Arc;

use super::types::Kind;
use super::{Btf, HEADER, MAGIC};

/// Writes consecutive type records.
#[derive(Debug, Default)]
pub(super) struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    last: u32,
    /// Size of the base's strings, for a module.
    before: u32,
}

/// `BTF_INT_SIGNED` in the encoding of an integer.
pub(super) const SIGNED: u32 = 1 << 24;

impl Writer {
    pub(super) fn kernel() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    pub(super) fn module(base: &Btf) -> Self {
        let last = u32::try_from(base.first_id() + base.records.len() - 1).unwrap();
        Self { last, before: u32::try_from(base.strings_end()).unwrap(), ..Self::default() }
    }

    pub(super) fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.before + u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    /// Writes a record. `parts` is the number of parts in `words`; its top bit is the flag.
    pub(super) fn record(
        &mut self,
        kind: Kind,
        name: &str,
        parts: u32,
        size_or_type: u32,
        words: &[u32],
    ) -> u32 {
        let name = self.string(name);
        let head = [name, (kind as u32) << 24 | parts, size_or_type];
        self.types.extend(head.iter().chain(words).flat_map(|word| word.to_ne_bytes()));
        self.last += 1;
        self.last
    }

    pub(super) fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.record(Kind::Int, name, 0, size, &[encoding | (size * 8)])
    }

    /// Writes a pointer, a qualifier or a tag.
    pub(super) fn of(&mut self, kind: Kind, name: &str, of: u32) -> u32 {
        self.record(kind, name, 0, of, &[])
    }

    pub(super) fn pointer(&mut self, to: u32) -> u32 {
        self.of(Kind::Ptr, "", to)
    }

    pub(super) fn array(&mut self, of: u32, elements: u32) -> u32 {
        self.record(Kind::Array, "", 0, 0, &[of, 1, elements])
    }

    /// Writes a structure: name, type and first bit of each member.
    pub(super) fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let words: Vec<u32> =
            members.iter().flat_map(|&(name, of, bit)| [self.string(name), of, bit]).collect();
        self.record(Kind::Struct, name, u32::try_from(members.len()).unwrap(), size, &words)
    }

    /// Writes a structure with bit fields: name, type, first bit and, for bit fields, number of bits.
    pub(super) fn packed(&mut self, name: &str, size: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let mut words = Vec::new();
        for &(name, of, bit, bits) in members {
            words.extend([self.string(name), of, bits << 24 | bit]);
        }
        self.record(Kind::Struct, name, 1 << 31 | u32::try_from(members.len()).unwrap(), size, &words)
    }

    pub(super) fn function(&mut self, name: &str, returns: u32, parameters: &[(&str, u32)]) -> u32 {
        let words: Vec<u32> = parameters.iter().flat_map(|&(name, of)| [self.string(name), of]).collect();
        let parts = u32::try_from(parameters.len()).unwrap();
        let prototype = self.record(Kind::FuncProto, "", parts, returns, &words);
        self.of(Kind::Func, name, prototype)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let types = len(&self.types);
        let words = [u32::try_from(HEADER).unwrap(), 0, types, types, len(&self.strings)];
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(self.types.iter().chain(&self.strings));
        bytes
    }

    pub(super) fn btf(&self) -> Btf {
        Btf::parse(self.bytes(), None).unwrap()
    }

    pub(super) fn on(&self, base: &Arc<Btf>) -> Btf {
        Btf::parse(self.bytes(), Some(Arc::clone(base))).unwrap()
    }
}

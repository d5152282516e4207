//! Type records: a common header of 12 bytes, followed by data that depends on the kind.

use super::{Btf, BtfError, Result};
use crate::named_enum::named_enum;

/// Size of the record header in bytes: name, kind and length, size or type.
pub(super) const HEADER: usize = 12;
/// Maximum number of typedefs, qualifiers and tags before a type. The kernel's limit is 32.
const DEPTH_LIMIT: usize = 32;

named_enum! {
    /// Kind of a type (`BTF_KIND_*`), in the order of the numbers, with its keyword in C.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Kind {
        Void = "void",
        Int = "",
        Ptr = "*",
        Array = "[]",
        Struct = "struct",
        Union = "union",
        Enum = "enum",
        Fwd = "",
        Typedef = "typedef",
        Volatile = "volatile",
        Const = "const",
        Restrict = "restrict",
        Func = "",
        FuncProto = "()",
        Var = "",
        DataSec = "",
        Float = "",
        DeclTag = "",
        TypeTag = "",
        Enum64 = "enum",
    }
}

impl Kind {
    fn of(info: u32) -> Option<Self> {
        Self::ALL.get((info >> 24 & 0x7f) as usize).copied()
    }
}

/// Returns the word at this index of a record, from 0. [`records`](super::records) has validated the lengths of records.
pub(super) fn word(record: &[u8], place: usize) -> u32 {
    let bytes = place.checked_mul(4).and_then(|at| record.get(at..)).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Returns the number of parts (members, parameters, values) of a record. The upper byte is reserved, and zero in current kernels.
fn parts(info: u32) -> usize {
    (info & 0x00ff_ffff) as usize
}

/// Returns the size of the record, in bytes. `None` for an unknown kind, and for `void`, which has no record.
pub(super) fn size(record: &[u8]) -> Option<usize> {
    let info = word(record, 1);
    let parts = parts(info);
    let behind = match Kind::of(info)? {
        Kind::Void => return None,
        Kind::Ptr | Kind::Fwd | Kind::Typedef | Kind::Volatile | Kind::Const => 0,
        Kind::Restrict | Kind::Func | Kind::Float | Kind::TypeTag => 0,
        Kind::Int | Kind::Var | Kind::DeclTag => 4,
        Kind::Array => 12,
        Kind::Enum | Kind::FuncProto => 8 * parts,
        Kind::Struct | Kind::Union | Kind::DataSec | Kind::Enum64 => 12 * parts,
    };
    Some(HEADER + behind)
}

/// A type: its record, and the file that contains it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type<'b> {
    btf: &'b Btf,
    /// File offset of the record, for messages.
    at: usize,
    /// The record and the data after it.
    record: &'b [u8],
    kind: Kind,
}

/// A member of a structure or a union.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'b> {
    owner: Type<'b>,
    name: u32,
    kind: u32,
    /// Offset in the structure, in bits.
    pub(super) offset: u64,
    /// Number of bits of a bit field.
    pub(super) bits: Option<u64>,
}

impl<'b> Member<'b> {
    pub(super) fn kind(&self) -> Result<Type<'b>> {
        self.owner.btf.get(self.kind)
    }

    /// Reports whether the member is an anonymous structure or union, whose members are accessed as members of the outer one.
    pub(super) fn is_anonymous(&self) -> bool {
        self.owner.btf.is_string(self.name, "")
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.owner.btf.is_string(self.name, name)
    }

    pub(super) fn name(&self) -> Result<&'b str> {
        self.owner.btf.string(self.name)
    }
}

impl<'b> Type<'b> {
    pub(super) fn new(btf: &'b Btf, at: usize, record: &'b [u8]) -> Self {
        let kind = Kind::of(word(record, 1)).unwrap_or(Kind::Void);
        Self { btf, at, record, kind }
    }

    pub(super) fn void(btf: &'b Btf) -> Self {
        Self { btf, at: 0, record: &[], kind: Kind::Void }
    }

    pub(super) fn btf(&self) -> &'b Btf {
        self.btf
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.btf.is_string(word(self.record, 0), name)
    }

    pub(super) fn name(&self) -> Result<&'b str> {
        self.btf.string(word(self.record, 0))
    }

    /// Returns the flag bit of a record: a structure has bit fields, an enumeration has negative values, a forward declaration is that of a
    /// union.
    pub(super) fn flag(&self) -> bool {
        word(self.record, 1) >> 31 == 1
    }

    /// Returns the number of the type that this type points to, aliases, qualifies, returns or is an array of.
    pub(super) fn refers_to(&self) -> u32 {
        word(self.record, if self.kind == Kind::Array { 3 } else { 2 })
    }

    /// Returns that type.
    pub(super) fn target(&self) -> Result<Self> {
        self.btf.get(self.refers_to())
    }

    /// Returns the number of array elements.
    pub(super) fn elements(&self) -> u32 {
        word(self.record, 5)
    }

    /// Reports whether an integer or enumeration is signed. Of the encoding bits `SIGNED`, `CHAR` and `BOOL`, only the first counts.
    pub(super) fn is_signed(&self) -> bool {
        match self.kind {
            Kind::Int => word(self.record, 3) >> 24 & 1 == 1,
            Kind::Enum | Kind::Enum64 => self.flag(),
            _ => false,
        }
    }

    /// Returns the bit offset and width of an integer. Before Linux 4.20, this encodes bit fields.
    fn bits_of_integer(&self) -> (u64, u64) {
        let encoding = word(self.record, 3);
        (u64::from(encoding >> 16 & 0xff), u64::from(encoding & 0xff))
    }

    /// Returns the members of a structure or union. Empty for other kinds.
    pub(super) fn members(self) -> impl Iterator<Item = Member<'b>> {
        let of_members = matches!(self.kind, Kind::Struct | Kind::Union);
        let count = if of_members { parts(word(self.record, 1)) } else { 0 };
        (0..count).map(move |member| {
            let at = 3 + 3 * member;
            let offset = word(self.record, at + 2);
            let (offset, bits) = if self.flag() { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            let bits = (bits > 0).then_some(u64::from(bits));
            let (name, kind) = (word(self.record, at), word(self.record, at + 1));
            Member { owner: self, name, kind, offset: offset.into(), bits }
        })
    }

    /// Returns the parameters of a prototype, each with the offset of its name and the number of its type.
    pub(super) fn parameters(self) -> impl Iterator<Item = (u32, u32)> {
        let count = if self.kind == Kind::FuncProto { parts(word(self.record, 1)) } else { 0 };
        (0..count).map(move |parameter| {
            let at = 3 + 2 * parameter;
            (word(self.record, at), word(self.record, at + 1))
        })
    }

    /// Returns the type without typedefs, qualifiers and tags.
    pub(super) fn plain(self) -> Result<Self> {
        let mut of = self;
        for _ in 0..DEPTH_LIMIT {
            match of.kind {
                Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                    of = of.target()?;
                }
                _ => return Ok(of),
            }
        }
        Err(self.circle())
    }

    /// Reports whether the type has this tag (`user`, `percpu`). Compilers emit tags since 2022.
    pub(super) fn is_tagged(self, tag: &str) -> Result<bool> {
        let mut of = self;
        for _ in 0..DEPTH_LIMIT {
            match of.kind {
                Kind::TypeTag if of.is_named(tag) => return Ok(true),
                Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => of = of.target()?,
                _ => return Ok(false),
            }
        }
        Err(self.circle())
    }

    /// Returns the size of a value, in bytes. `None` for types without values.
    pub(super) fn size(self) -> Result<Option<u64>> {
        let mut of = self.plain()?;
        let mut times = 1u64;
        for _ in 0..DEPTH_LIMIT {
            match of.kind {
                Kind::Array => {
                    times = match times.checked_mul(of.elements().into()) {
                        Some(times) => times,
                        None => return Ok(None),
                    };
                    of = of.target()?.plain()?;
                }
                // Kernels with type-based probes have pointers of 8 bytes.
                Kind::Ptr => return Ok(times.checked_mul(8)),
                Kind::Int | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Float => {
                    return Ok(times.checked_mul(word(of.record, 2).into()));
                }
                _ => return Ok(None),
            }
        }
        Err(self.circle())
    }

    pub(super) fn too_large(&self) -> BtfError {
        BtfError::broken(self.at, "a structure has too many members")
    }

    pub(super) fn circle(&self) -> BtfError {
        BtfError::broken(self.at, "types refer to each other in a cycle")
    }
}

impl Member<'_> {
    /// Returns the bit offset in the structure and the width, if the member is a bit field.
    pub(super) fn field(&self) -> Result<Option<(u64, u64)>> {
        if let Some(bits) = self.bits {
            return Ok(Some((self.offset, bits)));
        }
        let kind = self.kind()?.plain()?;
        if kind.kind != Kind::Int {
            return Ok(None);
        }
        let (offset, bits) = kind.bits_of_integer();
        let whole = u64::from(word(kind.record, 2)) * 8;
        Ok((bits > 0 && bits < whole).then_some((self.offset + offset, bits)))
    }
}

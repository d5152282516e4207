//! The records of types: 12 bytes that all have, and what follows them by kind.

use super::{Btf, BtfError, Result};

/// What every record begins with, in bytes: name, kind and length, size or type.
pub(super) const HEADER: usize = 12;
/// How many names, qualifiers and tags may stand in front of a type. The kernel itself stops at 32.
const DEPTH_LIMIT: usize = 32;

/// What a type is (`BTF_KIND_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Void,
    Int,
    Ptr,
    Array,
    Struct,
    Union,
    Enum,
    Fwd,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Func,
    FuncProto,
    Var,
    DataSec,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
}

impl Kind {
    /// By their numbers.
    const ALL: [Self; 20] = {
        use Kind::{
            Array, Const, DataSec, DeclTag, Enum, Enum64, Float, Func, FuncProto, Fwd, Int, Ptr, Restrict,
            Struct, TypeTag, Typedef, Union, Var, Void, Volatile,
        };
        [
            Void, Int, Ptr, Array, Struct, Union, Enum, Fwd, Typedef, Volatile, Const, Restrict, Func,
            FuncProto, Var, DataSec, Float, DeclTag, TypeTag, Enum64,
        ]
    };

    fn of(info: u32) -> Option<Self> {
        Self::ALL.get((info >> 24 & 0x7f) as usize).copied()
    }
}

/// The word of this place in a record, counted from 0. Records are as long as their kind says, which
/// [`records`](super::records) has checked.
pub(super) fn word(record: &[u8], place: usize) -> u32 {
    let bytes = place.checked_mul(4).and_then(|at| record.get(at..)).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// How many parts (members, parameters, values) a record has. The upper byte is reserved in the kernels of today, and
/// zero.
fn parts(info: u32) -> usize {
    (info & 0x00ff_ffff) as usize
}

/// How long the record is that begins here, in bytes; `None` if it is of a kind that is not known, or is `void`, which
/// has no record.
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

/// A type: its record, and the file that the numbers in it are of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type<'b> {
    btf: &'b Btf,
    /// Where in the file the record is, for messages.
    at: usize,
    /// The record and what follows it.
    record: &'b [u8],
    kind: Kind,
}

/// A member of a structure or a union.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'b> {
    owner: Type<'b>,
    name: u32,
    kind: u32,
    /// Where it is in the structure, in bits.
    pub(super) offset: u64,
    /// How many bits it has, if it is a bit field.
    pub(super) bits: Option<u64>,
}

impl<'b> Member<'b> {
    pub(super) fn kind(&self) -> Result<Type<'b>> {
        self.owner.btf.get(self.kind)
    }

    /// Whether it is a structure or union within the structure whose members are named as those of the outer one.
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

    /// What the top bit of a record says: a structure has bit fields, an enumeration negative values, a declaration is
    /// that of a union.
    pub(super) fn flag(&self) -> bool {
        word(self.record, 1) >> 31 == 1
    }

    /// The number of the type that this one points to, names, qualifies, returns or is an array of.
    pub(super) fn refers_to(&self) -> u32 {
        word(self.record, if self.kind == Kind::Array { 3 } else { 2 })
    }

    /// That type.
    pub(super) fn target(&self) -> Result<Self> {
        self.btf.get(self.refers_to())
    }

    /// How many elements an array has.
    pub(super) fn elements(&self) -> u32 {
        word(self.record, 5)
    }

    /// What `SIGNED`, `CHAR` and `BOOL` are in the encoding of an integer: whether it has a sign.
    pub(super) fn is_signed(&self) -> bool {
        match self.kind {
            Kind::Int => word(self.record, 3) >> 24 & 1 == 1,
            Kind::Enum | Kind::Enum64 => self.flag(),
            _ => false,
        }
    }

    /// Where the bits of an integer are, and how many: before Linux 4.20, this is what makes it a bit field.
    fn bits_of_integer(&self) -> (u64, u64) {
        let encoding = word(self.record, 3);
        (u64::from(encoding >> 16 & 0xff), u64::from(encoding & 0xff))
    }

    /// The members of a structure or union; of others, none.
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

    /// The parameters of a prototype, each with the offset of its name and the number of its type.
    pub(super) fn parameters(self) -> impl Iterator<Item = (u32, u32)> {
        let count = if self.kind == Kind::FuncProto { parts(word(self.record, 1)) } else { 0 };
        (0..count).map(move |parameter| {
            let at = 3 + 2 * parameter;
            (word(self.record, at), word(self.record, at + 1))
        })
    }

    /// Without the names, qualifiers and tags in front of it.
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

    /// Whether one of the tags in front of it is this one (`user`, `percpu`), which compilers keep since 2022.
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

    /// How many bytes a value takes; `None` for what has no values.
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
                // The kernels that have probes by type have pointers of 8 bytes.
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
        BtfError::broken(self.at, "a structure has more members than any of the kernel")
    }

    pub(super) fn circle(&self) -> BtfError {
        BtfError::broken(self.at, "types refer to each other in a circle")
    }
}

impl Member<'_> {
    /// The bits that it is in, from the beginning of its structure, if it is a bit field.
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

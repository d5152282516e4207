//! Resolution of source variables to fetches of the kernel: `sk->__sk_common.skc_dport` becomes `+12($arg1):u16`.

use std::fmt::Write as _;
use std::sync::Arc;

use super::types::{Kind, Member, Type};
use super::{Btf, BtfError, Prototype, Result, text};
use crate::event::nearest;
use crate::probe::argument::{Arch, Argument, Element, Fetch, FetchType, Step, Variable, Width};

/// Maximum number of members that are examined per variable, including those of anonymous structures. The kernel's largest structure has
/// some hundred.
pub(super) const MEMBER_LIMIT: usize = 1 << 18;
/// Maximum nesting depth of anonymous structures.
pub(super) const DEPTH_LIMIT: usize = 16;
/// Maximum number of members in a message.
const SHOWN: usize = 8;
/// Name of a function's return value.
pub(super) const RETURN: &str = "$retval";

/// Replaces the variable of an argument by a fetch of the kernel. Without an explicit type, the argument gets the type of the variable.
/// With `returns`, the probe is at the function's return, where only `$retval` is available.
///
/// | variable | becomes |
/// |---|---|
/// | integer, `bool`, enumeration | `u8` to `s64` |
/// | bit field | `b<width>@<offset>/<container>`, without a sign |
/// | pointer | `x64`; `symbol`, if it is one to a function |
/// | `char *`, `const unsigned char *`, `char[16]` | `string` |
/// | array of integers | an array, if it has at most 64 elements |
///
/// An explicit type reinterprets the value, even a structure: `:string` the target of a pointer, `:x32[4]` any 16 bytes. `.` and `->` are
/// equivalent, because the type determines the access. Numbers are fetched in memory order: a `__be16` of a little-endian machine has its
/// bytes swapped, because no fetch can swap them back.
///
/// # Errors
/// [`BtfError::NoFunction`], [`BtfError::NoParameter`] and [`BtfError::NoMember`] with similar names; [`BtfError::Unfit`] for values that
/// the kernel cannot fetch.
pub fn resolve(btf: &Btf, function: &str, returns: bool, argument: &Argument) -> Result<Argument> {
    let place = |variable: &Variable| Place::of(btf, function, returns, variable);
    let (fetch, kind) = match &argument.fetch {
        Fetch::Variable(variable) => {
            let (fetch, kind) = place(variable)?.value(argument.kind)?;
            (fetch, Some(kind))
        }
        fetch => (dereferenced(fetch, &place)?, argument.kind),
    };
    Ok(Argument { fetch, kind, ..argument.clone() })
}

/// Resolves a fetch that contains a variable: `+8(sk)`.
fn dereferenced<'b>(fetch: &Fetch, place: &impl Fn(&Variable) -> Result<Place<'b>>) -> Result<Fetch> {
    let Fetch::Deref { user, offset, of } = fetch else { return Ok(fetch.clone()) };
    let (of, behind) = match &**of {
        Fetch::Variable(variable) => {
            let address = place(variable)?.address()?;
            (address.of, address.offset)
        }
        of => (dereferenced(of, place)?, 0),
    };
    Ok(Fetch::Deref { user: *user, offset: offset.saturating_add(behind), of: Box::new(of) })
}

/// The address at an offset in bytes from the value of a fetch.
struct Address {
    of: Fetch,
    offset: i64,
    /// Whether it is user memory.
    user: bool,
}

impl Address {
    fn fetch(self) -> Fetch {
        Fetch::Deref { user: self.user, offset: self.offset, of: Box::new(self.of) }
    }
}

/// Origin of bit offsets.
#[derive(Clone)]
enum Origin {
    /// The lowest bit of a register.
    Word(Fetch),
    /// An address.
    Memory { of: Fetch, user: bool },
}

/// The value of a variable: its location and its type.
#[derive(Clone)]
pub(super) struct Place<'b> {
    pub(super) kind: Type<'b>,
    origin: Origin,
    /// Offset of the first bit from the origin.
    bit: u64,
    /// Number of bits of a bit field.
    field: Option<u64>,
    /// The variable, up to this value.
    path: String,
}

impl<'b> Place<'b> {
    pub(super) fn of(btf: &'b Btf, function: &str, returns: bool, variable: &Variable) -> Result<Self> {
        let function = btf.find(function)?;
        let path = variable.base.to_string();
        let unfit = |why: &str| Err(BtfError::Unfit { variable: path.as_str().into(), why: why.to_owned() });
        let (kind, fetch) = match (&*variable.base == RETURN, returns) {
            (true, true) => (function.target()?.target()?, Fetch::Return),
            (true, false) => {
                return unfit("not available at the function's entry; probe its return");
            }
            (false, true) => return unfit("not available at the function's return; use $retval"),
            (false, false) => parameter(function, &variable.base, Arch::HOST)?,
        };
        if kind.plain()?.size()?.is_some_and(|size| size > 8) {
            return unfit(&format!(
                "{} is passed by value in more than one register; use the registers",
                text::of(kind)?
            ));
        }
        let mut place = Self { kind, origin: Origin::Word(fetch), bit: 0, field: None, path };
        for step in &variable.path {
            place = match step {
                Step::Member { name, .. } => place.member(name)?,
                Step::Index(index) => place.element(*index)?,
            };
        }
        Ok(place)
    }

    fn unfit<T>(&self, why: impl Into<String>) -> Result<T> {
        Err(BtfError::Unfit { variable: self.path.as_str().into(), why: why.into() })
    }

    /// Returns the target of a pointer, or the value itself if it is not a pointer.
    pub(super) fn follow(self) -> Result<Self> {
        let plain = self.kind.plain()?;
        if plain.kind() != Kind::Ptr {
            return Ok(self);
        }
        let kind = plain.target()?;
        if kind.is_tagged("percpu")? {
            return self.unfit("points to per-CPU data, which a probe cannot follow");
        }
        let origin = Origin::Memory { of: self.word()?, user: kind.is_tagged("user")? };
        Ok(Self { kind, origin, bit: 0, ..self })
    }

    fn member(self, name: &str) -> Result<Self> {
        let place = self.follow()?;
        let of = place.kind.plain()?;
        match of.kind() {
            Kind::Struct | Kind::Union => {}
            Kind::Fwd => return place.unfit(format!("the members of {} are unknown", text::of(of)?)),
            _ => return place.unfit(format!("{} has no members", text::of(place.kind)?)),
        }
        let mut budget = MEMBER_LIMIT;
        let Some((behind, member)) = find(of, name, DEPTH_LIMIT, &mut budget)? else {
            let names = members(of);
            let near = nearest(name, names.iter().copied()).map(Into::into);
            let members = names.into_iter().take(SHOWN).map(Into::into).collect();
            return Err(BtfError::NoMember { name: name.into(), of: text::of(of)?.into(), near, members });
        };
        place.at(behind, &member)
    }

    /// Returns a member of this structure, or of an anonymous structure that begins `behind` bits into it.
    pub(super) fn at(self, behind: u64, member: &Member<'b>) -> Result<Self> {
        let (offset, field) =
            member.field()?.map_or((member.offset, None), |(offset, bits)| (offset, Some(bits)));
        let bit = self.bit.saturating_add(behind).saturating_add(offset);
        let path = format!("{}.{}", self.path, member.name()?);
        Ok(Self { kind: member.kind()?, origin: self.origin, bit, field, path })
    }

    fn element(self, index: u32) -> Result<Self> {
        let plain = self.kind.plain()?;
        let mut place = match plain.kind() {
            // An array of one element at the end of a structure has a variable length.
            Kind::Array if plain.elements() > 1 && index >= plain.elements() => {
                return self.unfit(format!("has only {} elements", plain.elements()));
            }
            Kind::Array => Self { kind: plain.target()?, ..self },
            Kind::Ptr => self.follow()?,
            _ => return self.unfit(format!("{} has no elements", text::of(self.kind)?)),
        };
        let Some(size) = place.kind.size()? else {
            return place.unfit(format!("the size of {} is unknown", text::of(place.kind)?));
        };
        place.bit = place.bit.saturating_add(size.saturating_mul(8).saturating_mul(index.into()));
        write!(place.path, "[{index}]").unwrap_or_default();
        Ok(place)
    }

    /// Returns the memory address of the value.
    fn memory(&self) -> Option<Address> {
        match &self.origin {
            // An eighth of a `u64` fits into an `i64`.
            Origin::Memory { of, user } => {
                Some(Address { of: of.clone(), offset: (self.bit / 8) as i64, user: *user })
            }
            Origin::Word(_) => None,
        }
    }

    /// Returns a fetch of the value from its first byte on, for any type.
    fn word(&self) -> Result<Fetch> {
        match (&self.origin, self.memory()) {
            _ if self.field.is_some() => self.unfit("is a bit field; remove the type"),
            (_, Some(memory)) => Ok(memory.fetch()),
            (Origin::Word(of), None) if self.bit == 0 => Ok(of.clone()),
            (Origin::Word(of), None) => self.unfit(format!("is part of {of}; remove the type")),
            (Origin::Memory { .. }, None) => self.unfit("has no location"),
        }
    }

    /// Returns the target address of a pointer, or the address of an array or a structure.
    fn address(self) -> Result<Address> {
        let plain = self.kind.plain()?;
        let is_word = plain.kind() == Kind::Int && plain.size()? == Some(8);
        match (plain.kind(), self.memory()) {
            (Kind::Ptr, _) => {
                let user = plain.target()?.is_tagged("user")?;
                Ok(Address { of: self.word()?, offset: 0, user })
            }
            _ if is_word => Ok(Address { of: self.word()?, offset: 0, user: false }),
            (Kind::Array | Kind::Struct | Kind::Union, Some(memory)) => Ok(memory),
            _ => self.unfit(format!("{} is not an address", text::of(self.kind)?)),
        }
    }

    /// Returns the fetch of the value and its type.
    fn value(self, wanted: Option<FetchType>) -> Result<(Fetch, FetchType)> {
        let Some(wanted) = wanted else { return self.natural() };
        let is_pointer = self.kind.plain()?.kind() == Kind::Ptr;
        let fetch = match (wanted.element, wanted.count, self.memory()) {
            (Element::String | Element::UserString, None, _) => self.address()?.fetch(),
            (_, Some(_), Some(memory)) if !is_pointer => memory.fetch(),
            (_, Some(_), _) => self.address()?.fetch(),
            (_, None, _) => self.word()?,
        };
        Ok((fetch, wanted))
    }

    /// Returns the fetch of the value with its own type.
    pub(super) fn natural(self) -> Result<(Fetch, FetchType)> {
        if let Some(bits) = self.field {
            return self.bits(bits);
        }
        let plain = self.kind.plain()?;
        match plain.kind() {
            Kind::Int | Kind::Enum | Kind::Enum64 => self.number(plain),
            Kind::Ptr => {
                let target = plain.target()?;
                let element = match target.plain()?.kind() {
                    _ if is_text(target, true)? => {
                        return Ok((self.address()?.fetch(), Element::String.into()));
                    }
                    Kind::FuncProto => Element::Symbol,
                    _ => Element::Hex(Width::W64),
                };
                Ok((self.word()?, element.into()))
            }
            Kind::Array => self.array(plain),
            Kind::Struct | Kind::Union => {
                let mut some = members(plain);
                some.truncate(SHOWN);
                self.unfit(format!(
                    "is a {}; specify a member, such as {}",
                    text::of(plain)?,
                    some.join(", ")
                ))
            }
            Kind::Void => self.unfit("the function returns void"),
            _ => self.unfit(format!("probes do not support the type {}", text::of(self.kind)?)),
        }
    }

    fn number(self, plain: Type<'b>) -> Result<(Fetch, FetchType)> {
        let size = plain.size()?.unwrap_or_default();
        match (width(plain)?, &self.origin) {
            (Some(_), Origin::Word(_)) if self.bit > 0 => self.bits(size * 8),
            (Some(element), _) => Ok((self.word()?, element.into())),
            (None, _) => self.unfit(format!(
                "probes do not support values of {size} bytes; specify a type such as :x64[2]"
            )),
        }
    }

    fn array(self, plain: Type<'b>) -> Result<(Fetch, FetchType)> {
        let element = plain.target()?;
        let Some(memory) = self.memory() else {
            return self.unfit("is an array in a register; specify an element, such as [0]");
        };
        if is_text(element, false)? {
            return Ok((memory.fetch(), Element::String.into()));
        }
        match (width(element.plain()?)?, plain.elements()) {
            (Some(element), count @ 1..=64) => {
                Ok((memory.fetch(), FetchType { element, count: u8::try_from(count).ok() }))
            }
            (_, count) => self.unfit(format!(
                "is an array of {count} {}; specify an element, such as [0]",
                text::of(element)?
            )),
        }
    }

    /// Returns a bit field, in the smallest aligned integer that contains it.
    fn bits(self, bits: u64) -> Result<(Fetch, FetchType)> {
        let in_word = self.memory().is_none();
        let holds = |container: &Width| {
            let size = u64::from(container.bits());
            self.bit % size + bits <= size && (!in_word || *container == Width::W64)
        };
        let Some(container) = Width::ALL.into_iter().find(holds) else {
            return self.unfit(format!("probes do not support {bits} bits across two words"));
        };
        let size = u64::from(container.bits());
        // Below 64, because a container holds them.
        let (width, offset) = (bits as u8, (self.bit % size) as u8);
        let fetch = Self { bit: self.bit - self.bit % size, field: None, ..self }.word()?;
        Ok((fetch, Element::Bits { width, offset, container }.into()))
    }
}

/// Returns the integer type for a value of this type, whose typedefs and qualifiers are already removed.
fn width(plain: Type<'_>) -> Result<Option<Element>> {
    if !matches!(plain.kind(), Kind::Int | Kind::Enum | Kind::Enum64) {
        return Ok(None);
    }
    let width = plain.size()?.and_then(Width::of_bytes);
    Ok(width.map(|width| Element::integer(width, plain.is_signed())))
}

/// Reports whether a pointer target or array element is text: `char`, and for pointers also `const unsigned char`, which the kernel uses
/// for file names. `u8` is a typedef of the same type, but not text.
fn is_text(of: Type<'_>, pointer: bool) -> Result<bool> {
    let (mut of, mut constant) = (of, false);
    while matches!(of.kind(), Kind::Const | Kind::Volatile | Kind::TypeTag) {
        // `plain` follows the same references, and fails on a cycle.
        of.plain()?;
        constant |= of.kind() == Kind::Const;
        of = of.target()?;
    }
    Ok(of.kind() == Kind::Int && (of.is_named("char") || pointer && constant && of.is_named("unsigned char")))
}

/// Returns the member of this name, and the bit offset of its structure. Anonymous structures are searched too.
fn find<'b>(of: Type<'b>, name: &str, depth: usize, budget: &mut usize) -> Result<Option<(u64, Member<'b>)>> {
    for member in of.members() {
        let Some(left) = budget.checked_sub(1) else { return Err(of.too_large()) };
        *budget = left;
        if !member.is_anonymous() {
            if member.is_named(name) {
                return Ok(Some((0, member)));
            }
            continue;
        }
        let inner = member.kind()?.plain()?;
        let depth = depth.checked_sub(1).ok_or_else(|| of.circle())?;
        if let Some((behind, found)) = find(inner, name, depth, budget)? {
            return Ok(Some((behind.saturating_add(member.offset), found)));
        }
    }
    Ok(None)
}

/// Returns the member names of a structure and of its anonymous structures, as far as they are readable.
fn members(of: Type<'_>) -> Vec<&str> {
    let mut names = Vec::new();
    let mut open = vec![of];
    let mut budget = MEMBER_LIMIT;
    while let Some(of) = open.pop() {
        for member in of.members() {
            let Some(left) = budget.checked_sub(1) else { return names };
            budget = left;
            match member.kind().and_then(Type::plain) {
                Ok(inner) if member.is_anonymous() => open.push(inner),
                _ => names.extend(member.name()),
            }
        }
    }
    names
}

/// Returns the type of a parameter, and the register in which it is passed. `$arg3` is the third argument register, which is not always the
/// third parameter: structures passed by value take zero, one or two registers.
pub(super) fn parameter<'b>(function: Type<'b>, name: &str, arch: Arch) -> Result<(Type<'b>, Fetch)> {
    let prototype = function.target()?;
    let registers = match arch {
        Arch::X86_64 => 6,
        Arch::Aarch64 => 8,
        // The value for s390, the lowest.
        Arch::Other => 5,
    };
    let mut next: u8 = 1;
    for (offset, kind) in prototype.parameters() {
        let kind = prototype.btf().get(kind)?;
        let plain = kind.plain()?;
        let whole = plain.size()?.unwrap_or(8);
        let takes = match whole {
            0 => 0,
            1..=8 => 1,
            9..=16 => 2,
            // The value is copied to the stack. arm64 passes the address of the copy.
            _ => u8::from(arch != Arch::X86_64),
        };
        let even = arch == Arch::Aarch64 && whole == 16 && plain.kind() == Kind::Int;
        let first = next + u8::from(even && next.is_multiple_of(2));
        let fits = first + takes <= registers + 1;
        if !name.is_empty() && prototype.btf().is_string(offset, name) {
            let variable = Arc::from(name);
            return match takes {
                1 if fits && whole <= 8 => Ok((kind, Fetch::Argument(first))),
                1 if !fits => Err(BtfError::Unfit { variable, why: on_stack(registers) }),
                _ => {
                    let why = format!("{} is passed by value, but not in one register", text::of(kind)?);
                    Err(BtfError::Unfit { variable, why })
                }
            };
        }
        next = match (fits, arch) {
            (true, _) => first + takes,
            // A value that does not fit goes to the stack. On x86-64, smaller values after it can still use the register.
            (false, Arch::X86_64) => next,
            (false, _) => registers + 1,
        };
    }
    let prototype = Prototype::of(function)?;
    let near = nearest(name, prototype.parameters.iter().map(|parameter| parameter.name)).map(Into::into);
    Err(BtfError::NoParameter { name: name.into(), prototype: prototype.to_string().into(), near })
}

fn on_stack(registers: u8) -> String {
    format!("is passed on the stack, because only {registers} arguments have registers")
}

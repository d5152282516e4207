//! The kernel's own types (BTF), as far as probes need them: the parameters of its functions, and what a parameter
//! points to.
//!
//! The format is that of the kernel's `Documentation/bpf/btf.rst`: a header, a section of type records that lie one
//! behind the other and name each other by number, and a section of strings. It is read in place. All that is built is
//! a table of where each record begins, so that the 6 MB of a kernel take 0.5 MB more and some milliseconds.
//!
//! A module's types (`/sys/kernel/btf/nf_conntrack`) continue the numbers and the strings of `vmlinux`, their base.

mod error;
mod resolve;
#[cfg(test)]
mod testing;
mod text;
mod types;
mod variables;

pub use error::BtfError;
pub use resolve::resolve;
pub use variables::{Known, variables};

use std::fmt;
use std::sync::Arc;

use types::{Kind, Type, word};

use crate::error::FileError;
use crate::event::nearest;
use crate::host::{self, Roots};

/// What was read of the types, or why it could not be.
type Result<T, E = BtfError> = std::result::Result<T, E>;

/// The most bytes that we read as types of a kernel or a module; those of today's kernels are below 10 MB.
const FILE_LIMIT: u64 = 64 << 20;
/// The first two bytes of a file, read in the byte order of this machine.
const MAGIC: u16 = 0xeb9f;
/// Magic, version, flags, and five numbers.
const HEADER: usize = 24;
/// The longest name of the kernel, `KSYM_NAME_LEN`.
const NAME_LIMIT: usize = 512;

/// The types of the kernel or of one of its modules. Large: made when a variable is to be resolved, and dropped then.
#[derive(Clone)]
pub struct Btf {
    /// The file.
    bytes: Vec<u8>,
    /// Where in it the strings are.
    strings: Section,
    /// Where in the file the record of each type is. The first is type 1, or the one behind the last of the base.
    records: Vec<u32>,
    /// What a module's types refer to.
    base: Option<Arc<Self>>,
}

/// A part of the file.
#[derive(Debug, Clone, Copy)]
struct Section {
    start: usize,
    len: usize,
}

/// What a function takes and returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype<'b> {
    /// The function.
    pub name: &'b str,
    /// In the order of the source.
    pub parameters: Vec<Parameter<'b>>,
    /// Whether more may follow (`...`).
    pub variadic: bool,
    /// The type that it returns, as C: `struct sock *`, `void`.
    pub returns: String,
}

/// One parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter<'b> {
    /// Its name, which may be empty.
    pub name: &'b str,
    /// Its type, as C.
    pub kind: String,
}

impl fmt::Display for Prototype<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let declare = |f: &mut fmt::Formatter<'_>, kind: &str, name: &str| {
            let space = if kind.ends_with('*') || name.is_empty() { "" } else { " " };
            write!(f, "{kind}{space}{name}")
        };
        declare(f, &self.returns, self.name)?;
        f.write_str("(")?;
        let mut comma = "";
        for parameter in &self.parameters {
            f.write_str(comma)?;
            declare(f, &parameter.kind, parameter.name)?;
            comma = ", ";
        }
        match (self.variadic, self.parameters.is_empty()) {
            (true, _) => write!(f, "{comma}...)"),
            (false, true) => f.write_str("void)"),
            (false, false) => f.write_str(")"),
        }
    }
}

impl Btf {
    /// Takes the content of a BTF file: that of the kernel, or of a module with the kernel's as its `base`.
    ///
    /// # Errors
    /// [`BtfError::Broken`]. Records are checked for their size here, and what they refer to when it is looked at.
    pub fn parse(bytes: Vec<u8>, base: Option<Arc<Self>>) -> Result<Self> {
        let (types, strings) = sections(&bytes)?;
        let text = bytes.get(strings.start..strings.start + strings.len).unwrap_or_default();
        // The first string is the empty one, for what has no name; a module has that of its base.
        if text.last().is_some_and(|&last| last != 0) || base.is_none() && text.first() != Some(&0) {
            return Err(BtfError::broken(strings.start, "the strings do not begin and end with a NUL"));
        }
        let records = records(&bytes, types)?;
        let btf = Self { bytes, strings, records, base };
        let fits =
            btf.first_id().checked_add(btf.records.len()).is_some_and(|ids| u32::try_from(ids).is_ok());
        if fits { Ok(btf) } else { Err(BtfError::broken(types.start, "more types than have a number")) }
    }

    /// Reads the types of the running kernel, or of one of its modules together with them. They are there since Linux
    /// 5.2 (modules: 5.11), where the kernel was built with `CONFIG_DEBUG_INFO_BTF`; everybody may read them.
    ///
    /// # Errors
    /// [`BtfError::Absent`], [`BtfError::Forbidden`], or [`BtfError::Unreadable`] for a file that is broken.
    pub fn load(roots: &Roots, module: Option<&str>) -> Result<Self> {
        let kernel = Self::read(roots, "vmlinux", None)?;
        match module {
            // What cannot be the name of a module must not become a path.
            Some(name) if name.is_empty() || name.starts_with('.') || name.contains('/') => {
                Err(BtfError::NoModule { module: name.into() })
            }
            Some(name) => Self::read(roots, &name.replace('-', "_"), Some(Arc::new(kernel))),
            None => Ok(kernel),
        }
    }

    fn read(roots: &Roots, name: &str, base: Option<Arc<Self>>) -> Result<Self> {
        let path = roots.sys.join("kernel/btf").join(name);
        let bytes = host::read_at_most(&path, FILE_LIMIT).map_err(|error| match error {
            error if error.is_absent() && base.is_some() => BtfError::NoModule { module: name.into() },
            error if error.is_absent() => BtfError::Absent(error),
            error => BtfError::from(error),
        })?;
        Self::parse(bytes, base).map_err(|error| match error {
            BtfError::Broken { .. } => BtfError::Unreadable(FileError::malformed(path, error.to_string())),
            error => error,
        })
    }

    /// The prototype of the function of this name.
    ///
    /// # Errors
    /// [`BtfError::NoFunction`] with the nearest name; [`BtfError::Ambiguous`] if there are several of different
    /// prototypes; [`BtfError::Broken`].
    pub fn function(&self, name: &str) -> Result<Prototype<'_>> {
        Prototype::of(self.find(name)?)
    }

    /// The prototypes of at most `limit` functions in the order of the file; of a module, only its own. What cannot be
    /// read is left out.
    pub fn functions(&self, limit: usize) -> impl Iterator<Item = Prototype<'_>> {
        self.own().filter(|of| of.kind() == Kind::Func).filter_map(|of| Prototype::of(of).ok()).take(limit)
    }

    /// The function of this name: a module's own, or else one of its base.
    fn find(&self, name: &str) -> Result<Type<'_>> {
        let mut found: Option<Type<'_>> = None;
        let mut prototypes = Vec::new();
        for function in self.own().filter(|of| of.kind() == Kind::Func && of.is_named(name)) {
            // Equal prototypes are one type: whoever writes BTF leaves out duplicates.
            if !prototypes.contains(&function.refers_to()) && prototypes.len() < VARIANTS {
                prototypes.push(function.refers_to());
            }
            found = found.or(Some(function));
        }
        match (found, &self.base) {
            (Some(_), _) if prototypes.len() > 1 => Err(BtfError::Ambiguous { function: name.into() }),
            (Some(function), _) => Ok(function),
            (None, Some(base)) => base.find(name),
            (None, None) => {
                let names = self.own().filter(|of| of.kind() == Kind::Func).filter_map(|of| of.name().ok());
                let near = nearest(name, names).map(Into::into);
                Err(BtfError::NoFunction { function: name.into(), near })
            }
        }
    }

    /// All types of this file, without those of its base.
    fn own(&self) -> impl Iterator<Item = Type<'_>> {
        self.records.iter().map(|&at| self.record(at))
    }

    /// The type of this number; 0 is `void`.
    fn get(&self, id: u32) -> Result<Type<'_>> {
        let Some(own) = (id as usize).checked_sub(self.first_id()) else {
            return match &self.base {
                Some(base) if id != 0 => base.get(id),
                _ => Ok(Type::void(self)),
            };
        };
        match self.records.get(own) {
            Some(&at) => Ok(self.record(at)),
            None => Err(BtfError::broken(self.bytes.len(), "a type refers to one that is not there")),
        }
    }

    fn record(&self, at: u32) -> Type<'_> {
        Type::new(self, at as usize, self.bytes.get(at as usize..).unwrap_or_default())
    }

    fn first_id(&self) -> usize {
        self.base.as_ref().map_or(1, |base| base.first_id() + base.records.len())
    }

    /// The strings from this offset on, of the base or of this file, up to the end of the section.
    fn text(&self, offset: u32) -> Option<&[u8]> {
        let of_base = self.base.as_ref().map_or(0, |base| base.strings_end());
        let Some(own) = (offset as usize).checked_sub(of_base) else {
            return self.base.as_ref()?.text(offset);
        };
        self.bytes
            .get(self.strings.start + own..self.strings.start + self.strings.len)
            .filter(|text| !text.is_empty())
    }

    /// The first offset behind the strings of this file and its base.
    fn strings_end(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.strings_end()) + self.strings.len
    }

    /// The string at this offset.
    fn string(&self, offset: u32) -> Result<&str> {
        let broken = |what| BtfError::broken(self.strings.start.saturating_add(offset as usize), what);
        let text = self.text(offset).ok_or_else(|| broken("a name is outside of the strings"))?;
        let end = text.iter().take(NAME_LIMIT).position(|&byte| byte == 0);
        let name = &text[..end.ok_or_else(|| broken("a name is longer than the kernel allows"))?];
        std::str::from_utf8(name).map_err(|_| broken("a name is not text"))
    }

    /// Whether the string at this offset is this name.
    fn is_string(&self, offset: u32, name: &str) -> bool {
        let rest = self.text(offset).and_then(|text| text.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// How many prototypes of one function are told apart; two are as bad as more.
const VARIANTS: usize = 2;

impl fmt::Debug for Btf {
    /// Without its megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut of = f.debug_struct("Btf");
        of.field("bytes", &self.bytes.len())
            .field("types", &self.records.len())
            .field("base", &self.base)
            .finish()
    }
}

impl<'b> Prototype<'b> {
    fn of(function: Type<'b>) -> Result<Self> {
        let prototype = function.target()?;
        let mut parameters = Vec::new();
        let mut variadic = false;
        for (name, kind) in prototype.parameters() {
            // The kernel writes `...` as a last parameter without a name and a type.
            variadic = kind == 0 && name == 0;
            if !variadic {
                let kind = text::of(prototype.btf().get(kind)?)?;
                parameters.push(Parameter { name: prototype.btf().string(name)?, kind });
            }
        }
        Ok(Self { name: function.name()?, parameters, variadic, returns: text::of(prototype.target()?)? })
    }
}

/// Where in the file the types and the strings are, according to its header.
fn sections(bytes: &[u8]) -> Result<(Section, Section)> {
    let Some(header) = bytes.get(..HEADER) else {
        return Err(BtfError::broken(bytes.len(), "it ends within its header"));
    };
    match u16::from_ne_bytes([header[0], header[1]]) {
        MAGIC => {}
        magic if magic == MAGIC.swap_bytes() => {
            return Err(BtfError::broken(0, "it is of a machine with the other byte order"));
        }
        _ => return Err(BtfError::broken(0, "it does not begin with the magic number of BTF")),
    }
    if header[2] != 1 {
        return Err(BtfError::broken(2, "it is not of version 1, the only one that is known here"));
    }
    // A longer header is that of a newer kernel, which has only added to it.
    let body = word(bytes, 1) as usize;
    let section = |start: u32, len: u32| {
        let start = body.checked_add(start as usize)?;
        let end = start.checked_add(len as usize)?;
        (body >= HEADER && end <= bytes.len()).then_some(Section { start, len: len as usize })
    };
    let types = section(word(bytes, 2), word(bytes, 3));
    let strings = section(word(bytes, 4), word(bytes, 5));
    types.zip(strings).ok_or_else(|| BtfError::broken(4, "its sections reach beyond its end"))
}

/// Where each record of the section of types begins.
fn records(bytes: &[u8], types: Section) -> Result<Vec<u32>> {
    let end = types.start + types.len;
    let section = bytes.get(..end).unwrap_or_default();
    let mut records = Vec::new();
    let mut at = types.start;
    while at < end {
        let record = section.get(at..).filter(|record| record.len() >= types::HEADER);
        let size = record.and_then(types::size);
        let Some(next) = size.and_then(|size| at.checked_add(size)).filter(|&next| next <= end) else {
            return Err(BtfError::broken(
                at,
                "a type is of a kind that is not known here, or reaches beyond the end",
            ));
        };
        records.push(u32::try_from(at).map_err(|_| BtfError::broken(at, "it is larger than 4 GiB"))?);
        at = next;
    }
    Ok(records)
}

#[cfg(test)]
mod tests;

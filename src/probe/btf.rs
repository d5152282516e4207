//! The kernel's type information (BTF), as far as probes need it: the parameters of functions, and the types that they point to.
//!
//! The format is described in the kernel's `Documentation/bpf/btf.rst`: a header, a section of consecutive type records that refer to each
//! other by number, and a section of strings. The file is parsed in place. Only a table of record offsets is built, so that the 6 MB of a
//! kernel take 0.5 MB more and some milliseconds.
//!
//! The types of a module (`/sys/kernel/btf/nf_conntrack`) continue the numbers and the strings of `vmlinux`, their base.

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

/// Result of reading type information.
type Result<T, E = BtfError> = std::result::Result<T, E>;

/// Maximum size of the type information of a kernel or module, in bytes. Current kernels have less than 10 MB.
const FILE_LIMIT: u64 = 64 << 20;
/// The first two bytes of a file, in the byte order of this machine.
const MAGIC: u16 = 0xeb9f;
/// Size of the header, in bytes: magic, version, flags, and five numbers.
const HEADER: usize = 24;
/// Maximum length of a name in the kernel, `KSYM_NAME_LEN`.
const NAME_LIMIT: usize = 512;

/// The types of the kernel or of one of its modules. Large: loaded for the resolution of variables, and dropped afterwards.
#[derive(Clone)]
pub struct Btf {
    /// The content of the file.
    bytes: Vec<u8>,
    /// Location of the strings.
    strings: Section,
    /// File offset of each type's record. The first is type 1, or the first type after those of the base.
    records: Vec<u32>,
    /// The kernel's types that a module refers to.
    base: Option<Arc<Self>>,
}

/// A section of the file.
#[derive(Debug, Clone, Copy)]
struct Section {
    start: usize,
    len: usize,
}

/// Parameters and return type of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype<'b> {
    /// The function name.
    pub name: &'b str,
    /// Parameters, in source order.
    pub parameters: Vec<Parameter<'b>>,
    /// Whether it takes variable arguments (`...`).
    pub variadic: bool,
    /// Return type in C notation: `struct sock *`, `void`.
    pub returns: String,
}

/// One parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter<'b> {
    /// Name, which may be empty.
    pub name: &'b str,
    /// Type in C notation.
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
    /// Parses the content of a BTF file: the kernel's, or a module's with the kernel's as its `base`.
    ///
    /// # Errors
    /// [`BtfError::Broken`]. The sizes of records are checked here, references to other types when they are followed.
    pub fn parse(bytes: Vec<u8>, base: Option<Arc<Self>>) -> Result<Self> {
        let (types, strings) = sections(&bytes)?;
        let text = bytes.get(strings.start..strings.start + strings.len).unwrap_or_default();
        // The first string is empty, for types without a name. A module uses the empty string of its base.
        if text.last().is_some_and(|&last| last != 0) || base.is_none() && text.first() != Some(&0) {
            return Err(BtfError::broken(strings.start, "the strings do not begin and end with a NUL"));
        }
        let records = records(&bytes, types)?;
        let btf = Self { bytes, strings, records, base };
        let fits =
            btf.first_id().checked_add(btf.records.len()).is_some_and(|ids| u32::try_from(ids).is_ok());
        if fits { Ok(btf) } else { Err(BtfError::broken(types.start, "too many types for 32-bit type IDs")) }
    }

    /// Reads the types of the running kernel, or of the kernel and one of its modules. Available since Linux 5.2 (modules: 5.11), if the
    /// kernel was built with `CONFIG_DEBUG_INFO_BTF`. Needs no privilege.
    ///
    /// # Errors
    /// [`BtfError::Absent`], [`BtfError::Forbidden`], or [`BtfError::Unreadable`] for a malformed file.
    pub fn load(roots: &Roots, module: Option<&str>) -> Result<Self> {
        let kernel = Self::read(roots, "vmlinux", None)?;
        match module {
            // An invalid module name must not become a path.
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

    /// Returns the prototype of the function of this name.
    ///
    /// # Errors
    /// [`BtfError::NoFunction`] with the closest name; [`BtfError::Ambiguous`] if several functions have different prototypes;
    /// [`BtfError::Broken`].
    pub fn function(&self, name: &str) -> Result<Prototype<'_>> {
        Prototype::of(self.find(name)?)
    }

    /// Returns the prototypes of at most `limit` functions in file order; for a module, only its own. Malformed records are skipped.
    pub fn functions(&self, limit: usize) -> impl Iterator<Item = Prototype<'_>> {
        self.own().filter(|of| of.kind() == Kind::Func).filter_map(|of| Prototype::of(of).ok()).take(limit)
    }

    /// Returns the function of this name: a module's own, or else one of its base.
    fn find(&self, name: &str) -> Result<Type<'_>> {
        let mut found: Option<Type<'_>> = None;
        let mut prototypes = Vec::new();
        for function in self.own().filter(|of| of.kind() == Kind::Func && of.is_named(name)) {
            // Equal prototypes have the same type, because BTF is deduplicated.
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

    /// Returns all types of this file, without those of its base.
    fn own(&self) -> impl Iterator<Item = Type<'_>> {
        self.records.iter().map(|&at| self.record(at))
    }

    /// Returns the type of this number; 0 is `void`.
    fn get(&self, id: u32) -> Result<Type<'_>> {
        let Some(own) = (id as usize).checked_sub(self.first_id()) else {
            return match &self.base {
                Some(base) if id != 0 => base.get(id),
                _ => Ok(Type::void(self)),
            };
        };
        match self.records.get(own) {
            Some(&at) => Ok(self.record(at)),
            None => Err(BtfError::broken(self.bytes.len(), "a type refers to a missing type")),
        }
    }

    fn record(&self, at: u32) -> Type<'_> {
        Type::new(self, at as usize, self.bytes.get(at as usize..).unwrap_or_default())
    }

    fn first_id(&self) -> usize {
        self.base.as_ref().map_or(1, |base| base.first_id() + base.records.len())
    }

    /// Returns the bytes of the string section from this offset on, of the base or of this file.
    fn text(&self, offset: u32) -> Option<&[u8]> {
        let of_base = self.base.as_ref().map_or(0, |base| base.strings_end());
        let Some(own) = (offset as usize).checked_sub(of_base) else {
            return self.base.as_ref()?.text(offset);
        };
        self.bytes
            .get(self.strings.start + own..self.strings.start + self.strings.len)
            .filter(|text| !text.is_empty())
    }

    /// Returns the end offset of the strings of this file and its base.
    fn strings_end(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.strings_end()) + self.strings.len
    }

    /// Returns the string at this offset.
    fn string(&self, offset: u32) -> Result<&str> {
        let broken = |what| BtfError::broken(self.strings.start.saturating_add(offset as usize), what);
        let text = self.text(offset).ok_or_else(|| broken("a name is outside the string section"))?;
        let end = text.iter().take(NAME_LIMIT).position(|&byte| byte == 0);
        let name = &text[..end.ok_or_else(|| broken("a name exceeds the kernel's limit"))?];
        std::str::from_utf8(name).map_err(|_| broken("a name is not UTF-8"))
    }

    /// Reports whether the string at this offset equals `name`.
    fn is_string(&self, offset: u32, name: &str) -> bool {
        let rest = self.text(offset).and_then(|text| text.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Maximum number of prototypes that are distinguished per function. Two are enough to detect ambiguity.
const VARIANTS: usize = 2;

impl fmt::Debug for Btf {
    /// Prints sizes instead of the content.
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
            // The kernel encodes `...` as a last parameter without a name and a type.
            variadic = kind == 0 && name == 0;
            if !variadic {
                let kind = text::of(prototype.btf().get(kind)?)?;
                parameters.push(Parameter { name: prototype.btf().string(name)?, kind });
            }
        }
        Ok(Self { name: function.name()?, parameters, variadic, returns: text::of(prototype.target()?)? })
    }
}

/// Returns the locations of types and strings, from the header.
fn sections(bytes: &[u8]) -> Result<(Section, Section)> {
    let Some(header) = bytes.get(..HEADER) else {
        return Err(BtfError::broken(bytes.len(), "truncated header"));
    };
    match u16::from_ne_bytes([header[0], header[1]]) {
        MAGIC => {}
        magic if magic == MAGIC.swap_bytes() => {
            return Err(BtfError::broken(0, "the file has the opposite byte order"));
        }
        _ => return Err(BtfError::broken(0, "the magic number of BTF is missing")),
    }
    if header[2] != 1 {
        return Err(BtfError::broken(2, "unsupported version, expected version 1"));
    }
    // Newer kernels may append fields to the header.
    let body = word(bytes, 1) as usize;
    let section = |start: u32, len: u32| {
        let start = body.checked_add(start as usize)?;
        let end = start.checked_add(len as usize)?;
        (body >= HEADER && end <= bytes.len()).then_some(Section { start, len: len as usize })
    };
    let types = section(word(bytes, 2), word(bytes, 3));
    let strings = section(word(bytes, 4), word(bytes, 5));
    types.zip(strings).ok_or_else(|| BtfError::broken(4, "a section extends beyond the end of the file"))
}

/// Returns the offset of each type record.
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
                "a type has an unknown kind, or extends beyond the end of its section",
            ));
        };
        records.push(u32::try_from(at).map_err(|_| BtfError::broken(at, "the file exceeds 4 GiB"))?);
        at = next;
    }
    Ok(records)
}

#[cfg(test)]
mod tests;

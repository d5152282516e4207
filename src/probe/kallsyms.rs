//! The kernel's functions by name and by address, from `/proc/kallsyms`: `ffffffff81000010 T tcp_sendmsg`, for modules followed by
//! `[nf_conntrack]`. Each query reads its 10 MB line by line in about 0.1 s, and keeps no table. Frequent callers look up many addresses at
//! once and cache the results. A [`Table`] is for continuous lookups.
//!
//! Names are readable without privileges. Without the permission to see addresses, all addresses are zero.

mod nearest;
mod probeable;
mod table;

use std::fmt;
use std::sync::Arc;

pub use nearest::{Variable, addresses, names, variable_addresses, variables};
pub use probeable::{Probeable, probeable};
use rustc_hash::FxHashMap;
pub use table::{At, Range, Table};

use crate::error::{Errno, FileError, printable};
use crate::event::nearest;
use crate::host::{self, Roots};

/// Maximum number of bytes read from a list of functions. A kernel with all debug options has 20 MB of symbols.
const FILE_LIMIT: u64 = 128 << 20;
/// Maximum distance of an address from the start of its function, in bytes. The end of a module's last function is unknown, and anything
/// may follow it.
const FUNCTION_LIMIT: u64 = 256 << 10;
/// Maximum number of functions that are searched for a similar name.
const NEAR_LIMIT: usize = 1 << 20;

/// A kernel function. Formatted as in probe definitions: `tcp_sendmsg`, `nf_conntrack:nf_conntrack_in`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// The function name.
    pub name: Arc<str>,
    /// The module; `None` for the kernel itself.
    pub module: Option<Arc<str>>,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(module) = &self.module {
            write!(f, "{}:", printable(module))?;
        }
        f.write_str(&printable(&self.name))
    }
}

/// Functions with the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Number of functions. Since Linux 6.6 the kernel rejects a probe on an ambiguous name. Earlier kernels choose an arbitrary function.
    pub count: usize,
    /// The module of the first function; `None` for the kernel itself.
    pub module: Option<Arc<str>>,
}

/// The reason why the kernel's functions are not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KallsymsError {
    /// The kernel has no symbol list.
    #[error("{0}: this kernel was built without CONFIG_KALLSYMS, or /proc is not its procfs")]
    Absent(FileError),
    /// This process lacks the permission to read it.
    #[error("{0}: run as root or with CAP_SYSLOG")]
    Forbidden(FileError),
    /// The list contains names only, with zeros for addresses.
    #[error("the kernel hides its addresses from {}", hidden_from(*.restrict))]
    Hidden {
        /// Value of `/proc/sys/kernel/kptr_restrict`, if readable.
        restrict: Option<u64>,
    },
    /// The list could not be read, or is malformed.
    #[error("{0}")]
    Unreadable(FileError),
    /// No function has this name.
    #[error("the kernel has no function {}{}", printable(.function), instead(.near.as_ref()))]
    NoFunction {
        /// The function name, with its module if given.
        function: Arc<str>,
        /// A compiler-generated variant (`name.isra.0`), or a function with a similar name.
        near: Option<Function>,
    },
}

impl KallsymsError {
    fn hidden(roots: &Roots) -> Self {
        Self::Hidden { restrict: host::read_number(&roots.proc.join("sys/kernel/kptr_restrict")).ok() }
    }
}

fn hidden_from(restrict: Option<u64>) -> &'static str {
    match restrict {
        Some(2..) => "all processes: set kernel.kptr_restrict to 1 (sysctl), and run with CAP_SYSLOG",
        _ => "this process: run it with CAP_SYSLOG",
    }
}

fn instead(near: Option<&Function>) -> String {
    let inlined = || ": it may be inlined into its callers, or its module is not loaded".to_owned();
    near.map_or_else(inlined, |near| format!("; did you mean {near}?"))
}

impl From<FileError> for KallsymsError {
    fn from(error: FileError) -> Self {
        match error.errno() {
            _ if error.is_absent() => Self::Absent(error),
            Some(Errno::EACCES | Errno::EPERM) => Self::Forbidden(error),
            _ => Self::Unreadable(error),
        }
    }
}

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Symbol<'l> {
    address: u64,
    is_text: bool,
    /// Whether the symbol is local to one source file.
    is_local: bool,
    name: &'l [u8],
    module: Option<&'l [u8]>,
}

impl<'l> Symbol<'l> {
    fn parse(line: &'l [u8]) -> Option<Self> {
        // There are about 200 000 lines, so the parser scans each byte as rarely as possible.
        let (address, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let (letter, rest) = rest.split_once(' ')?;
        let (name, module) =
            rest.split_once('\t').map_or((rest, None), |(name, of)| (name, module(of.as_bytes())));
        Some(Self {
            address: u64::from_str_radix(address, 16).ok()?,
            is_local: letter == "t",
            // The letters of nm(1). Most weak symbols (`w`) are functions.
            is_text: matches!(letter, "t" | "T" | "w" | "W"),
            name: name.as_bytes(),
            module,
        })
    }

    /// Reports whether the symbol can be probed: it is not a compiler mark or a split-off part, and it was not created at run time, like
    /// BPF programs and trampolines.
    fn is_function(&self) -> bool {
        const MARKS: [&[u8]; 4] = [b"$", b".L", b"__pfx_", b"__cfi_"];
        let is_mark = MARKS.iter().any(|mark| self.name.starts_with(mark));
        let is_cold = self.name.windows(5).any(|part| part == b".cold");
        let is_made =
            self.module.is_some_and(|module| module == b"bpf" || module.starts_with(b"__builtin__"));
        self.is_text && !is_mark && !is_cold && !is_made
    }
}

/// Returns the name in `[name]`.
fn module(word: &[u8]) -> Option<&[u8]> {
    word.strip_prefix(b"[")?.strip_suffix(b"]")
}

fn text(name: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(name).into()
}

/// Passes every symbol to `each`, in file order.
fn symbols(roots: &Roots, mut each: impl FnMut(Symbol<'_>)) -> Result<(), KallsymsError> {
    let path = roots.proc.join("kallsyms");
    let mut any = false;
    host::lines(&path, FILE_LIMIT, |line| {
        if let Some(symbol) = Symbol::parse(line) {
            any = true;
            each(symbol);
        }
    })?;
    if any {
        Ok(())
    } else {
        Err(KallsymsError::Unreadable(FileError::malformed(path, "it contains no symbols")))
    }
}

/// Returns at most `limit` functions that may be probed, sorted, each name once per module.
///
/// # Errors
/// [`KallsymsError::Absent`], [`KallsymsError::Forbidden`] and [`KallsymsError::Unreadable`].
pub fn functions(roots: &Roots, limit: usize) -> Result<Vec<Function>, KallsymsError> {
    let mut functions: Vec<Function> = Vec::new();
    each_function(roots, |function| {
        if functions.len() < limit {
            functions.push(function);
        }
    })?;
    functions.sort_unstable();
    functions.dedup();
    Ok(functions)
}

/// Passes every function that may be probed to `each`, in file order.
fn each_function(roots: &Roots, mut each: impl FnMut(Function)) -> Result<(), KallsymsError> {
    // The symbols of a module are consecutive.
    let mut last: Option<Arc<str>> = None;
    symbols(roots, |symbol| {
        if symbol.is_function() {
            if last.as_deref().map(str::as_bytes) != symbol.module {
                last = symbol.module.map(text);
            }
            each(Function { name: text(symbol.name), module: last.clone() });
        }
    })
}

/// Returns the functions named `function`, or `module:function` for the functions of one module.
///
/// # Errors
/// [`KallsymsError::NoFunction`] with a similar name, and the errors of [`functions`].
pub fn find(roots: &Roots, function: &str) -> Result<Found, KallsymsError> {
    find_all(roots, &[function])?.pop().unwrap_or_else(|| Err(missing(function, &[])))
}

/// The module of a searched function, if specified, and the result.
type SearchResult<'a> = (Option<&'a [u8]>, &'a mut Found);

/// Looks up several functions like [`find`], in the same order. Reads the symbols once, and a second time if a function is missing.
///
/// # Errors
/// For each missing function [`KallsymsError::NoFunction`]; for all functions the errors of [`functions`].
pub fn find_all(
    roots: &Roots,
    functions: &[&str],
) -> Result<Vec<Result<Found, KallsymsError>>, KallsymsError> {
    let mut found = vec![Found { count: 0, module: None }; functions.len()];
    let mut named: FxHashMap<&[u8], Vec<SearchResult<'_>>> = FxHashMap::default();
    for (function, found) in functions.iter().zip(&mut found) {
        let (module, name) = in_module(function);
        named.entry(name.as_bytes()).or_default().push((module.map(str::as_bytes), found));
    }
    symbols(roots, |symbol| {
        let Some(wanted) = named.get_mut(symbol.name).filter(|_| symbol.is_function()) else { return };
        for (module, found) in wanted {
            if module.is_some_and(|module| symbol.module != Some(module)) {
                continue;
            }
            if found.count == 0 {
                found.module = symbol.module.map(text);
            }
            found.count += 1;
        }
    })?;
    let some_are_missing = found.iter().any(|found| found.count == 0);
    let all = if some_are_missing { self::functions(roots, NEAR_LIMIT)? } else { Vec::new() };
    let judge = |(function, found): (&&str, Found)| match found.count {
        0 => Err(missing(function, &all)),
        _ => Ok(found),
    };
    Ok(functions.iter().zip(found).map(judge).collect())
}

/// Splits a name into the module, if specified, and the function.
fn in_module(function: &str) -> (Option<&str>, &str) {
    function.split_once(':').map_or((None, function), |(module, name)| (Some(module), name))
}

fn missing(function: &str, all: &[Function]) -> KallsymsError {
    KallsymsError::NoFunction { function: function.into(), near: near(all, in_module(function).1) }
}

/// Returns the most likely intended function: the same in another module, a compiler-generated variant, or one with a similar name.
fn near(functions: &[Function], name: &str) -> Option<Function> {
    let variant = |of: &Function| {
        of.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let near = match functions.iter().find(|of| variant(of)) {
        Some(variant) => &variant.name,
        None => nearest(name, functions.iter().map(|of| &*of.name))?,
    };
    functions.iter().find(|of| *of.name == *near).cloned()
}

/// Reports whether function tracing (`ftrace:function`) supports this function, according to tracefs.
///
/// # Errors
/// Absent if tracefs is not mounted, or the kernel has no function tracing.
pub fn is_traceable(roots: &Roots, function: &str) -> Result<bool, FileError> {
    let mut found = false;
    host::lines(&roots.tracing.join("available_filter_functions"), FILE_LIMIT, |line| {
        found |= line.split(u8::is_ascii_whitespace).next() == Some(function.as_bytes());
    })?;
    Ok(found)
}

/// Returns the functions that the kernel does not allow to be probed, sorted: functions that the handling of a probe itself uses.
///
/// # Errors
/// Absent if debugfs is not mounted, or the kernel has no kprobes. Forbidden for all users except root.
pub fn blacklist(roots: &Roots) -> Result<Vec<Arc<str>>, FileError> {
    let mut names: Vec<Arc<str>> = Vec::new();
    // `0xffffffff81000010-0xffffffff81000020<tab>do_int3`
    host::lines(&roots.sys.join("kernel/debug/kprobes/blacklist"), FILE_LIMIT, |line| {
        names.extend(line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(1).map(text));
    })?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Not sorted by address, like a list with modules.
    const SYMBOLS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T first_alias
ffffffff81000100 T tcp_sendmsg
ffffffff81000180 t __pfx_helper
ffffffff81000190 t helper
ffffffff81000200 t helper
ffffffff81000280 t split.isra.0
ffffffff81000290 t split.isra.0.cold
ffffffff81000300 D _sdata
ffffffffc0100000 t helper\t[nf_tables]
ffffffffc0000000 t nf_in\t[nf_conntrack]
ffffffffc0000100 d table\t[nf_conntrack]
ffffffffc0200000 t bpf_prog_1234_x\t[bpf]
";

    fn host(symbols: &str) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/sys/kernel")).unwrap();
        std::fs::write(dir.path().join("proc/kallsyms"), symbols).unwrap();
        let roots = Roots::under(dir.path());
        (dir, roots)
    }

    #[test]
    fn an_address_has_the_name_of_the_function_that_it_lies_in() {
        let (_dir, roots) = host(SYMBOLS);
        let cases = [
            (0xffff_ffff_8100_0100, Some("tcp_sendmsg")),
            (0xffff_ffff_8100_017f, Some("tcp_sendmsg")),
            (0xffff_ffff_8100_0008, Some("_stext")),
            (0xffff_ffff_8100_02ff, Some("split.isra.0.cold")),
            // A module after others in memory, but before them in the file.
            (0xffff_ffff_c000_00ff, Some("nf_in")),
            (0xffff_ffff_c010_0001, Some("helper")),
            // Data; after data; before all symbols; far after the last symbol.
            (0xffff_ffff_8100_0300, None),
            (0xffff_ffff_c000_0200, None),
            (0xffff_8880_0000_0000, None),
            (0x1000, None),
            (0, None),
            (u64::MAX, None),
        ];
        let addresses: Vec<u64> = cases.iter().map(|&(address, _)| address).collect();
        let names = names(&roots, &addresses).unwrap();
        for ((address, expected), name) in cases.iter().zip(&names) {
            assert_eq!(name.as_deref(), *expected, "{address:#x}");
        }
    }

    #[test]
    fn a_variable_has_its_name_and_the_distance_from_its_start() {
        let (_dir, roots) = host(SYMBOLS);
        let found = variables(&roots, &[0xffff_ffff_8100_0308, 0xffff_ffff_8100_0100, 0xffff_8880_0000_0000]);
        assert_eq!(found.unwrap(), [Some(Variable { name: "_sdata".into(), distance: 8 }), None, None]);
    }

    #[test]
    fn a_function_and_a_variable_are_found_by_their_names() {
        let (_dir, roots) = host(SYMBOLS);
        let found = addresses(&roots, &["helper", "tcp_sendmsg", "_sdata", "nf_in"]).unwrap();
        assert_eq!(found, [Some(0xffff_ffff_8100_0190), Some(0xffff_ffff_8100_0100), None, None]);
        let found = variable_addresses(&roots, &["helper", "_sdata"]).unwrap();
        assert_eq!(found, [None, Some(0xffff_ffff_8100_0300)]);
        let (_dir, hidden) = host("0000000000000000 T helper\n");
        assert!(matches!(addresses(&hidden, &["helper"]), Err(KallsymsError::Hidden { .. })));
    }

    #[test]
    fn the_answer_does_not_depend_on_what_else_is_asked_or_on_the_order() {
        let (_dir, roots) = host(SYMBOLS);
        let addresses =
            [0xffff_ffff_c010_0001, 0xffff_ffff_8100_0191, 0xffff_ffff_8100_0191, 0xffff_ffff_8100_01f0];
        let together = names(&roots, &addresses).unwrap();
        for (address, name) in addresses.iter().zip(&together) {
            assert_eq!(names(&roots, &[*address]).unwrap(), std::slice::from_ref(name), "{address:#x}");
            assert_eq!(name.as_deref(), Some("helper"), "{address:#x}");
        }
        assert_eq!(names(&roots, &[]).unwrap(), []);
    }

    #[test]
    fn zeros_for_addresses_are_a_missing_permission_and_not_missing_functions() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t helper\n";
        let (dir, roots) = host(hidden);
        let message = |roots: &Roots| names(roots, &[1]).unwrap_err().to_string();
        assert!(
            message(&roots).ends_with("from this process: run it with CAP_SYSLOG"),
            "{}",
            message(&roots)
        );
        std::fs::write(dir.path().join("proc/sys/kernel/kptr_restrict"), "2\n").unwrap();
        assert!(message(&roots).contains("set kernel.kptr_restrict to 1"), "{}", message(&roots));
        // Names are readable without privileges.
        assert_eq!(find(&roots, "helper"), Ok(Found { count: 1, module: None }));
    }

    #[test]
    fn a_kernel_without_symbols_is_absent_and_a_file_of_something_else_is_broken() {
        let (dir, roots) = host("no symbols here\n");
        assert!(matches!(names(&roots, &[1]), Err(KallsymsError::Unreadable(_))));
        std::fs::remove_file(dir.path().join("proc/kallsyms")).unwrap();
        let error = functions(&roots, 1).unwrap_err();
        assert!(matches!(error, KallsymsError::Absent(_)), "{error}");
    }

    #[test]
    fn what_is_listed_can_be_probed() {
        let (_dir, roots) = host(SYMBOLS);
        let listed: Vec<String> = functions(&roots, 100).unwrap().iter().map(ToString::to_string).collect();
        let expected = [
            "_stext",
            "first_alias",
            "helper",
            "nf_tables:helper",
            "nf_conntrack:nf_in",
            "split.isra.0",
            "tcp_sendmsg",
        ];
        assert_eq!(listed, expected);
        assert_eq!(functions(&roots, 2).unwrap().len(), 2);
    }

    #[test]
    fn functions_of_one_name_are_counted_in_all_modules_or_in_one() {
        let (_dir, roots) = host(SYMBOLS);
        let found =
            |name: &str| find(&roots, name).map(|found| (found.count, found.module.map(|m| m.to_string())));
        assert_eq!(found("helper"), Ok((3, None)));
        assert_eq!(found("nf_tables:helper"), Ok((1, Some("nf_tables".to_owned()))));
        assert_eq!(found("nf_in"), Ok((1, Some("nf_conntrack".to_owned()))));
        for absent in ["table", "__pfx_helper", "bpf_prog_1234_x", "", ":", "nf_tables:"] {
            assert!(matches!(found(absent), Err(KallsymsError::NoFunction { .. })), "{absent}");
        }
    }

    #[test]
    fn a_function_that_is_not_there_gets_the_name_that_was_meant() {
        let (_dir, roots) = host(SYMBOLS);
        let message = |name: &str| find(&roots, name).unwrap_err().to_string();
        assert_eq!(
            message("tcp_sendmgs"),
            "the kernel has no function tcp_sendmgs; did you mean tcp_sendmsg?"
        );
        assert_eq!(message("split"), "the kernel has no function split; did you mean split.isra.0?");
        assert_eq!(
            message("nf_tables:nf_in"),
            "the kernel has no function nf_tables:nf_in; did you mean nf_conntrack:nf_in?"
        );
        assert!(
            message("sys_horse").ends_with("it may be inlined into its callers, or its module is not loaded")
        );
    }

    #[test]
    fn tracefs_and_debugfs_say_what_can_be_traced_and_what_not() {
        let (dir, roots) = host(SYMBOLS);
        assert!(is_traceable(&roots, "helper").unwrap_err().is_absent());
        assert!(blacklist(&roots).unwrap_err().is_absent());
        std::fs::create_dir_all(&roots.tracing).unwrap();
        std::fs::write(
            roots.tracing.join("available_filter_functions"),
            "tcp_sendmsg\nnf_in [nf_conntrack]\n",
        )
        .unwrap();
        assert_eq!(is_traceable(&roots, "nf_in"), Ok(true));
        assert_eq!(is_traceable(&roots, "tcp_send"), Ok(false));
        let kprobes = dir.path().join("sys/kernel/debug/kprobes");
        std::fs::create_dir_all(&kprobes).unwrap();
        std::fs::write(kprobes.join("blacklist"), "0x00ff-0x0100\tnotify_die\n0x0001-0x0002\tdo_int3\n")
            .unwrap();
        assert_eq!(blacklist(&roots).unwrap(), ["do_int3".into(), "notify_die".into()] as [Arc<str>; 2]);
    }

    #[test]
    fn functions_of_the_running_kernel_have_their_names() {
        let roots = Roots::default();
        let all = match functions(&roots, usize::MAX) {
            Ok(all) => all,
            Err(absent) => return println!("skipped: {absent}"),
        };
        assert!(all.len() > 10_000, "{}", all.len());
        let mut addresses = Vec::new();
        symbols(&roots, |symbol| {
            if symbol.name == b"vfs_read" {
                addresses.push(symbol.address + 4);
            }
        })
        .unwrap();
        assert_eq!(find(&roots, "vfs_read"), Ok(Found { count: 1, module: None }));
        match names(&roots, &addresses) {
            Ok(names) => assert_eq!(names, [Some("vfs_read".into())]),
            Err(hidden @ KallsymsError::Hidden { .. }) => println!("skipped: {hidden}"),
            Err(error) => panic!("{error}"),
        }
    }

    proptest! {
        #[test]
        fn what_the_kernel_prints_is_read(
            address: u64, kind in "[a-zA-Z]", name in "[a-zA-Z_.$][a-zA-Z0-9_.$]{0,40}", module in "[a-z0-9_]{1,20}", in_module: bool
        ) {
            let tail = if in_module { format!("\t[{module}]") } else { String::new() };
            let line = format!("{address:016x} {kind} {name}{tail}");
            let symbol = Symbol::parse(line.as_bytes()).unwrap();
            prop_assert_eq!((symbol.address, symbol.name), (address, name.as_bytes()));
            prop_assert_eq!(symbol.module, in_module.then_some(module.as_bytes()));
        }

        #[test]
        fn no_bytes_panic(content: Vec<u8>, addresses: Vec<u64>) {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("proc")).unwrap();
            std::fs::write(dir.path().join("proc/kallsyms"), content).unwrap();
            let roots = Roots::under(dir.path());
            if let Ok(names) = names(&roots, &addresses) {
                prop_assert_eq!(names.len(), addresses.len());
            }
            if let Ok(found) = find(&roots, "helper") {
                prop_assert!(found.count > 0);
            }
        }
    }
}

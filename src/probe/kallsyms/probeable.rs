//! Kernel functions that can be probed.

use rustc_hash::FxHashSet;

use super::{FILE_LIMIT, Function, KallsymsError, blacklist, each_function, module, text};
use crate::error::FileError;
use crate::host::{self, Roots};

/// The kernel functions that can be probed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probeable {
    /// Sorted by name.
    pub functions: Vec<Function>,
    /// Lists of forbidden functions that could not be read. They may contain some of `functions`. Lists that this kernel does not have are
    /// not included.
    pub unread: Vec<FileError>,
}

/// Returns the wanted functions that can be probed: functions that the kernel's tracing supports (`available_filter_functions`), without
/// those on the blacklist, and without ambiguous names.
///
/// # Errors
/// The errors of [`functions`](super::functions).
pub fn probeable(roots: &Roots, wanted: impl Fn(&Function) -> bool) -> Result<Probeable, KallsymsError> {
    let mut unread = Vec::new();
    let traceable = known(traceable(roots), &mut unread);
    let forbidden = known(blacklist(roots), &mut unread);
    let is_allowed = |of: &Function| {
        let is_forbidden = forbidden.as_ref().is_some_and(|list| list.binary_search(&of.name).is_ok());
        let is_traceable = traceable.as_ref().is_none_or(|list| list.contains(of));
        !is_forbidden && is_traceable
    };
    let mut all = Vec::new();
    each_function(roots, |function| all.push(function))?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let mut functions: Vec<Function> = Vec::new();
    for namesakes in all.chunk_by(|one, other| one.name == other.name) {
        for of_module in namesakes.chunk_by(|one, other| one.module == other.module) {
            let [function] = of_module else { continue };
            // A name without a module is searched in all modules, a name with a module only in that module.
            let is_one = function.module.is_some() || namesakes.len() == 1;
            if is_one && is_allowed(function) && wanted(function) {
                functions.push(function.clone());
            }
        }
    }
    Ok(Probeable { functions, unread })
}

/// Returns the content of a list, unless the kernel has no such list or it cannot be read.
fn known<T>(list: Result<T, FileError>, unread: &mut Vec<FileError>) -> Option<T> {
    list.map_err(|error| unread.extend((!error.is_absent()).then_some(error))).ok()
}

/// Returns the functions that tracing supports: `tcp_sendmsg`, `nf_in [nf_conntrack]`.
fn traceable(roots: &Roots) -> Result<FxHashSet<Function>, FileError> {
    let mut functions = FxHashSet::default();
    host::lines(&roots.tracing.join("available_filter_functions"), FILE_LIMIT, |line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        if let Some(name) = words.next() {
            let module = words.next().and_then(module).map(text);
            functions.insert(Function { name: text(name), module });
        }
    })?;
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
ffffffff81000100 T tcp_sendmsg
ffffffff81000190 t helper
ffffffff81000200 t shown_twice
ffffffff81000210 t shown_twice
ffffffff81000280 t do_int3
ffffffff81000290 t notrace
ffffffff81000300 D data
ffffffffc0000000 t nf_in\t[nf_conntrack]
ffffffffc0000010 t twice\t[nf_conntrack]
ffffffffc0000020 t twice\t[nf_conntrack]
ffffffffc0100000 t helper\t[nf_tables]
";

    fn host() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        for part in ["proc", "sys/kernel/tracing", "sys/kernel/debug/kprobes"] {
            std::fs::create_dir_all(dir.path().join(part)).unwrap();
        }
        std::fs::write(dir.path().join("proc/kallsyms"), SYMBOLS).unwrap();
        let roots = Roots::under(dir.path());
        (dir, roots)
    }

    fn names(roots: &Roots) -> Vec<String> {
        let found = probeable(roots, |_| true).unwrap();
        assert_eq!(found.unread, []);
        found.functions.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_that_several_functions_have_cannot_be_probed_without_its_module() {
        let (_dir, roots) = host();
        assert_eq!(
            names(&roots),
            ["do_int3", "nf_tables:helper", "nf_conntrack:nf_in", "notrace", "tcp_sendmsg"]
        );
    }

    #[test]
    fn what_the_kernel_forbids_is_left_out() {
        let (_dir, roots) = host();
        let traceable = "do_int3\nhelper [nf_tables]\nnf_in [nf_conntrack]\ntcp_sendmsg\n";
        std::fs::write(roots.tracing.join("available_filter_functions"), traceable).unwrap();
        let blacklist = roots.sys.join("kernel/debug/kprobes/blacklist");
        std::fs::write(blacklist, "0xffffffff81000280-0xffffffff81000290\tdo_int3\n").unwrap();
        assert_eq!(names(&roots), ["nf_tables:helper", "nf_conntrack:nf_in", "tcp_sendmsg"]);
        let wanted = probeable(&roots, |of| of.name.starts_with("tcp")).unwrap();
        assert_eq!(wanted.functions.len(), 1);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_told() {
        let (_dir, roots) = host();
        std::fs::create_dir(roots.tracing.join("available_filter_functions")).unwrap();
        let found = probeable(&roots, |_| true).unwrap();
        assert_eq!(found.functions.len(), 5);
        assert_eq!(found.unread.len(), 1);
    }
}

//! Invariants for BTF of arbitrary bytes. Called by a fuzz target and by a test that keeps the target working.

use perf_exporter::probe::argument::{Argument, Fetch, Step, Variable};
use perf_exporter::probe::btf::{Btf, Prototype, resolve, variables};

/// Maximum number of functions that are checked.
const FUNCTIONS: usize = 8;
/// Maximum depth of nested structures.
const DEPTH: usize = 3;

/// Returns a BTF file with these types and strings and a matching header.
fn file(types: &[u8], strings: &[u8]) -> Vec<u8> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut file = 0xeb9f_u16.to_ne_bytes().to_vec();
    file.extend([1, 0]);
    let words = [24, 0, len(types), len(types), len(strings) + 2];
    file.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    file.extend(types);
    // The string table begins with the empty string, and its last string is terminated.
    file.push(0);
    file.extend(strings);
    file.push(0);
    file
}

fn argument(base: &str, path: Vec<Step>) -> Argument {
    let fetch = Fetch::Variable(Variable { base: base.into(), path });
    Argument { name: "x".into(), fetch, kind: None, text: base.into() }
}

/// Checks that a resolved argument contains no variable and has a type.
fn follow(btf: &Btf, function: &Prototype<'_>) {
    let member = |name: &str| Step::Member { name: name.into(), arrow: true };
    let paths = [vec![], vec![member("a")], vec![Step::Index(3)], vec![member("b"), member("a")]];
    let parameters = function.parameters.iter().map(|parameter| (parameter.name, false));
    for (base, returns) in parameters.chain([("$retval", true)]) {
        for path in &paths {
            if let Ok(argument) = resolve(btf, function.name, returns, &argument(base, path.clone())) {
                assert!(argument.fetch.variable().is_none() && argument.kind.is_some(), "{argument}");
            }
        }
    }
}

/// Checks the bytes as a BTF file. Then checks them as types and strings: the first two bytes are the number of words of types.
pub(crate) fn holds(bytes: &[u8]) {
    let Some((words, rest)) = bytes.split_first_chunk() else { return };
    let (types, strings) = rest.split_at(rest.len().min(4 * usize::from(u16::from_le_bytes(*words))));
    for file in [bytes.to_vec(), file(types, strings)] {
        let Ok(btf) = Btf::parse(file, None) else { continue };
        let functions: Vec<Prototype<'_>> = btf.functions(FUNCTIONS).collect();
        assert!(functions.len() <= FUNCTIONS);
        for function in &functions {
            assert!(!function.to_string().is_empty());
            follow(&btf, function);
            // Broken nested types end the listing with an error.
            drop(variables(&btf, function.name, DEPTH, |known| {
                assert!(known.depth <= DEPTH && !known.text.is_empty());
            }));
        }
    }
}

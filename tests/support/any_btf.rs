//! What must hold for types of any bytes. Called by a fuzz target, and by a test that keeps it from rotting.

use perf_exporter::probe::argument::{Argument, Fetch, Step, Variable};
use perf_exporter::probe::btf::{Btf, Prototype, resolve, variables};

/// How many functions are looked at.
const FUNCTIONS: usize = 8;
/// How many structures deep.
const DEPTH: usize = 3;

/// A file of these types and strings, with the header that belongs to them.
fn file(types: &[u8], strings: &[u8]) -> Vec<u8> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut file = 0xeb9f_u16.to_ne_bytes().to_vec();
    file.extend([1, 0]);
    let words = [24, 0, len(types), len(types), len(strings) + 2];
    file.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    file.extend(types);
    // What has no name has the first string, and the last one ends.
    file.push(0);
    file.extend(strings);
    file.push(0);
    file
}

fn argument(base: &str, path: Vec<Step>) -> Argument {
    let fetch = Fetch::Variable(Variable { base: base.into(), path });
    Argument { name: "x".into(), fetch, kind: None, text: base.into() }
}

/// Whatever becomes of a variable, none is left in what the kernel is told, and it has a type.
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

/// The bytes are a file; and behind the first two, which say how many words the types are, types and strings.
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
            // Types that are broken further down end it.
            drop(variables(&btf, function.name, DEPTH, |known| {
                assert!(known.depth <= DEPTH && !known.text.is_empty());
            }));
        }
    }
}

//! The language of a frame (`profile.frame.type`), if its name and its file determine it.

use crate::profile::{Function, Location, Origin, Profile};

/// Returns the value of the attribute; `None` if unknown.
pub(super) fn kind(profile: &Profile, location: &Location) -> Option<&'static str> {
    // The outermost of the inlined functions is the one with a linker symbol.
    let function = location.lines.last().and_then(|line| profile.functions.get(line.function as usize));
    match location.origin {
        Origin::Kernel => Some("kernel"),
        Origin::Native => {
            let mapping = location.mapping.and_then(|place| profile.mappings.get(place as usize));
            let go = mapping.is_some_and(|mapping| mapping.go_build_id.is_some());
            let linkage = function.map_or("", |function| &function.linkage);
            Some(match linkage {
                name if is_rust(name) => "rust",
                name if go && is_go(name) => "go",
                _ => "native",
            })
        }
        Origin::Jit => function.and_then(made),
        Origin::Unknown => None,
    }
}

/// Reports whether a symbol is from Rust: `_R` of the v0 mangling, or the legacy mangling, which is C++'s with a hash at the end.
fn is_rust(linkage: &str) -> bool {
    // Suffixes added by LLVM.
    let name = linkage.split_once(".llvm.").map_or(linkage, |(name, _)| name);
    if let Some(rest) = name.strip_prefix("_R") {
        return rest.starts_with(|c: char| c.is_ascii_digit() || "CMXYNIB".contains(c));
    }
    let hash = name.strip_prefix("_ZN").and_then(|name| name.strip_suffix('E')).and_then(|name| {
        let at = name.len().checked_sub(19)?;
        name.get(at..)?.strip_prefix("17h")
    });
    hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Reports whether a function of a Go program is written in Go, not in linked C code. Go functions are in a package. C compilers append
/// only fixed words after a dot.
fn is_go(linkage: &str) -> bool {
    const OF_COMPILERS: [&str; 5] = ["part.", "isra.", "constprop.", "cold", "llvm."];
    let name = linkage.rsplit('/').next().unwrap_or(linkage);
    name.split_once('.').is_some_and(|(package, rest)| {
        !package.is_empty() && OF_COMPILERS.iter().all(|word| !rest.starts_with(word))
    })
}

/// Returns the runtime of JIT-compiled code, from its naming of functions in perf maps and jitdumps.
fn made(function: &Function) -> Option<&'static str> {
    /// Kinds of code in V8.
    const V8: [&str; 11] = [
        "JS",
        "LazyCompile",
        "Function",
        "Script",
        "Eval",
        "RegExp",
        "Builtin",
        "BytecodeHandler",
        "Handler",
        "Stub",
        "InterpretedFunction",
    ];
    /// Suffixes of tiers in .NET.
    const DOTNET: [&str; 6] =
        ["[Tier0]", "[Tier1]", "[OptimizedTier1]", "[PreJIT]", "[QuickJitted]", "[Optimized]"];
    let name = &*function.linkage;
    let v8 = || name.split_once(':').is_some_and(|(kind, _)| V8.contains(&kind));
    let java = || name.starts_with('L') && name.contains(";::");
    let dotnet = || DOTNET.iter().any(|tier| name.ends_with(tier));
    match () {
        () if v8() => Some("v8js"),
        () if name.starts_with("py::") => Some("cpython"),
        () if java() => Some("jvm"),
        () if dotnet() => Some("dotnet"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_rust_are_known_by_their_mangling() {
        for name in [
            "_RNvCs1234_7mycrate3foo",
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "_ZN4core3fmt5write17h0123456789abcdefE.llvm.123456",
        ] {
            assert!(is_rust(name), "{name}");
        }
        for name in [
            "main",
            "_ZN4core3fmtE",
            "_ZN1a17hxyz3456789abcdefE",
            "_Reserve",
            "_ZN2v88internal4Heap17CollectAllGarbageE",
        ] {
            assert!(!is_rust(name), "{name}");
        }
    }

    #[test]
    fn functions_of_go_are_in_packages() {
        for name in ["main.main", "runtime.mcall", "github.com/a/b.(*T).Do", "net/http.HandlerFunc.ServeHTTP"]
        {
            assert!(is_go(name), "{name}");
        }
        for name in ["malloc", "crosscall2", "parse.part.0", "parse.cold", ".L3", "sum.constprop.1.isra.0"] {
            assert!(!is_go(name), "{name}");
        }
    }

    #[test]
    fn code_that_was_made_at_run_time_tells_who_made_it() {
        let of = |name: &str| made(&Function { name: name.into(), linkage: name.into(), file: None });
        assert_eq!(of("LazyCompile:*render /app/view.js:12"), Some("v8js"));
        assert_eq!(of("py::main:/app/a.py"), Some("cpython"));
        assert_eq!(of("Ljava/lang/String;::hashCode"), Some("jvm"));
        assert_eq!(of("void [System.Private.CoreLib] System.A::B()[Tier0]"), Some("dotnet"));
        assert_eq!(of("fib"), None);
    }
}

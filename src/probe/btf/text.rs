//! Types in C notation.

use super::Result;
use super::types::{Kind, Type};

/// Maximum number of pointers, arrays and qualifiers in one type.
const DEPTH_LIMIT: usize = 32;

/// Returns the type in C notation: `const char *`, `struct sk_buff *`, `u8 [6]`. Parameters of function pointers are omitted: `int
/// (*)(...)`.
pub(super) fn of(of: Type<'_>) -> Result<String> {
    written(of, DEPTH_LIMIT)
}

fn written(of: Type<'_>, depth: usize) -> Result<String> {
    let Some(depth) = depth.checked_sub(1) else { return Err(of.circle()) };
    let inner = |of: Type<'_>| written(of.target()?, depth);
    let keyword = of.kind().as_str();
    let named = |keyword: &str| {
        let name = of.name()?;
        Ok(if name.is_empty() { format!("{keyword} {{...}}") } else { format!("{keyword} {name}") })
    };
    match of.kind() {
        Kind::Void | Kind::DataSec => Ok("void".to_owned()),
        Kind::Int | Kind::Float | Kind::Typedef | Kind::Var | Kind::Func | Kind::DeclTag => {
            Ok(of.name()?.to_owned())
        }
        Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => named(keyword),
        Kind::Fwd => named(if of.flag() { "union" } else { "struct" }),
        Kind::Const | Kind::Volatile | Kind::Restrict => Ok(qualified(keyword, &inner(of)?)),
        Kind::TypeTag => Ok(format!("{} __{}", inner(of)?, of.name()?)),
        Kind::Ptr => {
            let target = inner(of)?;
            Ok(match target.strip_suffix("()") {
                Some(returns) if of.target()?.kind() == Kind::FuncProto => format!("{returns}(*)(...)"),
                _ if target.ends_with('*') => format!("{target}*"),
                _ => format!("{target} *"),
            })
        }
        Kind::Array => Ok(format!("{} [{}]", inner(of)?, of.elements())),
        Kind::FuncProto => {
            let returns = inner(of)?;
            Ok(if returns.ends_with('*') { format!("{returns}()") } else { format!("{returns} ()") })
        }
    }
}

/// Adds a qualifier. The qualifier of a pointer follows it.
fn qualified(qualifier: &str, of: &str) -> String {
    if of.ends_with('*') { format!("{of}{qualifier}") } else { format!("{qualifier} {of}") }
}

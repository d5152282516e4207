//! Variables that are available at a function: its parameters, its return value, and the structure members of both.

use super::resolve::{DEPTH_LIMIT, MEMBER_LIMIT, Place, RETURN};
use super::types::{Kind, Type};
use super::{Btf, Prototype, Result, text};
use crate::probe::argument::{Fetch, FetchType, Variable};

/// Prefix of members that only mark a position in a structure (`CACHELINE_ASSERT_GROUP_MEMBER` of the kernel).
const MARK: &str = "__cacheline_group_";

/// A variable that is available at a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The variable as written in a probe: `size`, `sk->__sk_common.skc_dport`, or `$retval:s32`, which would be 64 bits wide without its
    /// type.
    pub text: String,
    /// Type in C notation.
    pub kind: String,
    /// Whether it is available at the function's return, instead of its entry.
    pub returned: bool,
    /// Structure nesting depth: 0 for a parameter.
    pub depth: usize,
    /// The fetch and its type, or the reason why the kernel cannot fetch it.
    pub taken: Result<(Fetch, FetchType)>,
}

/// Passes every variable that is available at a function to `each`, in source order: its parameters and its return value, with the members
/// of the structures that these are or point to, up to `depth` levels. Pointers in structures are not followed. Anonymous parameters are
/// skipped.
///
/// # Errors
/// Those of [`Btf::function`], and [`BtfError::Broken`](super::BtfError::Broken) for malformed types on the way.
pub fn variables(btf: &Btf, function: &str, depth: usize, each: impl FnMut(Known)) -> Result<()> {
    let prototype = btf.function(function)?;
    let mut walk = Walk { each, returned: false, deepest: depth, budget: MEMBER_LIMIT };
    for parameter in prototype.parameters.iter().filter(|parameter| !parameter.name.is_empty()) {
        walk.begin(btf, &prototype, parameter.name, &parameter.kind)?;
    }
    if prototype.returns != "void" {
        walk.returned = true;
        walk.begin(btf, &prototype, RETURN, &prototype.returns)?;
    }
    Ok(())
}

struct Walk<F> {
    each: F,
    returned: bool,
    deepest: usize,
    /// Number of members that may still be examined.
    budget: usize,
}

impl<F: FnMut(Known)> Walk<F> {
    fn begin(&mut self, btf: &Btf, function: &Prototype<'_>, name: &str, kind: &str) -> Result<()> {
        let variable = Variable { base: name.into(), path: Vec::new() };
        match Place::of(btf, function.name, self.returned, &variable) {
            Ok(place) => self.show(name.to_owned(), place, 0),
            Err(error) => {
                let (text, kind) = (name.to_owned(), kind.to_owned());
                (self.each)(Known { text, kind, returned: self.returned, depth: 0, taken: Err(error) });
                Ok(())
            }
        }
    }

    /// Passes a value and its members to `each`.
    fn show(&mut self, text: String, place: Place<'_>, depth: usize) -> Result<()> {
        let kind = text::of(place.kind)?;
        let taken = place.clone().natural();
        let written = match &taken {
            Ok((Fetch::Return, kind)) => format!("{text}:{kind}"),
            _ => text.clone(),
        };
        (self.each)(Known { text: written, kind, returned: self.returned, depth, taken });
        let arrow = place.kind.plain()?.kind() == Kind::Ptr;
        if depth == self.deepest || arrow && depth > 0 {
            return Ok(());
        }
        // If it cannot be followed, `taken` already contains the reason.
        let Ok(place) = place.follow() else { return Ok(()) };
        let of = place.kind.plain()?;
        let prefix = text + if arrow { "->" } else { "." };
        self.members(of, &place, &prefix, 0, depth + 1, DEPTH_LIMIT)
    }

    /// Passes the members of a structure to `each`. The structure begins `behind` bits into `place` and is nested in `depth` named
    /// structures. `anonymous` is the number of further anonymous levels.
    fn members<'b>(
        &mut self,
        of: Type<'b>,
        place: &Place<'b>,
        prefix: &str,
        behind: u64,
        depth: usize,
        anonymous: usize,
    ) -> Result<()> {
        for member in of.members() {
            self.budget = self.budget.checked_sub(1).ok_or_else(|| of.too_large())?;
            if member.is_anonymous() {
                let anonymous = anonymous.checked_sub(1).ok_or_else(|| of.circle())?;
                let behind = behind.saturating_add(member.offset);
                let inner = member.kind()?.plain()?;
                self.members(inner, place, prefix, behind, depth, anonymous)?;
            } else if !member.name()?.starts_with(MARK) {
                let text = format!("{prefix}{}", member.name()?);
                self.show(text, place.clone().at(behind, &member)?, depth)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{SIGNED, Writer};
    use super::*;
    use crate::probe::argument::Argument;

    fn kernel() -> Btf {
        let mut w = Writer::kernel();
        let int = w.int("int", 4, SIGNED);
        let short = w.int("short unsigned int", 2, 0);
        let long = w.int("long unsigned int", 8, 0);
        let char = w.int("char", 1, SIGNED);
        let name = w.array(char, 16);
        let ports = w.structure("", 4, &[("dport", short, 0), ("num", short, 16)]);
        let common = w.structure("sock_common", 16, &[("hash", long, 0), ("", ports, 64)]);
        let other = w.pointer(common);
        let sock =
            w.structure("sock", 64, &[("common", common, 0), ("next", other, 128), ("name", name, 192)]);
        let sock = w.pointer(sock);
        w.function("send", int, &[("sk", sock), ("size", long), ("", int)]);
        w.function("stop", 0, &[]);
        w.btf()
    }

    fn shown(btf: &Btf, depth: usize) -> Vec<String> {
        let mut shown = Vec::new();
        variables(btf, "send", depth, |known| {
            let taken = known.taken.map_or("-".to_owned(), |(fetch, kind)| format!("{fetch}:{kind}"));
            shown.push(format!("{} {} {taken}", known.depth, known.text));
        })
        .unwrap();
        shown
    }

    #[test]
    fn parameters_and_the_result_are_shown_with_what_they_become() {
        assert_eq!(shown(&kernel(), 0), ["0 sk $arg1:x64", "0 size $arg2:u64", "0 $retval:s32 $retval:s32"]);
        variables(&kernel(), "stop", 3, |known| panic!("{known:?}")).unwrap();
    }

    #[test]
    fn structures_are_opened_as_deep_as_asked_and_pointers_in_them_are_not() {
        let own = ["1 sk->common -", "1 sk->next +16($arg1):x64", "1 sk->name +24($arg1):string"];
        assert_eq!(shown(&kernel(), 1)[1..4], own);
        let inner = ["2 sk->common.hash +0($arg1):u64", "2 sk->common.dport +8($arg1):u16"];
        let deep = shown(&kernel(), 9);
        assert_eq!(deep[2..4], inner);
        assert_eq!(deep.len(), 9);
    }

    #[test]
    fn what_is_shown_is_what_resolving_it_gives() {
        let btf = kernel();
        variables(&btf, "send", 9, |known| {
            let argument = Argument::parse(&format!("name={}", known.text)).unwrap();
            let resolved = super::super::resolve(&btf, "send", known.returned, &argument);
            assert_eq!(resolved.map(|of| (of.fetch, of.kind.unwrap())), known.taken);
        })
        .unwrap();
    }
}

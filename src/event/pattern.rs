//! Shell patterns over event names, and the closest name to a misspelled one.

/// Reports whether a word is a pattern instead of a name.
pub(super) fn is_pattern(word: &str) -> bool {
    word.contains(['*', '?', '['])
}

/// Reports whether all of `text` matches `pattern`: `*`, `?`, `[a-z]`, `[!a-z]`, as `fnmatch(3)` without flags. An unclosed bracket is a
/// literal character. Takes at most `pattern × text` steps.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    // Neither index exceeds the length of its text: `p` advances only over existing elements.
    let (mut p, mut t) = (0, 0);
    // Position of the last star, and the position in the text up to which it matches.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if let Some(width) = matches_one(&pattern[p..], text[t]) {
            p += width;
            t += 1;
        } else if let Some((at, swallowed)) = star {
            star = Some((at, swallowed + 1));
            (p, t) = (at + 1, swallowed + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Returns the length of the first element of `pattern` if it matches `byte`.
fn matches_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => match class(&pattern[1..]) {
            Some((members, negated)) => {
                let width = 2 + usize::from(negated) + members.len();
                (in_class(members, byte) != negated).then_some(width)
            }
            None => (byte == b'[').then_some(1),
        },
        literal => (literal == byte).then_some(1),
    }
}

/// Returns the members of a bracket expression, and whether it is negated. A leading `]` is a member.
fn class(behind: &[u8]) -> Option<(&[u8], bool)> {
    let negated = matches!(behind.first(), Some(b'!' | b'^'));
    let members = &behind[usize::from(negated)..];
    let end = 1 + members.get(1..)?.iter().position(|&b| b == b']')?;
    Some((&members[..end], negated))
}

fn in_class(members: &[u8], byte: u8) -> bool {
    let mut rest = members;
    while let [low, behind @ ..] = rest {
        let (high, behind) =
            if let [b'-', high, behind @ ..] = behind { (high, behind) } else { (low, behind) };
        if (*low..=*high).contains(&byte) {
            return true;
        }
        rest = behind;
    }
    false
}

/// Maximum length of a word for which a suggestion is sought, in bytes.
const WORD_LIMIT: usize = 64;

/// Returns the closest name to `word`, if it is close enough: a difference in case, or one typing error per three letters. A typing error
/// is a wrong, missing or added letter, or two swapped letters.
pub(crate) fn nearest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if word.len() > WORD_LIMIT {
        return None;
    }
    let wanted = word.to_ascii_lowercase();
    let allowed = (word.len() / 3).clamp(1, 4);
    let near = names.into_iter().filter(|name| name.len().abs_diff(word.len()) <= allowed);
    let scored = near.map(|name| (distance(wanted.as_bytes(), name.to_ascii_lowercase().as_bytes()), name));
    scored.filter(|&(errors, _)| errors <= allowed).min().map(|(_, name)| name)
}

/// Returns the edit distance with swaps of adjacent letters (optimal string alignment).
fn distance(a: &[u8], b: &[u8]) -> usize {
    // Rows of the distance table between prefixes of `a` and `b`. Each row has `b.len() + 1` elements, so all indices below are valid.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_the_shells_do() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("sys_enter_*", "sys_enter_read", true),
            ("sys_enter_*", "sys_exit_read", false),
            ("*_r?ad", "sys_enter_read", true),
            ("a*b*c", "aXbXbc", true),
            ("imc_[0-2]", "imc_2", true),
            ("imc_[!0-2]", "imc_2", false),
            ("imc_[]x]", "imc_]", true),
            ("imc_[0", "imc_[0", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_typing_error_finds_its_name_and_another_word_does_not() {
        let names = ["cycles", "instructions", "L1-dcache-loads", "cs"];
        assert_eq!(nearest("cylces", names), Some("cycles"));
        assert_eq!(nearest("l1-dcache-loads", names), Some("L1-dcache-loads"));
        assert_eq!(nearest("instrutions", names), Some("instructions"));
        assert_eq!(nearest("horses", names), None);
        assert_eq!(nearest(&"c".repeat(1 << 20), names), None);
    }

    proptest! {
        #[test]
        fn a_star_for_any_part_of_a_text_matches_the_text(text in "[a-z_]{0,20}", from in 0usize..20, to in 0usize..20) {
            let (from, to) = (from.min(text.len()), to.min(text.len()));
            let (from, to) = (from.min(to), from.max(to));
            let pattern = format!("{}*{}", &text[..from], &text[to..]);
            prop_assert!(matches(&pattern, &text));
        }

        #[test]
        fn no_pattern_panics(pattern in ".{0,30}", text in ".{0,30}") {
            let _: bool = matches(&pattern, &text);
        }
    }
}

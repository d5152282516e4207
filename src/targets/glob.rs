//! Patterns for paths and names.

use std::fmt;
use std::hash::{Hash, Hasher};

use globset::{GlobBuilder, GlobMatcher};

/// A pattern: `*` and `?` do not match a slash, `**` does; `{a,b}` and `[a-z]` are alternatives.
#[derive(Clone)]
pub struct Glob {
    text: String,
    path: GlobMatcher,
    name: GlobMatcher,
}

/// Error of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is not a pattern: {reason}")]
pub struct GlobError {
    pattern: String,
    reason: String,
}

impl Glob {
    /// Compiles a pattern. A backslash is an ordinary character, because systemd writes `\x2d` into cgroup names.
    ///
    /// # Errors
    /// When a bracket or brace is not closed, or the pattern is too large to compile.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        let compile = |stop_at_slash| {
            let glob =
                GlobBuilder::new(pattern).literal_separator(stop_at_slash).backslash_escape(false).build();
            glob.map(|glob| glob.compile_matcher())
                .map_err(|error| GlobError { pattern: pattern.to_owned(), reason: error.kind().to_string() })
        };
        Ok(Self { text: pattern.to_owned(), path: compile(true)?, name: compile(false)? })
    }

    /// Returns the pattern that matches only this text.
    pub fn literal(text: &str) -> String {
        globset::escape(text)
    }

    /// Reports whether the whole path `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.path.is_match(text)
    }

    /// Reports whether the whole name `text` matches. In a name, a slash is an ordinary character: `*` matches `kworker/0:1`.
    pub fn matches_name(&self, text: &str) -> bool {
        self.name.is_match(text)
    }

    /// Returns the pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Glob {}

impl Hash for Glob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Glob({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stops_at_a_slash_and_two_do_not() {
        let one = Glob::new("/system.slice/*").unwrap();
        assert!(one.matches("/system.slice/a.service"));
        assert!(!one.matches("/system.slice/a.service/b"));
        assert!(Glob::new("/kubepods*/**").unwrap().matches("/kubepods.slice/x/y"));
    }

    proptest! {
        #[test]
        fn a_literal_pattern_matches_its_text_and_no_other(text in "[a-c*?{}!\\[\\]/,\\\\-]{1,12}", other in "[a-c*?{}!\\[\\]/,\\\\-]{1,12}") {
            let literal = Glob::new(&Glob::literal(&text)).unwrap();
            prop_assert!(literal.matches(&text) && literal.matches_name(&text), "{}", literal.as_str());
            prop_assert_eq!(literal.matches_name(&other), text == other);
        }
    }

    #[test]
    fn in_a_name_a_slash_is_a_character_like_any_other() {
        let any = Glob::new("*").unwrap();
        assert!(any.matches_name("kworker/0:1"));
        assert!(!any.matches("kworker/0:1"));
        assert!(!Glob::new("nginx*").unwrap().matches_name("kworker/0:1"));
    }

    #[test]
    fn systemds_escapes_are_ordinary_text() {
        assert!(Glob::new(r"/system.slice/a\x2db.service").unwrap().matches(r"/system.slice/a\x2db.service"));
    }

    #[test]
    fn an_open_bracket_is_named() {
        let error = Glob::new("/a[b").unwrap_err().to_string();
        assert!(error.starts_with("\"/a[b\" is not a pattern: "), "{error}");
    }
}

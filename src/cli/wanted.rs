//! A name pattern from the command line.

use crate::targets::Glob;

/// Matches names that contain a text or match a glob pattern. Without a pattern, all names match.
pub(super) struct Wanted {
    text: String,
    glob: Option<Glob>,
}

impl Wanted {
    /// Parses the pattern. It is a glob if it contains `*`, `?` or `[`.
    pub(super) fn new(pattern: Option<&str>) -> anyhow::Result<Self> {
        let text = pattern.unwrap_or_default().to_owned();
        let glob = text.contains(['*', '?', '[']).then(|| Glob::new(&text)).transpose()?;
        Ok(Self { text, glob })
    }

    pub(super) fn includes(&self, name: &str) -> bool {
        match &self.glob {
            Some(glob) => glob.matches_name(name),
            None => name.contains(&self.text),
        }
    }

    /// Returns the sort order of a matching name: 0 for the exact name, 1 for names with this prefix, 2 for all others.
    pub(super) fn rank(&self, name: &str) -> u8 {
        match name.strip_prefix(&*self.text) {
            Some("") => 0,
            Some(_) => 1,
            None => 2,
        }
    }

    /// Returns the pattern as typed, or an empty text if there is none.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Reports whether the pattern is a plain text, that is, not empty and not a glob.
    pub(super) fn is_word(&self) -> bool {
        !self.text.is_empty() && self.glob.is_none()
    }
}

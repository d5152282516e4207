//! A pattern on the command line.

use crate::target::Glob;

/// Which names are asked for: those that have a text in them, or match a pattern; all by default.
pub(super) struct Wanted {
    text: String,
    glob: Option<Glob>,
}

impl Wanted {
    /// What was typed.
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

    /// What to show first: the name itself, then names that begin with it.
    pub(super) fn rank(&self, name: &str) -> u8 {
        match name.strip_prefix(&*self.text) {
            Some("") => 0,
            Some(_) => 1,
            None => 2,
        }
    }

    /// The pattern as it was typed; empty if none was.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it could be a name.
    pub(super) fn is_word(&self) -> bool {
        !self.text.is_empty() && self.glob.is_none()
    }
}

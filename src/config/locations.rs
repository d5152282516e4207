//! Positions of words in a configuration file, for problems that only a host reveals: an event, a field or a function that does not exist
//! there.

use std::fmt;
use std::sync::Arc;

use super::yaml::{Node, NodeId, Source, Value};
use crate::event;

/// Text of a configuration file.
#[derive(Clone, PartialEq, Eq)]
pub struct Locations {
    file: Arc<str>,
    text: Arc<[u8]>,
}

/// Position of a word in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// File name as given by the caller.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: usize,
    /// Character within the line, from 1.
    pub column: usize,
    /// Path in the tree: `counters.core.events[1]`.
    pub path: String,
}

impl Location {
    /// Returns `FILE:LINE:COLUMN`.
    pub fn position(&self) -> String {
        let Self { file, line, column, .. } = self;
        format!("{file}:{line}:{column}")
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position(), self.path)
    }
}

/// The text can be long, and is not part of the settings.
impl fmt::Debug for Locations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locations({})", self.file)
    }
}

/// Part of a value in the file: `word` at `offset` bytes into `text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Text to search for.
    pub text: Arc<str>,
    /// Offset of the wrong word in the text, in bytes.
    pub offset: usize,
}

impl Locations {
    pub(super) fn new(file: &str, text: &[u8]) -> Self {
        Self { file: file.into(), text: text.into() }
    }

    /// Returns the position of the first of `words` that the entry contains, or of the entry if it contains none of them. `None` if the
    /// file does not contain the entry. `entry` equals `section` for sections without entries.
    pub fn find(&self, section: &str, entry: &str, words: &[Word]) -> Option<Location> {
        let source = Source::parse(&self.text, &self.file).ok()?;
        let (_, block) = child(source.root(), section)?;
        let node = if entry == section { block } else { of_entry(block, entry)? };
        let mut texts = Vec::new();
        scalars(node, &mut texts);
        let found = words.iter().find_map(|word| self.word(&source, &texts, word));
        Some(found.unwrap_or_else(|| self.at(&source, node.id)))
    }

    fn at(&self, source: &Source<'_>, at: NodeId) -> Location {
        let (line, column, path) = source.position(at);
        Location { file: Arc::clone(&self.file), line, column, path }
    }

    /// Returns the position of a word in one of these texts: one that is equal, one that contains it, or one that describes the same event.
    fn word(&self, source: &Source<'_>, texts: &[&Node], word: &Word) -> Option<Location> {
        let equal = |node: &&&Node| node.word() == &*word.text;
        let contains = |node: &&&Node| offset_of(node.word(), &word.text).is_some();
        let same_event = |node: &&&Node| is_event(node.word(), &word.text);
        let mut texts = texts.iter();
        let node = (texts.clone().find(equal))
            .or_else(|| texts.clone().find(contains))
            .or_else(|| texts.find(same_event))?;
        let mut found = self.at(source, node.id);
        if let Some((lines, columns)) = self.within(source, node.id, word) {
            found.column = if lines == 0 { found.column + columns } else { columns + 1 };
            found.line += lines;
        }
        Some(found)
    }

    /// Returns the distance of a word from the start of its node, in lines and characters. `None` if the file writes the word differently,
    /// for example with escape sequences.
    fn within(&self, source: &Source<'_>, at: NodeId, word: &Word) -> Option<(usize, usize)> {
        let rest = source.rest(at)?;
        let offset = match offset_of(rest, &word.text) {
            Some(start) => start + word.offset,
            None => offset_of(rest, word.text.split(['/', ':']).next()?)?,
        };
        let before = rest.get(..offset)?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count(), line.chars().count()))
    }
}

fn child<'n>(node: &'n Node, key: &str) -> Option<(&'n Node, &'n Node)> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|(found, _)| found.word() == key).map(|(key, value)| (key, value))
}

/// Returns the value of an entry. An entry of a list, as in `presets`, is its item.
fn of_entry<'n>(block: &'n Node, entry: &str) -> Option<&'n Node> {
    match &block.value {
        Value::List(items) => items.iter().find(|item| item.word() == entry),
        _ => child(block, entry).map(|(_, value)| value),
    }
}

/// Adds the texts in a node, in the order of the file.
fn scalars<'n>(node: &'n Node, found: &mut Vec<&'n Node>) {
    match &node.value {
        Value::Text(_) => found.push(node),
        Value::List(items) => items.iter().for_each(|item| scalars(item, found)),
        Value::Map(entries) => {
            for (_, value) in entries {
                scalars(value, found);
            }
        }
        _ => {}
    }
}

/// Returns the offset of a word in a text, in bytes. A part of a longer word does not match.
fn offset_of(text: &str, word: &str) -> Option<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let bounds = |at: usize| {
        let before = text[..at].chars().next_back().filter(|_| word.starts_with(is_word));
        let after = text[at + word.len()..].chars().next().filter(|_| word.ends_with(is_word));
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    let mut all = text.match_indices(word).map(|(at, _)| at).filter(|_| !word.is_empty());
    all.find(|&at| bounds(at))
}

/// Reports whether a text of the file contains the event that a message writes as `event`.
fn is_event(text: &str, event: &str) -> bool {
    let written = |event: &event::syntax::Event| event::syntax::Event { alias: None, ..event.clone() };
    let groups = event::parse(text).unwrap_or_default();
    groups.iter().flat_map(|group| &group.events).any(|found| written(found).to_string() == event)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
counters:
  a:
    events: [cycles, \"instructions,pmu_x/event=1/\", nosuch]
tracepoints:
  t:
    event: sched:sched_switch
    filter: 'prev_pid > 1 && nxt_pid > 2'
    labels: {é: x, next: nxt_pid}
presets:
  - forks
";

    fn find(section: &str, entry: &str, text: &str, offset: usize) -> Option<String> {
        let word = Word { text: text.into(), offset };
        Locations::new("f", TEXT.as_bytes()).find(section, entry, &[word]).map(|found| found.to_string())
    }

    #[test]
    fn a_word_is_found_in_the_values_of_its_entry() {
        for (section, entry, text, offset, expected) in [
            ("counters", "a", "nosuch", 0, "f:3:53: counters.a.events[2]"),
            ("counters", "a", "instructions", 0, "f:3:23: counters.a.events[1]"),
            ("counters", "a", "pmu_x/event=0x1/", 0, "f:3:36: counters.a.events[1]"),
            ("tracepoints", "t", "prev_pid > 1 && nxt_pid > 2", 16, "f:7:30: tracepoints.t.filter"),
            ("tracepoints", "t", "nxt_pid", 0, "f:8:26: tracepoints.t.labels.next"),
            ("tracepoints", "t", "absent", 0, "f:5:3: tracepoints.t"),
            ("presets", "forks", "x", 0, "f:10:5: presets[0]"),
        ] {
            assert_eq!(find(section, entry, text, offset).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(find("counters", "b", "x", 0), None);
    }

    #[test]
    fn a_part_of_a_longer_word_does_not_match() {
        assert_eq!(offset_of("sched_switch,sched", "sched"), Some(13));
        assert_eq!(offset_of("a", ""), None);
    }
}

//! YAML tree whose nodes have positions in the text.
//!
//! The YAML library reports a position only with an error. So nodes are numbered in the order of the text. To find the position of a node,
//! the text is parsed again and rejected at that number.

mod fault;
mod remove;
mod structure;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::problem::{Problem, Severity, shown};
use fault::Explained;
pub(super) use remove::{is_consequence, is_limit, without_block};

/// Maximum file size, in bytes. A configuration is a few kilobytes.
const TEXT_LIMIT: usize = 1 << 20;
/// Maximum number of keys and values, including those that aliases (`*name`) repeat.
const NODE_LIMIT: u32 = 20_000;
/// Maximum size of their text, including repetitions, in bytes.
const EXPANDED_LIMIT: usize = 4 << 20;

/// Number of a key or value, in the order of the text; a node precedes its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u32);

/// Node of the tree.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) value: Value,
}

/// Value by the core schema of YAML: `on` and `yes` are text.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Keys are texts: numbers and `true` are converted to their text.
    Map(Vec<(Node, Node)>),
}

/// Parsed configuration file.
#[derive(Debug)]
pub(super) struct Source<'t> {
    file: &'t str,
    text: &'t str,
    root: Node,
}

impl<'t> Source<'t> {
    /// Parses a file with one YAML document or none.
    ///
    /// # Errors
    /// The problem that makes the rest of the file unreadable.
    pub(super) fn parse(text: &'t [u8], file: &'t str) -> Result<Self, Problem> {
        Self::read(text, file).map_err(|((line, column), message, hint)| Problem {
            file: file.into(),
            line,
            column,
            path: String::new(),
            message,
            hint,
            severity: Severity::Error,
        })
    }

    /// Returns the directory of the file. Relative paths in the file start there.
    pub(super) fn directory(&self) -> PathBuf {
        Path::new(self.file).parent().map(Path::to_owned).unwrap_or_default()
    }

    fn read(text: &'t [u8], file: &'t str) -> Result<Self, Explained> {
        if text.len() > TEXT_LIMIT {
            let message = format!("the file has {} bytes, at most {TEXT_LIMIT} are allowed", text.len());
            return Err(((1, 1), message, Some("check whether it is the right file".into())));
        }
        let text = fault::characters(text)?;
        structure::check(text)?;
        let mut builder = Builder::default();
        let root = builder.value().deserialize(serde_yaml::Deserializer::from_str(text));
        match (root, builder.fault) {
            (Ok(root), _) => Ok(Self { file, text, root }),
            (Err(_), Some((at, message, hint))) => Err((locate(text, 0, at), message, Some(hint.into()))),
            (Err(error), None) => Err(fault::explain(text, &error, || locate(text, 1, NodeId(0)))),
        }
    }

    /// Returns the whole document; `Value::Null` if there is none.
    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    /// Returns the value with this number; `None` for keys.
    pub(super) fn node(&self, at: NodeId) -> Option<&Node> {
        let mut node = &self.root;
        while node.id < at {
            (_, _, node) = node.step(at)?;
        }
        (node.id == at).then_some(node)
    }

    /// Creates a problem of a key or value.
    pub(super) fn problem(
        &self,
        at: NodeId,
        message: String,
        hint: Option<String>,
        severity: Severity,
    ) -> Problem {
        let (line, column, path) = self.position(at);
        Problem { file: self.file.into(), line, column, path, message, hint, severity }
    }

    /// Returns line, column and path of a key or value.
    pub(super) fn position(&self, at: NodeId) -> (usize, usize, String) {
        let (path, place) = self.path(at);
        let (line, column) = locate(self.text, 0, place);
        (line, column, path)
    }

    /// Returns the text of the file from a scalar to the end.
    pub(super) fn rest(&self, at: NodeId) -> Option<&'t str> {
        let (line, column) = locate(self.text, 0, at);
        let start: usize = self.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let rest = self.text.get(start..)?;
        let (skipped, _) = rest.char_indices().nth(column - 1)?;
        rest.get(skipped..)
    }

    /// Returns a path such as `counters.core.events[1]`, and the node whose position is shown. For a block, a list or an empty value this
    /// is the key, because the value begins on a later line or not at all.
    fn path(&self, to: NodeId) -> (String, NodeId) {
        let (mut path, mut place) = (String::new(), to);
        let mut node = &self.root;
        while let Some((index, key, inner)) = node.step(to).filter(|_| node.id < to) {
            match key {
                None => path.push_str(&format!("[{index}]")),
                Some(key) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&segment(key.word()));
                    if inner.id == to && matches!(inner.value, Value::Map(_) | Value::List(_) | Value::Null) {
                        place = key.id;
                    }
                }
            }
            node = inner;
        }
        (path, place)
    }
}

impl Node {
    /// Returns the text of a key.
    pub(super) fn word(&self) -> &str {
        if let Value::Text(word) = &self.value { word } else { "" }
    }

    /// Returns the step towards a descendant: the child with the highest number up to `to`, with its index and its key, if it has one.
    fn step(&self, to: NodeId) -> Option<(usize, Option<&Self>, &Self)> {
        match &self.value {
            Value::List(items) => {
                let index = items.partition_point(|item| item.id <= to).checked_sub(1)?;
                items.get(index).map(|item| (index, None, item))
            }
            Value::Map(entries) => {
                let index = entries.partition_point(|(key, _)| key.id <= to).checked_sub(1)?;
                entries.get(index).map(|(key, value)| (index, Some(key), value))
            }
            _ => None,
        }
    }

    /// Returns the last descendant, or this node if it has none.
    pub(super) fn last(&self) -> NodeId {
        self.step(NodeId(u32::MAX)).map_or(self.id, |(_, _, inner)| inner.last())
    }
}

/// Returns a key as part of a path, in quotes if it is not a plain word.
fn segment(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(plain) && key.len() <= 40 { key.to_owned() } else { shown(key) }
}

/// Returns line and column of a node in a document of the text, both from 1.
fn locate(text: &str, document: usize, at: NodeId) -> (usize, usize) {
    let mut builder = Builder { stop: Some(at), ..Builder::default() };
    let document = serde_yaml::Deserializer::from_str(text).nth(document);
    match document.map(|document| builder.value().deserialize(document)) {
        Some(Err(error)) => error.location().map_or((1, 1), |place| (place.line(), place.column())),
        _ => (1, 1),
    }
}

/// State of building the tree.
#[derive(Default)]
struct Builder {
    nodes: u32,
    bytes: usize,
    /// Node at which to stop.
    stop: Option<NodeId>,
    /// Reason, position and correction of a rejection by this module.
    fault: Option<(NodeId, String, &'static str)>,
}

impl Builder {
    /// Returns the seed that reads a value.
    fn value(&mut self) -> NodeSeed<'_> {
        NodeSeed { builder: self, is_key: false }
    }

    /// Returns the number of the next node, whose text has `bytes` bytes.
    fn enter<E: de::Error>(&mut self, bytes: usize) -> Result<NodeId, E> {
        let id = NodeId(self.nodes);
        if self.stop == Some(id) {
            return Err(E::custom("position reached"));
        }
        self.nodes += 1;
        self.bytes += bytes;
        if self.nodes > NODE_LIMIT || self.bytes > EXPANDED_LIMIT {
            let message =
                format!("the file contains more than {NODE_LIMIT} values when its aliases are expanded");
            return Err(self.refuse(id, message, "remove values, or use fewer aliases (`*name`)"));
        }
        Ok(id)
    }

    fn refuse<E: de::Error>(&mut self, at: NodeId, message: String, hint: &'static str) -> E {
        let error = E::custom(&message);
        self.fault = Some((at, message, hint));
        error
    }
}

/// Reads one value, or a key, which must be a scalar.
struct NodeSeed<'b> {
    builder: &'b mut Builder,
    is_key: bool,
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl NodeSeed<'_> {
    fn scalar<E: de::Error>(self, value: Value) -> Result<Node, E> {
        let bytes = if let Value::Text(text) = &value { text.len() } else { 0 };
        Ok(Node { id: self.builder.enter(bytes)?, value })
    }

    /// Returns the number of a node that cannot be a key.
    fn enter_block<E: de::Error>(&mut self) -> Result<NodeId, E> {
        let id = self.builder.enter(0)?;
        if self.is_key {
            let hint =
                "if this is a template (`{{ … }}`), render it first; otherwise put the value in quotes";
            return Err(self.builder.refuse(id, "a list or map is not allowed as a key".into(), hint));
        }
        Ok(id)
    }
}

/// Visitor methods for scalars.
macro_rules! scalars {
    ($($visit:ident($($value:ident: $type:ty)?) => $read:expr;)+) => {$(
        fn $visit<E: de::Error>(self $(, $value: $type)?) -> Result<Node, E> {
            self.scalar($read)
        }
    )+};
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    scalars! {
        visit_unit() => Value::Null;
        visit_none() => Value::Null;
        visit_bool(value: bool) => Value::Bool(value);
        visit_i64(number: i64) => Value::Integer(number.into());
        visit_u64(number: u64) => Value::Integer(number.into());
        visit_i128(number: i128) => Value::Integer(number);
        visit_u128(number: u128) => Value::Float(number as f64);
        visit_f64(number: f64) => Value::Float(number);
        visit_str(text: &str) => Value::Text(text.to_owned());
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Node, A::Error> {
        let id = self.enter_block()?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.builder.value())? {
            items.push(item);
        }
        Ok(Node { id, value: Value::List(items) })
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Node, A::Error> {
        let id = self.enter_block()?;
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        while let Some(key) = map.next_key_seed(NodeSeed { builder: self.builder, is_key: true })? {
            let word = key.value.into_word();
            if !seen.insert(word.clone()) {
                let message = format!("duplicate key {} in this block", shown(&word));
                return Err(self.builder.refuse(key.id, message, "merge the two, or rename one"));
            }
            let key = Node { value: Value::Text(word), ..key };
            entries.push((key, map.next_value_seed(self.builder.value())?));
        }
        Ok(Node { id, value: Value::Map(entries) })
    }

    fn visit_enum<A: de::EnumAccess<'de>>(mut self, _: A) -> Result<Node, A::Error> {
        let id = self.enter_block()?;
        let hint = "leave it out, or put the text in quotes if it begins with `!`";
        Err(self.builder.refuse(id, "YAML tags (`!name`) are not supported".into(), hint))
    }
}

impl Value {
    /// Returns the text of a key.
    fn into_word(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Bool(value) => value.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            // Lists and maps are rejected as keys before.
            Self::Null | Self::List(_) | Self::Map(_) => "null".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::syntax_error;

    fn source(text: &str) -> Source<'_> {
        Source::parse(text.as_bytes(), "f").unwrap()
    }

    /// Returns the position and path of every node.
    fn places(text: &str) -> Vec<String> {
        let source = source(text);
        let ids = (0..=source.root().last().0).map(NodeId);
        let problems = ids.map(|id| source.problem(id, String::new(), None, Severity::Error));
        problems.map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.path)).collect()
    }

    #[test]
    fn every_node_knows_its_path_and_place() {
        let text = "a: 1\nlist:\n  - x\n  - {k: [é, y]}\nnone:\n\"odd key\": 2\n";
        let expected = [
            "1:1 ",
            "1:1 a",
            "1:4 a",
            "2:1 list",
            "2:1 list",
            "3:5 list[0]",
            "4:5 list[1]",
            "4:6 list[1].k",
            "4:6 list[1].k",
            "4:10 list[1].k[0]",
            "4:13 list[1].k[1]",
            "5:1 none",
            "5:1 none",
            "6:1 `odd key`",
            "6:12 `odd key`",
        ];
        assert_eq!(places(text), expected);
    }

    #[test]
    fn a_repeated_value_is_shown_where_it_was_written() {
        assert_eq!(
            places("a: &x [1]\nb: *x\n"),
            ["1:1 ", "1:1 a", "1:1 a", "1:8 a[0]", "2:1 b", "2:1 b", "1:8 b[0]"]
        );
    }

    #[test]
    fn scalars_are_what_yaml_1_2_says() {
        let source = source("[1, -1, 0x10, 1.5, true, on, yes, ~, '1', 18446744073709551616]");
        let Value::List(items) = &source.root().value else { panic!() };
        let kinds: Vec<_> = items.iter().map(|item| format!("{:?}", item.value)).collect();
        let expected = [
            "Integer(1)",
            "Integer(-1)",
            "Integer(16)",
            "Float(1.5)",
            "Bool(true)",
            "Text(\"on\")",
            "Text(\"yes\")",
            "Null",
            "Text(\"1\")",
            "Float(1.8446744073709552e19)",
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn a_key_that_stands_twice_is_shown_at_its_second_place() {
        let expected = "3:3: duplicate key `b` in this block; merge the two, or rename one";
        assert_eq!(syntax_error("a:\n  b: 1\n  b: 2\n"), expected);
    }

    #[test]
    fn a_template_that_nobody_rendered_is_recognised() {
        assert!(
            syntax_error("listen: {{ .Values.listen }}\n")
                .contains("if this is a template (`{{ … }}`), render it first")
        );
    }

    #[test]
    fn tags_are_refused() {
        assert!(syntax_error("a: !secret b\n").starts_with("1:4: YAML tags (`!name`) are not supported"));
    }
}

//! Deserializes the tree of a file to the types of [`file`](super::file), and reports all errors.
//!
//! serde stops at the first error. This module reports the value at which it stopped, marks the value as absent, and deserializes the tree
//! again until no error remains. So the derived types are the only description of the file format, and all of their errors are reported.

mod refusal;

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeOwned, Deserializer, IntoDeserializer, MapAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use refusal::{Refusal, found_words};

use super::problem::{all_of, one_of};
use super::report::{PROBLEM_LIMIT, Report};
use super::yaml::{Node, NodeId, Value};

/// Value with its node in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<T> {
    /// Node.
    pub(super) node: NodeId,
    /// Value.
    pub(super) value: T,
}

/// Returns the node of a value, if the file contains the value.
pub(super) fn node_of<T>(written: &Option<At<T>>) -> Option<NodeId> {
    written.as_ref().map(|at| at.node)
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Decodes all valid parts of `root`, and reports the rest. Returns `None` if no part is valid or there are too many problems.
pub(super) fn decode<T: DeserializeOwned>(root: &Node, report: &mut Report<'_>) -> Option<T> {
    let mut refused = BTreeSet::new();
    loop {
        let refusal = match T::deserialize(Place { node: root, refused: &refused }) {
            Ok(value) => return Some(value),
            Err(refusal) => refusal,
        };
        let at = refusal.at.unwrap_or(root.id);
        if !refusal.follows_another {
            report.error(at, refusal.message, refusal.hint);
        }
        let progress = at != root.id && refused.insert(at);
        if !progress || refused.len() == PROBLEM_LIMIT {
            return None;
        }
    }
}

/// Node to decode, with the nodes that have been rejected so far.
#[derive(Clone, Copy)]
struct Place<'n> {
    node: &'n Node,
    refused: &'n BTreeSet<NodeId>,
}

/// Struct name by which [`At`] requests a value together with its node from this deserializer.
const AT: &str = "perf_exporter::config::At";

/// Name of structs whose first field may be written as a text alone. The other fields need `serde(default)`.
const TEXT_OR_BLOCK: &str = "TextOrBlock";

/// Name of structs whose first field may be written alone, as a list or as one of its items. The fields need `serde(default)`.
const LIST_OR_BLOCK: &str = "ListOrBlock";

/// Struct name that requests a list of texts, a single text, or a block.
pub(super) const TEXTS_OR_BLOCK: &str = "TextsOrBlock";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut pair = deserializer.deserialize_tuple_struct(AT, 2, Pairs(PhantomData))?;
        let (node, value) =
            pair.pop().ok_or_else(|| de::Error::invalid_length(0, &"a node and its value"))?;
        Ok(Self { node: NodeId(node), value })
    }
}

/// Visitor that reads the entries of a block in the order of the file.
pub(super) struct Pairs<K, V>(pub(super) PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Pairs<K, V> {
    type Value = Vec<(K, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block of `name: …`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        std::iter::from_fn(|| map.next_entry().transpose()).collect()
    }
}

impl<'n> Place<'n> {
    fn on(self, node: &'n Node) -> Self {
        Self { node, ..self }
    }

    /// Adds this node as the position of an error that has none.
    fn here<T>(&self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        result.map_err(|refusal| refusal.at(self.node.id))
    }

    fn found(&self) -> String {
        match &self.node.value {
            Value::Integer(number) => format!("the number {number}"),
            value => found_words(unexpected(value)),
        }
    }

    /// Returns the error for a value of an unexpected kind.
    fn mismatch(&self, expected: &str) -> Refusal {
        let message = format!("expected {expected}, found {}", self.found());
        Refusal::new(message, None).at(self.node.id)
    }

    /// Returns the error for a value that would be a text with quotes.
    fn not_a_text(&self, expected: &str) -> Refusal {
        let text = match &self.node.value {
            Value::Bool(value) => value.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            value => match unquoted(value) {
                Some(text) => return Refusal::unquoted(&text).at(self.node.id),
                None => return self.mismatch(expected),
            },
        };
        let hint = format!("to write a text, put it in quotes: \"{text}\"");
        Refusal { hint: Some(hint), ..self.mismatch(expected) }
    }

    /// Visits the items that have not been rejected.
    fn visit_list<'de, V: Visitor<'de>>(self, items: &[Node], visitor: V) -> Result<V::Value, Refusal> {
        let kept = items.iter().filter(|item| !self.refused.contains(&item.id));
        self.here(visitor.visit_seq(SeqDeserializer::new(kept.map(|item| self.on(item)))))
    }

    /// Visits this node as the only item of a list.
    fn visit_alone<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.here(visitor.visit_seq(SeqDeserializer::new(std::iter::once(self))))
    }

    /// Visits the entries whose key and value have not been rejected.
    fn visit_block<'de, V: Visitor<'de>>(
        self,
        entries: &[(Node, Node)],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        let refused = |node: &Node| self.refused.contains(&node.id);
        let kept = entries.iter().filter(|(key, value)| !refused(key) && !refused(value));
        let places = kept.map(|(key, value)| (self.on(key), self.on(value)));
        let result = visitor.visit_map(MapDeserializer::new(places));
        self.here(result.map_err(|refusal| self.judge_missing(entries, refusal)))
    }

    /// Marks a missing field as the consequence of a key or value that was rejected in this block.
    fn judge_missing(&self, entries: &[(Node, Node)], refusal: Refusal) -> Refusal {
        let Some(field) = refusal.missing.filter(|_| refusal.at.is_none()) else { return refusal };
        let follows_another = entries.iter().any(|(key, value)| {
            self.refused.contains(&key.id) || (key.word() == field && self.refused.contains(&value.id))
        });
        Refusal { follows_another, ..refusal }
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Integer(number) => Unexpected::Signed(i64::try_from(*number).unwrap_or(i64::MAX)),
        Value::Float(number) => Unexpected::Float(*number),
        Value::Text(text) => Unexpected::Str(text),
        Value::List(_) => Unexpected::Seq,
        Value::Map(_) => Unexpected::Map,
    }
}

/// Returns the text that was probably meant by a YAML map: `{a,b}`, which YAML parses as keys without values, or `a: b`, which is a text
/// with quotes or without the space.
fn unquoted(value: &Value) -> Option<String> {
    let Value::Map(entries) = value else { return None };
    if let [(key, Node { value: Value::Text(text), .. })] = &entries[..] {
        return Some(format!("{}:{text}", key.word()));
    }
    let bare = !entries.is_empty() && entries.iter().all(|(_, value)| matches!(value.value, Value::Null));
    let words: Vec<&str> = entries.iter().take(4).map(|(key, _)| key.word()).collect();
    let more = if entries.len() > words.len() { ",…" } else { "" };
    bare.then(|| format!("{{{}{more}}}", words.join(",")))
}

impl<'de> Deserializer<'de> for Place<'_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.here(match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_i128(*number),
            },
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => self.visit_list(items, visitor),
            Value::Map(entries) => self.visit_block(entries, visitor),
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.node.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Text(text) if matches!(&*text.to_lowercase(), "on" | "off" | "yes" | "no") => {
                let meant = matches!(&*text.to_lowercase(), "on" | "yes");
                let hint = format!("write `{meant}`: `on`, `off`, `yes` and `no` are texts in YAML 1.2");
                Err(Refusal { hint: Some(hint), ..self.mismatch("`true` or `false`") })
            }
            _ => Err(self.mismatch("`true` or `false`")),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        let number = match self.node.value {
            Value::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        };
        number
            .map_or_else(|| Err(self.mismatch("a positive whole number")), |number| visitor.visit_u64(number))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.node.value {
            Value::Integer(number) => visitor.visit_f64(number as f64),
            Value::Float(number) => visitor.visit_f64(number),
            _ => Err(self.mismatch("a number")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.node.value {
            Value::Text(text) => self.here(visitor.visit_str(text)),
            _ => Err(self.not_a_text("a text")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.deserialize_str(visitor)
    }

    /// A list may be written as a single item.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.node.value {
            Value::Null => Err(self.mismatch("a list")),
            Value::List(items) => self.visit_list(items, visitor),
            _ => self.visit_list(std::slice::from_ref(self.node), visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.node.value {
            Value::Map(entries) => self.visit_block(entries, visitor),
            _ => Err(self.mismatch("a block of `name: …`")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        let short = name == TEXT_OR_BLOCK;
        let expected = format!("{}a block with {}", if short { "a text or " } else { "" }, all_of(fields));
        match &self.node.value {
            Value::List(_) if name == LIST_OR_BLOCK => self.visit_alone(visitor),
            Value::Map(entries) => {
                let known = entries.iter().any(|(key, _)| fields.contains(&key.word()));
                if name == LIST_OR_BLOCK && !known {
                    return self.visit_alone(visitor);
                }
                if let Some(text) = unquoted(&self.node.value).filter(|_| short && !known) {
                    return Err(Refusal::unquoted(&text).at(self.node.id));
                }
                self.visit_block(entries, visitor)
            }
            Value::Text(_) if short => self.deserialize_seq(visitor),
            _ => Err(self.mismatch(&expected)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match &self.node.value {
            Value::Text(text) => self.here(visitor.visit_enum(StrDeserializer::<Refusal>::new(text))),
            _ => Err(self.mismatch(&one_of(variants))),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match name {
            AT => visitor.visit_map(MapDeserializer::new(std::iter::once((self.node.id.0, self)))),
            TEXTS_OR_BLOCK if matches!(self.node.value, Value::Text(_)) => self.deserialize_seq(visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 char bytes byte_buf unit unit_struct newtype_struct tuple identifier
        ignored_any
    }
}

/// Allows [`Place`] for items, keys and values.
impl<'de> IntoDeserializer<'de, Refusal> for Place<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::report;
    use crate::config::yaml::Source;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        must: Option<At<u64>>,
        list: Option<Vec<At<u64>>>,
        inner: Option<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        need: At<String>,
    }

    fn shape(text: &str) -> (Option<Shape>, Vec<String>) {
        let source = Source::parse(text.as_bytes(), "f").unwrap();
        let mut report = Report::new(&source);
        let shape = decode(source.root(), &mut report);
        (
            shape,
            report.finish().iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect(),
        )
    }

    #[test]
    fn what_is_refused_does_not_keep_the_rest_from_being_read() {
        let (shape, problems) = shape("{must: 1, list: [1, x, 3, -4], innr: 5, inner: {need: a}}");
        let shape = shape.unwrap();
        assert_eq!(*shape.must.unwrap(), 1);
        assert_eq!(shape.list.unwrap().iter().map(|item| item.value).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(*shape.inner.unwrap().need, "a");
        let expected = [
            "list[1]: expected a positive whole number, found the text `x`",
            "list[3]: expected a positive whole number, found the number -4",
            "innr: unknown setting `innr`",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn a_value_remembers_its_node_whatever_was_refused_before_it() {
        let source = Source::parse(b"list: [x, 7]", "f").unwrap();
        let mut report = Report::new(&source);
        let shape: Shape = decode(source.root(), &mut report).unwrap();
        let seven = shape.list.unwrap()[0];
        assert_eq!(
            source.problem(seven.node, String::new(), None, crate::config::Severity::Error).path,
            "list[1]"
        );
    }

    #[test]
    fn a_missing_field_is_reported_once_and_not_as_the_consequence_of_another_mistake() {
        assert_eq!(shape("inner: {}").1, ["inner: `need` is missing"]);
        assert_eq!(shape("inner: {need: 5}").1, ["inner.need: expected a text, found the number 5"]);
        assert_eq!(shape("inner: {ned: a}").1, ["inner.ned: unknown setting `ned`"]);
    }

    #[test]
    fn an_item_may_stand_alone_where_a_list_is_expected() {
        assert_eq!(*shape("list: 5").0.unwrap().list.unwrap()[0], 5);
        assert_eq!(shape("list: x").1, ["list: expected a positive whole number, found the text `x`"]);
    }

    #[test]
    fn nothing_means_the_default() {
        let (shape, problems) = shape("{must: , inner: ~}");
        assert!(shape.is_some_and(|shape| shape.must.is_none() && shape.inner.is_none()));
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn a_file_that_is_no_block_is_refused_as_a_whole() {
        let (shape, problems) = shape("hello");
        assert!(shape.is_none());
        assert_eq!(problems, [": expected a block with `must`, `list` and `inner`, found the text `hello`"]);
    }

    #[test]
    fn misspelt_names_and_words_find_the_nearest() {
        assert_eq!(report("limts: {}"), "1:1: limts: unknown setting `limts`; did you mean `limits`?");
        assert_eq!(
            report("processes: {by: [comm, exee]}\ncounters: {a: {events: cycles, per: process}}"),
            "1:24: processes.by[1]: expected `comm`, `pid`, `exe`, `cgroup`, `unit` or `kind`, found `exee`; \
             did you mean `exe`?"
        );
        assert_eq!(
            report("limits: {horses: 1}"),
            "1:10: limits.horses: unknown setting `horses`; \
             valid settings are `series`, `names_per_cgroup`, `descriptors`, `deep_cgroups`, `connections`, `memory`, `ring_memory`, \
             `debug_info` and `cpu`"
        );
    }

    #[test]
    fn a_text_that_yaml_took_for_something_else_is_given_back_in_quotes() {
        let hint =
            |item: &str| report(&format!("counters: {{a: {{events: [{item}]}}}}")).split_off("1:24: ".len());
        let taken = "counters.a.events[0]: without quotes, YAML parses this as a block, not as a text; write";
        assert_eq!(hint("{cycles,instructions}"), format!("{taken} \"{{cycles,instructions}}\""));
        assert_eq!(hint("cycles: u"), format!("{taken} \"cycles:u\""));
        let quotes = "to write a text, put it in quotes: \"7\"";
        assert_eq!(
            report("cgroups: {include: [7]}"),
            format!("1:21: cgroups.include[0]: expected a text, found the number 7; {quotes}")
        );
    }

    #[test]
    fn yes_and_on_are_no_truth_values() {
        assert!(report("cgroups: {descendants: on}").ends_with(
            "expected `true` or `false`, found the text `on`; \
             write `true`: `on`, `off`, `yes` and `no` are texts in YAML 1.2"
        ));
        assert!(report("cgroups: {descendants: no}").contains("; write `false`"));
        assert!(
            report("cgroups: {descendants: 1}").ends_with("expected `true` or `false`, found the number 1")
        );
    }
}

//! Validation of OTLP profiles requests against the specification and the limits of known receivers.
//!
//! Written from the comments in `profiles.proto` v1.11, from `specification/profiles/mappings.md` and from known rejections by backends. It
//! is independent of all encoders, including the exporter's.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary, Sample};
use prost::Message;

/// A rule that a request can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Every index refers to an entry.
    Index,
    /// The first entry of every table exists and is the zero value.
    Zero,
    /// All entries of a table are distinct.
    Duplicate,
    /// Every entry is used.
    Orphan,
    /// A sample has values or times; if it has both, their numbers are equal. All samples of a profile have one shape.
    Shape,
    /// A sample without times has one value, because receivers accept no other number.
    OneValue,
    /// All samples of a profile differ in stack, attributes or link.
    Identity,
    /// Times are within the time range of their profile, whose end is exclusive.
    Time,
    /// Every mapping has a build id.
    BuildId,
    /// Keys of attributes are not empty and not repeated.
    Key,
    /// Strings are inline, because receivers do not resolve references.
    Reference,
    /// The addresses of a mapping are a range, and line numbers are not negative.
    Range,
    /// Links have a trace and a span.
    Link,
    /// A function has a name.
    Function,
    /// A profile has the type of its values.
    Type,
    /// A profile has no id, or an id of 16 bytes that is not zero and unique.
    Number,
    /// The original payload and its format are both present or both absent.
    Original,
    /// The request does not exceed the size limit of its receiver.
    Size,
}

/// A broken rule, and its position in the request.
pub(crate) type Fault = (Rule, String);

/// Checks the bytes of a request against all rules.
pub(crate) fn check(bytes: &[u8], limit: usize) -> Result<ExportProfilesServiceRequest, Vec<Fault>> {
    let request = ExportProfilesServiceRequest::decode(bytes).expect("not an OTLP profiles request");
    let mut faults = faults(&request);
    if bytes.len() > limit {
        faults.push((Rule::Size, format!("{} bytes, the limit is {limit}", bytes.len())));
    }
    if faults.is_empty() { Ok(request) } else { Err(faults) }
}

/// Returns all broken rules of a request, except for its size.
pub(crate) fn faults(request: &ExportProfilesServiceRequest) -> Vec<Fault> {
    let empty = ProfilesDictionary::default();
    let dictionary = request.dictionary.as_ref().unwrap_or(&empty);
    let mut checker = Checker { dictionary, faults: Vec::new(), used: BTreeMap::new() };
    checker.tables();
    for of_resource in &request.resource_profiles {
        if let Some(resource) = &of_resource.resource {
            checker.pairs("a resource", &resource.attributes);
        }
        for of_scope in &of_resource.scope_profiles {
            if let Some(scope) = &of_scope.scope {
                checker.pairs("a scope", &scope.attributes);
            }
        }
    }
    let profiles: Vec<&Profile> = (request.resource_profiles.iter())
        .flat_map(|of_resource| &of_resource.scope_profiles)
        .flat_map(|of_scope| &of_scope.profiles)
        .collect();
    profiles.iter().for_each(|profile| checker.profile(profile));
    let numbers: Vec<&[u8]> = profiles.iter().map(|profile| &*profile.profile_id).collect();
    checker.numbers(&numbers);
    checker.orphans();
    checker.faults
}

/// Tables of the dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Table {
    Mapping,
    Location,
    Function,
    Link,
    String,
    Attribute,
    Stack,
}

const TABLES: [Table; 7] = [
    Table::Mapping,
    Table::Location,
    Table::Function,
    Table::Link,
    Table::String,
    Table::Attribute,
    Table::Stack,
];

/// Shape of the samples of a profile.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Shape {
    Times,
    Values,
    Both,
}

struct Checker<'d> {
    dictionary: &'d ProfilesDictionary,
    faults: Vec<Fault>,
    used: BTreeMap<Table, BTreeSet<usize>>,
}

impl Checker<'_> {
    fn fault(&mut self, rule: Rule, what: impl Into<String>) {
        self.faults.push((rule, what.into()));
    }

    fn length(&self, table: Table) -> usize {
        let dictionary = self.dictionary;
        match table {
            Table::Mapping => dictionary.mapping_table.len(),
            Table::Location => dictionary.location_table.len(),
            Table::Function => dictionary.function_table.len(),
            Table::Link => dictionary.link_table.len(),
            Table::String => dictionary.string_table.len(),
            Table::Attribute => dictionary.attribute_table.len(),
            Table::Stack => dictionary.stack_table.len(),
        }
    }

    /// Returns the entries of a table as bytes. Equal entries have equal bytes.
    fn entries(&self, table: Table) -> Vec<Vec<u8>> {
        fn bytes<M: Message>(entries: &[M]) -> Vec<Vec<u8>> {
            entries.iter().map(Message::encode_to_vec).collect()
        }
        let dictionary = self.dictionary;
        match table {
            Table::Mapping => bytes(&dictionary.mapping_table),
            Table::Location => bytes(&dictionary.location_table),
            Table::Function => bytes(&dictionary.function_table),
            Table::Link => bytes(&dictionary.link_table),
            Table::String => dictionary.string_table.iter().map(|text| text.as_bytes().to_vec()).collect(),
            Table::Attribute => bytes(&dictionary.attribute_table),
            Table::Stack => bytes(&dictionary.stack_table),
        }
    }

    /// Checks an index and marks its entry as used. Returns `None` if the index is out of range.
    fn index(&mut self, table: Table, index: i32, whose: &str) -> Option<usize> {
        let length = self.length(table);
        let found = usize::try_from(index).ok().filter(|&index| index < length);
        match found {
            Some(index) => drop(self.used.entry(table).or_default().insert(index)),
            None => self.fault(Rule::Index, format!("{whose}: {table:?} {index} of {length}")),
        }
        found
    }

    fn tables(&mut self) {
        for table in TABLES {
            let entries = self.entries(table);
            if entries.first().is_none_or(|first| !first.is_empty()) {
                self.fault(Rule::Zero, format!("{table:?}"));
            }
            let mut known = HashSet::new();
            for (place, entry) in entries.iter().enumerate() {
                if !known.insert(entry) {
                    self.fault(Rule::Duplicate, format!("{table:?} {place}"));
                }
            }
        }
        self.mappings();
        self.functions_and_locations();
        for (place, stack) in self.dictionary.stack_table.iter().enumerate() {
            for &location in &stack.location_indices {
                self.index(Table::Location, location, &format!("stack {place}"));
            }
        }
        for (place, link) in self.dictionary.link_table.iter().enumerate().skip(1) {
            let lengths = (link.trace_id.len(), link.span_id.len());
            let zero =
                link.trace_id.iter().all(|&byte| byte == 0) || link.span_id.iter().all(|&byte| byte == 0);
            if lengths != (16, 8) || zero {
                self.fault(Rule::Link, format!("link {place}"));
            }
        }
        for (place, attribute) in self.dictionary.attribute_table.iter().enumerate().skip(1) {
            let whose = format!("attribute {place}");
            self.index(Table::String, attribute.key_strindex, &whose);
            self.index(Table::String, attribute.unit_strindex, &whose);
            if attribute.key_strindex == 0 {
                self.fault(Rule::Key, format!("{whose} has none"));
            }
            self.value(attribute.value.as_ref(), &whose);
        }
    }

    fn mappings(&mut self) {
        for (place, mapping) in self.dictionary.mapping_table.iter().enumerate().skip(1) {
            let whose = format!("mapping {place}");
            self.index(Table::String, mapping.filename_strindex, &whose);
            let (start, limit) = (mapping.memory_start, mapping.memory_limit);
            if start >= limit && (start, limit) != (0, 0) {
                self.fault(Rule::Range, format!("{whose}: {start:#x} to {limit:#x}"));
            }
            let keys = self.attributes(&mapping.attribute_indices, &whose);
            let ids = ["gnu", "go", "htlhash"].map(|kind| format!("process.executable.build_id.{kind}"));
            if !keys.iter().any(|key| ids.contains(key)) {
                self.fault(Rule::BuildId, whose);
            }
        }
    }

    fn functions_and_locations(&mut self) {
        for (place, function) in self.dictionary.function_table.iter().enumerate().skip(1) {
            let names = [function.name_strindex, function.system_name_strindex, function.filename_strindex];
            for name in names {
                self.index(Table::String, name, &format!("function {place}"));
            }
            if names == [0; 3] {
                self.fault(Rule::Function, format!("function {place}"));
            }
            if function.start_line < 0 {
                self.fault(Rule::Range, format!("function {place}: line {}", function.start_line));
            }
        }
        for (place, location) in self.dictionary.location_table.iter().enumerate().skip(1) {
            let whose = format!("location {place}");
            self.index(Table::Mapping, location.mapping_index, &whose);
            self.attributes(&location.attribute_indices, &whose);
            for line in &location.lines {
                self.index(Table::Function, line.function_index, &whose);
                if line.line < 0 || line.column < 0 {
                    self.fault(Rule::Range, format!("{whose}: line {}", line.line));
                }
            }
        }
    }

    /// Returns the keys of attributes.
    fn attributes(&mut self, indices: &[i32], whose: &str) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        for &index in indices {
            let Some(place) = self.index(Table::Attribute, index, whose) else { continue };
            let key = usize::try_from(self.dictionary.attribute_table[place].key_strindex);
            let key = key.ok().and_then(|key| self.dictionary.string_table.get(key)).cloned();
            let key = key.unwrap_or_default();
            if place == 0 || !keys.insert(key.clone()) {
                self.fault(Rule::Key, format!("{whose}: {key:?} of attribute {place}"));
            }
        }
        keys
    }

    fn pairs(&mut self, whose: &str, pairs: &[KeyValue]) {
        let mut keys = BTreeSet::new();
        for pair in pairs {
            let mut key = pair.key.clone();
            if pair.key_strindex != 0 {
                self.fault(Rule::Reference, format!("{whose}: a key"));
                let place = self.index(Table::String, pair.key_strindex, whose);
                if !key.is_empty() {
                    self.fault(Rule::Key, format!("{whose}: {key:?} contains a reference"));
                }
                key = place.map(|place| self.dictionary.string_table[place].clone()).unwrap_or_default();
            }
            if key.is_empty() || !keys.insert(key.clone()) {
                self.fault(Rule::Key, format!("{whose}: {key:?}"));
            }
            self.value(pair.value.as_ref(), whose);
        }
    }

    fn value(&mut self, value: Option<&AnyValue>, whose: &str) {
        match value.and_then(|value| value.value.as_ref()) {
            Some(Value::StringValueStrindex(index)) => {
                self.fault(Rule::Reference, format!("{whose}: a text"));
                self.index(Table::String, *index, whose);
            }
            Some(Value::ArrayValue(array)) => {
                array.values.iter().for_each(|value| self.value(Some(value), whose));
            }
            Some(Value::KvlistValue(list)) => self.pairs(whose, &list.values),
            _ => {}
        }
    }

    fn profile(&mut self, profile: &Profile) {
        for (kind, whose) in [(&profile.sample_type, "sample_type"), (&profile.period_type, "period_type")] {
            if let Some(kind) = kind {
                self.index(Table::String, kind.type_strindex, whose);
                self.index(Table::String, kind.unit_strindex, whose);
            }
        }
        if profile.sample_type.is_none_or(|kind| kind.type_strindex == 0) {
            self.fault(Rule::Type, "a profile without sample_type");
        }
        if profile.original_payload.is_empty() != profile.original_payload_format.is_empty() {
            self.fault(Rule::Original, profile.original_payload_format.clone());
        }
        self.attributes(&profile.attribute_indices, "a profile");
        let mut shapes = Vec::new();
        let mut identities = HashSet::new();
        for (place, sample) in profile.samples.iter().enumerate() {
            let whose = format!("sample {place}");
            shapes.extend(self.sample(profile, sample, &whose));
            let attributes: BTreeSet<i32> = sample.attribute_indices.iter().copied().collect();
            if !identities.insert((sample.stack_index, attributes, sample.link_index)) {
                self.fault(Rule::Identity, whose);
            }
        }
        if shapes.windows(2).any(|pair| pair[0] != pair[1]) {
            self.fault(Rule::Shape, "samples of a profile differ in shape");
        }
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample, whose: &str) -> Option<Shape> {
        self.index(Table::Stack, sample.stack_index, whose);
        self.index(Table::Link, sample.link_index, whose);
        self.attributes(&sample.attribute_indices, whose);
        let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
        for &time in &sample.timestamps_unix_nano {
            if time < profile.time_unix_nano || time >= end {
                self.fault(Rule::Time, format!("{whose}: {time}"));
            }
        }
        let (values, times) = (sample.values.len(), sample.timestamps_unix_nano.len());
        match (values, times) {
            (0, 0) => self.fault(Rule::Shape, format!("{whose} has neither values nor times")),
            (0, _) => return Some(Shape::Times),
            (_, 0) => {
                if values > 1 {
                    self.fault(Rule::OneValue, format!("{whose} has {values}"));
                }
                return Some(Shape::Values);
            }
            _ if values == times => return Some(Shape::Both),
            _ => self.fault(Rule::Shape, format!("{whose} has {values} values at {times} times")),
        }
        None
    }

    fn numbers(&mut self, numbers: &[&[u8]]) {
        let mut known = BTreeSet::new();
        for number in numbers.iter().filter(|number| !number.is_empty()) {
            if number.len() != 16 || number.iter().all(|&byte| byte == 0) || !known.insert(*number) {
                self.fault(Rule::Number, format!("{number:?}"));
            }
        }
    }

    fn orphans(&mut self) {
        for table in TABLES {
            let unused: Vec<usize> = (1..self.length(table))
                .filter(|place| !self.used.get(&table).is_some_and(|used| used.contains(place)))
                .collect();
            if !unused.is_empty() {
                self.fault(Rule::Orphan, format!("{table:?} {unused:?}"));
            }
        }
    }
}

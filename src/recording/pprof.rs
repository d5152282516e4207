//! The pprof format, read in passes over the file: texts, functions, locations, samples. Each refers to those before it, which may be behind it
//! in the file, and is decoded one message at a time.
//!
//! Format: <https://github.com/google/pprof/blob/main/proto/profile.proto>. Open details are decided as follows:
//!
//! - **The value** is that of the default sample type, otherwise the last one, as in pprof itself.
//! - **The thread** is that of the labels `comm`, `pid` and `tid`, which this exporter and perf_data_converter write. Without them, its name is
//!   that of the program, the first mapping, as the kernel would shorten it.
//! - **Functions without a name** are locations: `libc.so.6+0x2a1c0`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::builder::Builder;
use super::{ENTRIES, Invalid, at_most};
use crate::clock::Timestamp;
use crate::container::{Identity, Pod};
use crate::profile::{Kind, Line, Location, Mapping, Mode, Origin, Profile, Task, Unit, ValueType};
use crate::stack::BuildId;

/// Maximum size in bytes of one sample, location or function.
const MESSAGE: usize = 1 << 20;

/// Maximum length of a build id in bytes, as in the kernel.
const BUILD_ID: usize = 20;

/// Maximum length of the name of a thread in bytes, as in the kernel.
const COMM: usize = 15;

/// Messages of the format, as far as they are used. Texts are indexes into the string table.
mod message {
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) kind: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) locations: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) values: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) labels: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) text: i64,
        #[prost(int64, tag = "3")]
        pub(super) number: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) start: u64,
        #[prost(uint64, tag = "3")]
        pub(super) limit: u64,
        #[prost(uint64, tag = "4")]
        pub(super) offset: u64,
        #[prost(int64, tag = "5")]
        pub(super) file: i64,
        #[prost(int64, tag = "6")]
        pub(super) build_id: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) lines: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function: u64,
        #[prost(int64, tag = "2")]
        pub(super) line: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
        #[prost(int64, tag = "4")]
        pub(super) file: i64,
    }
}

/// Numbers of the fields of `Profile`, which the encoder of `export` writes, too.
pub mod field {
    #![expect(missing_docs, reason = "the names are those of the format")]

    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING_TABLE: u32 = 6;
    pub const TIME_NANOS: u32 = 9;
    pub const DURATION_NANOS: u32 = 10;
    pub const PERIOD_TYPE: u32 = 11;
    pub const PERIOD: u32 = 12;
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Value of a field of the outer message.
#[derive(Debug, Clone, Copy)]
enum Value<'f> {
    Number(u64),
    Bytes(&'f [u8]),
}

/// The fields of the outer message: the offset, number and value of each.
#[derive(Debug)]
struct Fields<'f> {
    file: &'f [u8],
    rest: &'f [u8],
}

impl<'f> Fields<'f> {
    fn of(file: &'f [u8]) -> Self {
        Self { file, rest: file }
    }

    fn offset(&self) -> usize {
        self.file.len() - self.rest.len()
    }

    fn read(&mut self) -> Result<(usize, u32, Value<'f>), Invalid> {
        let offset = self.offset();
        let damaged = |_| Invalid::Pprof { what: "a damaged field", offset };
        let cut = || Invalid::Pprof { what: "a field that is cut off", offset };
        let (number, wire_type) = decode_key(&mut self.rest).map_err(damaged)?;
        let length = match wire_type {
            WireType::Varint => {
                return Ok((offset, number, Value::Number(decode_varint(&mut self.rest).map_err(damaged)?)));
            }
            WireType::LengthDelimited => {
                usize::try_from(decode_varint(&mut self.rest).map_err(damaged)?).map_err(|_| cut())?
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::StartGroup | WireType::EndGroup => {
                return Err(Invalid::Pprof { what: "a group", offset });
            }
        };
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(cut)?;
        self.rest = rest;
        Ok((offset, number, Value::Bytes(bytes)))
    }
}

impl<'f> Iterator for Fields<'f> {
    type Item = Result<(usize, u32, Value<'f>), Invalid>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Decodes an inner message.
fn decoded<M: Message + Default>(bytes: &[u8], offset: usize) -> Result<M, Invalid> {
    at_most(MESSAGE, bytes.len(), "bytes in one message")?;
    M::decode(bytes).map_err(|_| Invalid::Pprof { what: "a damaged message", offset })
}

/// Calls `add` with the offset and the content of each message in a field.
fn each<M: Message + Default>(
    file: &[u8],
    number: u32,
    mut add: impl FnMut(usize, M) -> Result<(), Invalid>,
) -> Result<(), Invalid> {
    for field in Fields::of(file) {
        match field? {
            (offset, found, Value::Bytes(bytes)) if found == number => add(offset, decoded(bytes, offset)?)?,
            _ => {}
        }
    }
    Ok(())
}

/// The small tables of a file, and its texts.
#[derive(Debug, Default)]
struct Tables<'f> {
    texts: Vec<Cow<'f, str>>,
    types: Vec<message::ValueType>,
    mappings: Vec<message::Mapping>,
    default_type: u64,
    time: u64,
    duration: u64,
}

pub(super) fn read(file: &[u8]) -> Result<Profile, Invalid> {
    let tables = Tables::read(file)?;
    let mut builder = Builder::default();
    let (mappings, places) = tables.mappings();
    let locations = tables.locations(file, &mut builder, &mappings, &places)?;
    let comm = comm_of(&mappings);
    let (place, value) = tables.value();
    each(file, field::SAMPLE, |offset, sample: message::Sample| {
        let number = |place: usize| {
            let value = sample.values.get(place).copied().unwrap_or(0);
            u64::try_from(value)
                .map_err(|_| Invalid::Pprof { what: "a negative value, as in a comparison", offset })
        };
        let stack = sample.locations.iter().map(|id| locations.get(id).copied());
        let stack: Option<Vec<u32>> = stack.collect();
        let stack = stack.ok_or(Invalid::Pprof { what: "a sample with an unknown location", offset })?;
        let (task, mode) = task(&tables, &sample, &comm);
        let count = tables.count().map_or(Ok(1), number)?;
        builder.sample(&stack, task, mode, (count, number(place)?))
    })?;
    let kind = Kind { name: Arc::clone(&value.name), value, period: None };
    Ok(builder.finish(Profile {
        kind,
        start: Timestamp(tables.time / 1_000_000),
        duration: Duration::from_nanos(tables.duration),
        mappings,
        ..Profile::default()
    }))
}

impl<'f> Tables<'f> {
    fn read(file: &'f [u8]) -> Result<Self, Invalid> {
        let mut tables = Self::default();
        for field in Fields::of(file) {
            let (offset, number, value) = field?;
            match (number, value) {
                (field::STRING_TABLE, Value::Bytes(bytes)) => {
                    tables.texts.push(String::from_utf8_lossy(bytes));
                }
                (field::SAMPLE_TYPE, Value::Bytes(bytes)) => tables.types.push(decoded(bytes, offset)?),
                (field::MAPPING, Value::Bytes(bytes)) => tables.mappings.push(decoded(bytes, offset)?),
                (field::DEFAULT_SAMPLE_TYPE, Value::Number(place)) => tables.default_type = place,
                (field::TIME_NANOS, Value::Number(time)) => tables.time = time,
                (field::DURATION_NANOS, Value::Number(duration)) => tables.duration = duration,
                _ => {}
            }
            at_most(ENTRIES, tables.texts.len(), "texts")?;
            at_most(ENTRIES, tables.types.len(), "sample types")?;
            at_most(ENTRIES, tables.mappings.len(), "mappings")?;
        }
        match tables.types.is_empty() {
            true => Err(Invalid::Pprof { what: "it has no sample type", offset: file.len() }),
            false => Ok(tables),
        }
    }

    /// Returns a text of the string table; empty if there is none.
    fn text(&self, place: i64) -> &str {
        usize::try_from(place).ok().and_then(|place| self.texts.get(place)).map_or("", |text| text)
    }

    /// Returns the place and the type of the value.
    fn value(&self) -> (usize, ValueType) {
        let wanted = i64::try_from(self.default_type).unwrap_or(0);
        let is_default = |known: &&message::ValueType| wanted != 0 && known.kind == wanted;
        let place = self.types.iter().position(|known| is_default(&known));
        let place = place.unwrap_or(self.types.len().saturating_sub(1));
        let known = self.types.get(place).copied().unwrap_or_default();
        let unit = if self.text(known.unit) == "nanoseconds" { Unit::Nanoseconds } else { Unit::Count };
        (place, ValueType { name: self.text(known.kind).into(), unit })
    }

    /// Returns the place of the number of samples.
    fn count(&self) -> Option<usize> {
        self.types.iter().position(|known| self.text(known.kind) == "samples")
    }

    /// Returns the mappings, and the place of each by its number in the file.
    fn mappings(&self) -> (Vec<Mapping>, HashMap<u64, u32>) {
        let mapping = |known: &message::Mapping| Mapping {
            start: known.start,
            limit: known.limit,
            offset: known.offset,
            path: self.text(known.file).into(),
            build_id: build_id(self.text(known.build_id)),
            named: true,
            ..Mapping::default()
        };
        let places = self.mappings.iter().zip(0..).map(|(known, place)| (known.id, place)).collect();
        (self.mappings.iter().map(mapping).collect(), places)
    }

    /// Adds all locations. Returns the place of each by its number in the file.
    fn locations(
        &self,
        file: &[u8],
        builder: &mut Builder,
        mappings: &[Mapping],
        places: &HashMap<u64, u32>,
    ) -> Result<HashMap<u64, u32>, Invalid> {
        let mut functions = HashMap::new();
        each(file, field::FUNCTION, |_, known: message::Function| {
            let file = Some(self.text(known.file)).filter(|file| !file.is_empty());
            let function = builder.function(self.text(known.name), file)?;
            functions.insert(known.id, function);
            at_most(ENTRIES, functions.len(), "functions")
        })?;
        let mut all = HashMap::new();
        each(file, field::LOCATION, |_, known: message::Location| {
            let lines = known.lines.iter().filter_map(|line| {
                let function = *functions.get(&line.function)?;
                Some(Line { function, line: u32::try_from(line.line).unwrap_or(0) })
            });
            let lines: Vec<Line> = lines.collect();
            let mapping = places.get(&known.mapping).copied();
            let path =
                mapping.and_then(|place| mappings.get(place as usize)).map_or("", |mapping| &mapping.path);
            let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("[unknown]");
            let unknown = lines.is_empty().then(|| format!("{name}+{:#x}", known.address).into());
            let location = Location { mapping, address: known.address, lines, origin: origin(path), unknown };
            all.insert(known.id, builder.location(location)?);
            at_most(ENTRIES, all.len(), "locations")
        })?;
        Ok(all)
    }
}

/// Parses a build id of hexadecimal digits. Other linkers write other texts.
fn build_id(text: &str) -> Option<BuildId> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Box<[u8]>> =
        pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    bytes.filter(|bytes| rest.is_empty() && (1..=BUILD_ID).contains(&bytes.len())).map(BuildId)
}

/// Returns the kind of code in a mapping.
fn origin(path: &str) -> Origin {
    match path {
        path if path.starts_with("[kernel") || path.starts_with("[guest.kernel") => Origin::Kernel,
        "" | "[jit]" => Origin::Jit,
        _ => Origin::Native,
    }
}

/// Returns the name of the threads of samples without labels.
fn comm_of(mappings: &[Mapping]) -> Arc<str> {
    let program = mappings.first().map_or("", |mapping| &mapping.path);
    let name = program.rsplit('/').next().unwrap_or_default();
    match name.get(..COMM).unwrap_or(name) {
        "" => "[unknown]".into(),
        comm => comm.into(),
    }
}

/// Returns the task of a sample, and the mode in which it was interrupted.
fn task(tables: &Tables<'_>, sample: &message::Sample, comm: &Arc<str>) -> (Task, Mode) {
    let mut task = Task { comm: Arc::clone(comm), program: Arc::clone(comm), ..Task::default() };
    let (mut mode, mut container) = (Mode::User, Identity::default());
    let (mut namespace, mut pod) = (None, None);
    for label in &sample.labels {
        let text = tables.text(label.text);
        let number = u32::try_from(label.number).unwrap_or(0);
        match tables.text(label.key) {
            "comm" => task.comm = text.into(),
            "cgroup" => task.cgroup = Some(text.into()),
            "namespace" => namespace = Some(text),
            "pod" => pod = Some(text),
            "container" => container.container = Some(text.into()),
            "pid" => task.pid = number,
            "tid" => task.tid = number,
            "mode" => mode = Mode::ALL.into_iter().find(|known| known.as_str() == text).unwrap_or(mode),
            _ => {}
        }
    }
    container.pod = pod.map(|name| Pod {
        namespace: namespace.unwrap_or_default().into(),
        name: name.into(),
        uid: Arc::default(),
    });
    task.container = (container != Identity::default()).then(|| Arc::new(container));
    (task, mode)
}

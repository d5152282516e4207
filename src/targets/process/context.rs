//! Resource attributes that a process publishes about itself, above all its service.
//!
//! SDKs of OpenTelemetry write them to a mapping named `OTEL_CTX`. Format: [OTEP
//! 4719](https://github.com/open-telemetry/opentelemetry-specification/blob/main/oteps/profiles/4719-process-ctx.md). Reading needs only
//! `/proc/PID/maps`, `/proc/PID/mem`, and the right to trace the process (`CAP_SYS_PTRACE` for processes of other users).
//!
//! The attributes are untrusted input. Attributes about machines, containers and other processes are ignored, lengths are bounded, and the
//! attributes apply only to samples of the process itself. A read of process memory can block for any time: a page may be provided by a
//! file system in user space. Threads that others depend on must not read it.
//!
//! The trace context of a thread (OTEP 4947) is not read: finding it requires the thread pointer register, which perf samples do not
//! contain.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::ProcessKey;
use crate::files::{Contents, Files, Opened, ProcessFile};
use crate::host::{self, ReadAt};

/// Names of mappings that may contain the attributes: a named memfd, named anonymous memory, and a memfd on kernels that do not show names
/// of mappings.
const NAMES: [&[u8]; 3] = [b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]", b"/memfd:OTEL_CTX"];
/// Maximum number of bytes read from the list of mappings: about ten thousand mappings.
const MAPS_LIMIT: u64 = 1 << 20;
/// Maximum number of mappings with this name that are read. There should be one.
const MAX_MAPPINGS: usize = 4;
/// Maximum size of a payload, in bytes. Typical payloads have some hundred bytes.
const PAYLOAD_LIMIT: u32 = 32 << 10;
/// Maximum number of attempts while the process is changing the payload.
const ATTEMPTS: usize = 3;
/// Version of the format.
const VERSION: u32 = 2;
/// Maximum length of a value, in bytes.
const TEXT: usize = 256;
/// Keys that are accepted: attributes for which the process itself is the best source.
const KEYS: [&str; 8] = [
    "deployment.environment.name",
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
];

/// Attributes that a process publishes about itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessContext {
    attributes: Box<[(&'static str, Arc<str>)]>,
}

impl ProcessContext {
    /// Returns a context with these attributes. Omits other keys than the accepted ones, and values that are empty, too long, or contain
    /// control characters. Of a duplicate key the first value is kept. `None` if no attribute remains.
    pub fn new<'a>(attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let mut kept: Vec<(&'static str, Arc<str>)> = Vec::new();
        for (key, value) in attributes {
            let Some(&key) = KEYS.iter().find(|&&known| known == key) else { continue };
            let fits = (1..=TEXT).contains(&value.len()) && !value.contains(char::is_control);
            if fits && kept.iter().all(|(known, _)| *known != key) {
                kept.push((key, value.into()));
            }
        }
        kept.sort_unstable();
        (!kept.is_empty()).then(|| Self { attributes: kept.into() })
    }

    /// Returns resource attributes according to OpenTelemetry's semantic conventions, sorted by key.
    pub fn attributes(&self) -> &[(&'static str, Arc<str>)] {
        &self.attributes
    }

    /// Reads the attributes of a process. `None` if it publishes none, may not be read, does not respond in time, kept changing them, or if
    /// its identity is not `key`.
    pub fn read(files: &Files, key: ProcessKey) -> Option<Self> {
        let places = places(&files.open_process(key.pid, ProcessFile::Maps).ok()?);
        if places.is_empty() {
            return None;
        }
        // The open file keeps referring to the current program, even if the pid is reused.
        let memory = files.open_process(key.pid, ProcessFile::Memory).ok()?.file;
        if ProcessKey::read(&files.roots().proc.join(key.pid.to_string()))? != key {
            return None;
        }
        let payload = places.into_iter().find_map(|place| Published::payload(&memory, place))?;
        Self::decode(&payload)
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let resource = Payload::decode(payload).ok()?.resource?;
        let texts =
            resource.attributes.iter().filter_map(|pair| match pair.value.as_ref()?.value.as_ref()? {
                Value::StringValue(text) => Some((&*pair.key, &**text)),
                _ => None,
            });
        Self::new(texts)
    }
}

/// The used part of `opentelemetry.proto.processcontext.v1development.ProcessContext`.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
}

/// Returns the start addresses of mappings that may contain the attributes.
fn places(maps: &Opened) -> Vec<u64> {
    let mut places = Vec::new();
    let listed = host::lines_of(&mut maps.file.sequential(), &maps.shown, MAPS_LIMIT, |line| {
        if places.len() < MAX_MAPPINGS {
            places.extend(place(line));
        }
    });
    // If the list is too long, its beginning is used.
    drop(listed);
    places
}

/// Returns the start address of a mapping with a matching name.
fn place(line: &[u8]) -> Option<u64> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let start = std::str::from_utf8(fields.next()?).ok()?.split_once('-')?.0;
    let name = fields.nth(4)?.trim_ascii_start();
    let named = NAMES.iter().any(|known| name.starts_with(known));
    named.then(|| u64::from_str_radix(start, 16).ok())?
}

/// The header at the start of the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Published {
    size: u32,
    /// Time of publication; 0 while it is being changed.
    at: u64,
    payload: u64,
}

impl Published {
    fn read(memory: &Contents, place: u64) -> Option<Self> {
        let mut bytes = [0; 32];
        memory.read_exact_at(&mut bytes, place).ok()?;
        let (signature, rest) = bytes.split_first_chunk()?;
        let (numbers, rest) = rest.split_first_chunk::<8>()?;
        let ([version, size], [at, payload, ..]) = (numbers.as_chunks().0, rest.as_chunks().0) else {
            return None;
        };
        let valid = signature == b"OTEL_CTX" && u32::from_ne_bytes(*version) == VERSION;
        let (size, at) = (u32::from_ne_bytes(*size), u64::from_ne_bytes(*at));
        valid.then_some(Self { size, at, payload: u64::from_ne_bytes(*payload) })
    }

    /// Returns the payload of a mapping, if it does not change during the read.
    fn payload(memory: &Contents, place: u64) -> Option<Vec<u8>> {
        for _ in 0..ATTEMPTS {
            let before = Self::read(memory, place)?;
            if before.at == 0 {
                continue;
            }
            if before.size > PAYLOAD_LIMIT {
                return None;
            }
            let mut payload = vec![0; usize::try_from(before.size).ok()?];
            // While it is being changed, it may point to memory that is already unmapped.
            let read = memory.read_exact_at(&mut payload, before.payload);
            if Self::read(memory, place)? == before {
                return read.ok().map(|()| payload);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use proptest::prelude::*;

    use super::*;
    use crate::host::Roots;

    const KEY: ProcessKey = ProcessKey { pid: 10, start_time: 99 };
    const MAPS: &str = "\
00000000-00001000 r--p 00000000 fe:00 12                         /bin/a b
00001000-00002000 rw-p 00000000 00:01 1034                       /memfd:OTEL_CTX (deleted)
00003000-00004000 rw-p 00000000 00:00 0 
";

    fn payload(attributes: &[(&str, &str)]) -> Vec<u8> {
        let pair = |&(key, text): &(&str, &str)| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Value::StringValue(text.to_owned())) }),
            ..KeyValue::default()
        };
        let resource = Resource { attributes: attributes.iter().map(pair).collect(), ..Resource::default() };
        Payload { resource: Some(resource) }.encode_to_vec()
    }

    fn header(version: u32, size: usize, at: u64, payload: u64) -> Vec<u8> {
        let mut bytes = b"OTEL_CTX".to_vec();
        bytes.extend(version.to_ne_bytes());
        bytes.extend((size as u32).to_ne_bytes());
        bytes.extend(at.to_ne_bytes());
        bytes.extend(payload.to_ne_bytes());
        bytes
    }

    /// Reads the attributes of a process with this header at address 0x1000, and this payload at 0x3000.
    fn read(maps: &str, header: &[u8], payload: &[u8]) -> Option<ProcessContext> {
        let dir = tempfile::tempdir().unwrap();
        let process = process(&dir);
        fs::write(process.join("maps"), maps).unwrap();
        let mut memory = vec![0; 0x4000];
        memory[0x1000..][..header.len()].copy_from_slice(header);
        memory[0x3000..][..payload.len()].copy_from_slice(payload);
        fs::write(process.join("mem"), memory).unwrap();
        ProcessContext::read(&files(&dir), KEY)
    }

    /// Creates the directory of process 10.
    fn process(dir: &tempfile::TempDir) -> PathBuf {
        let process = dir.path().join("proc/10");
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("stat"), "10 (a) S 1 2 3 4 -1 0 6 7 8 9 10 11 12 13 20 0 1 0 99 5\n").unwrap();
        process
    }

    fn files(dir: &tempfile::TempDir) -> Files {
        Files::here(&Roots::under(dir.path()))
    }

    #[test]
    fn a_process_says_which_service_it_is() {
        let payload = payload(&[("service.name", "shop"), ("service.version", "7")]);
        let header = header(2, payload.len(), 5, 0x3000);
        let found = read(MAPS, &header, &payload).unwrap();
        assert_eq!(found.attributes(), [("service.name", "shop".into()), ("service.version", "7".into())]);
        for name in ["[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]"] {
            let maps = format!("00001000-00002000 rw-p 00000000 00:00 0         {name}\n");
            assert_eq!(read(&maps, &header, &payload).as_ref(), Some(&found), "{name}");
        }
        assert_eq!(read("00001000-00002000 rw-p 0 00:00 0 /OTEL_CTX\n", &header, &payload), None);
    }

    #[test]
    fn what_is_not_published_in_order_is_not_read() {
        let payload = payload(&[("service.name", "shop")]);
        let size = payload.len();
        for (bytes, why) in [
            (header(1, size, 5, 0x3000), "another version"),
            (header(2, size, 0, 0x3000), "it is being changed"),
            (header(2, size, 5, 0x1_0000), "there is no memory"),
            (header(2, 33 << 10, 5, 0), "it is too large"),
            (header(2, size, 5, 0x2000), "zeros are no message with a service"),
            (b"OTEL_CTY".to_vec(), "another signature"),
        ] {
            assert_eq!(read(MAPS, &bytes, &payload), None, "{why}");
        }
    }

    #[test]
    fn another_process_of_the_same_number_is_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        let payload = payload(&[("service.name", "shop")]);
        let process = process(&dir);
        fs::write(process.join("maps"), "00000000-00001000 rw-p 0 00:00 0 [anon:OTEL_CTX]\n").unwrap();
        fs::write(process.join("mem"), [header(2, payload.len(), 5, 32), payload].concat()).unwrap();
        let read = |key| ProcessContext::read(&files(&dir), key);
        assert!(read(KEY).is_some());
        assert_eq!(read(ProcessKey { start_time: 100, ..KEY }), None);
    }

    #[test]
    fn what_others_know_better_and_what_is_no_name_is_left_out() {
        let long = "x".repeat(300);
        let found = ProcessContext::new([
            ("container.id", "4f0c"),
            ("host.name", "other"),
            ("service.namespace", &long),
            ("service.version", ""),
            ("service.instance.id", "a\nb"),
            ("service.name", "first"),
            ("service.name", "second"),
        ]);
        assert_eq!(found.unwrap().attributes(), [("service.name", "first".into())]);
        assert_eq!(ProcessContext::new([("container.id", "4f0c")]), None);
    }

    proptest! {
        #[test]
        fn any_memory_is_read_without_panic(
            header in prop::collection::vec(any::<u8>(), 0..24),
            maps in "[0-9a-f]{0,9}-[0-9a-f]{0,4} rw-p 0 0:0 0 (\\[anon:OTEL_CTX\\]|x)\n",
            payload: Vec<u8>,
        ) {
            read(&maps, &[&b"OTEL_CTX\x02\0\0\0"[..], &header].concat(), &payload[..payload.len().min(999)]);
            if let Some(context) = ProcessContext::decode(&payload) {
                prop_assert!(context.attributes().len() <= KEYS.len());
            }
        }
    }
}

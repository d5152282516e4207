//! What a process publishes about itself for whoever looks at it from outside: its service, above all.
//!
//! SDKs of OpenTelemetry write it to a mapping that is called `OTEL_CTX`. Format:
//! [OTEP 4719](https://github.com/open-telemetry/opentelemetry-specification/blob/main/oteps/profiles/4719-process-ctx.md).
//! It takes no more than `/proc/PID/maps` and `/proc/PID/mem`, and the right to trace the process (`CAP_SYS_PTRACE` for
//! those of others).
//!
//! A process can publish what it likes, so what it says about machines, containers and other processes is not believed,
//! nothing is longer than it may be, and all that its words can do is to name its own samples. A read of its memory can
//! last for as long as it likes (a page that a file system in user space brings), so this is for no thread that others
//! wait for.
//!
//! What a thread publishes about its trace (OTEP 4947) is not read: it is found by the thread's own register for its
//! local storage, which samples of perf do not have.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::ProcessKey;
use crate::files::{Contents, Files, Opened, ProcessFile};
use crate::host::{self, ReadAt};

/// How mappings are called that may hold it: a file in memory with a name of its own, memory with a name, and a file in
/// memory where the kernel gives no names.
const NAMES: [&[u8]; 3] = [b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]", b"/memfd:OTEL_CTX"];
/// How much of the list of mappings is read, in bytes: some ten thousand mappings.
const MAPS_LIMIT: u64 = 1 << 20;
/// How many mappings of that name are looked at. There should be one.
const MOST_MAPPINGS: usize = 4;
/// The largest that is read, in bytes. They have some hundred.
const PAYLOAD_LIMIT: u32 = 32 << 10;
/// How often it is tried while the process is changing it.
const ATTEMPTS: usize = 3;
/// The version of the format.
const VERSION: u32 = 2;
/// The longest value, in bytes.
const TEXT: usize = 256;
/// What a process may say about itself: what nobody else knows better.
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

/// What a process says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessContext {
    attributes: Box<[(&'static str, Arc<str>)]>,
}

impl ProcessContext {
    /// One that says this. Keys that a process may not tell are left out, and so is what is empty or too long; of a key
    /// that comes twice the first value stays. `None` if nothing is left.
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

    /// Attributes of a resource by OpenTelemetry's semantic conventions, sorted by key.
    pub fn attributes(&self) -> &[(&'static str, Arc<str>)] {
        &self.attributes
    }

    /// Returns what a process publishes. `None` if it publishes nothing, may not be read, does not let itself be read in
    /// time, was changing it all the time, or is another one than `key` says.
    pub fn read(files: &Files, key: ProcessKey) -> Option<Self> {
        let places = places(&files.open_process(key.pid, ProcessFile::Maps).ok()?);
        if places.is_empty() {
            return None;
        }
        // It stays that of the program that runs now, whoever gets its number later.
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

/// `opentelemetry.proto.processcontext.v1development.ProcessContext`, as far as it is of use here.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
}

/// Where the mappings begin that may hold it.
fn places(maps: &Opened) -> Vec<u64> {
    let mut places = Vec::new();
    let listed = host::lines_of(&mut maps.file.sequential(), &maps.shown, MAPS_LIMIT, |line| {
        if places.len() < MOST_MAPPINGS {
            places.extend(place(line));
        }
    });
    // Of a list that is too long the beginning counts.
    drop(listed);
    places
}

/// Where a mapping begins, if it is called as it should be.
fn place(line: &[u8]) -> Option<u64> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let start = std::str::from_utf8(fields.next()?).ok()?.split_once('-')?.0;
    let name = fields.nth(4)?.trim_ascii_start();
    let named = NAMES.iter().any(|known| name.starts_with(known));
    named.then(|| u64::from_str_radix(start, 16).ok())?
}

/// What stands at the beginning of the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Published {
    size: u32,
    /// When it was published; 0 while it is changed.
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

    /// What is published in a mapping, if that stays the same while it is read.
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
            // While it is changed, it may point to what is gone.
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

    /// What is read of a process with this at address 0x1000, and this at 0x3000.
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

    /// The directory of process 10.
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

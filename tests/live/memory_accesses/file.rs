//! Recordings of memory accesses that no machine here can make: files in the format of perf 6.1, with known samples.

use std::path::Path;
use std::process::Command;

/// Fields of samples: address of the instruction, task, time, address of the data, CPU, period, identifier, source, weight in parts.
const SAMPLE: u64 = 1 | 2 | 4 | 8 | 1 << 7 | 1 << 8 | 1 << 16 | 1 << 15 | 1 << 24;
/// Flags of events: mappings of code and data, names, a frequency, the highest precision but one, fields at the end of all records.
const FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 10 | 2 << 15 | 1 << 17 | 1 << 18 | 1 << 23;
const ATTRIBUTE: usize = 128;
const HEADER: u64 = 104;
/// Where the program is mapped.
const BASE: u64 = 0x5555_5555_4000;
pub(super) const PID: u32 = 4242;

/// A memory access.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// 0: a load, 1: a store.
    pub(super) event: usize,
    pub(super) thread: u32,
    pub(super) cpu: u32,
    pub(super) code: u64,
    pub(super) data: u64,
    pub(super) weight: u32,
    pub(super) source: u64,
}

/// The addresses of a program in the recorded process.
#[derive(Debug)]
pub(super) struct Addresses<'p> {
    program: &'p Path,
    symbols: String,
}

impl<'p> Addresses<'p> {
    pub(super) fn of(program: &'p Path) -> Self {
        let output = Command::new("nm").arg(program).output().unwrap();
        Self { program, symbols: String::from_utf8(output.stdout).unwrap() }
    }

    /// Returns an address in a variable or a function.
    pub(super) fn at(&self, symbol: &str, offset: u64) -> u64 {
        let line = self.symbols.lines().find(|line| line.ends_with(&format!(" {symbol}"))).unwrap();
        BASE + u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap() + offset
    }

    /// Returns the records of the mappings of the program, as its headers request them, and of other memory.
    fn mappings(&self) -> Vec<u8> {
        let output = Command::new("readelf").arg("-lW").arg(self.program).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut records = Vec::new();
        for line in text.lines().filter(|line| line.trim_start().starts_with("LOAD ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
            let (offset, address, size) = (number(words[1]), number(words[2]), number(words[4]));
            let page = |address: u64| address & !0xfff;
            let start = page(address);
            let length = page(address + size + 0xfff) - start;
            let flags = words[6..words.len() - 1].concat();
            let bits =
                [('R', 1), ('W', 2), ('E', 4)].map(|(flag, bit)| if flags.contains(flag) { bit } else { 0 });
            let protection = bits.into_iter().sum();
            let path = self.program.to_str().unwrap();
            records.extend(mapping(BASE + start, length, page(offset), path, protection));
        }
        records.extend(mapping(BASE + 0x10_0000, 0x2_1000, 0, "[heap]", 3));
        records.extend(mapping(BASE + 0x20_0000, 0x1000, 0, "//anon", 3));
        records
    }
}

/// Returns an address in memory without a file: `[heap]` or `//anon`.
pub(super) const fn heap(offset: u64) -> u64 {
    BASE + 0x10_0000 + offset
}

pub(super) const fn anonymous(offset: u64) -> u64 {
    BASE + 0x20_0000 + offset
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn record(kind: u32, misc: u32, body: &[Vec<u8>]) -> Vec<u8> {
    let body = body.concat();
    [words(&[kind, misc | (body.len() as u32 + 8) << 16]), body].concat()
}

/// Returns the fields at the end of records that are not samples.
fn identity(thread: u32) -> Vec<u8> {
    [words(&[PID, thread]), longs(&[1, 0, 7])].concat()
}

/// Returns a text in a record.
fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
    bytes
}

/// Returns a text in a feature.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(64), 0);
    [words(&[bytes.len() as u32]), bytes].concat()
}

fn name(thread: u32, comm: &str) -> Vec<u8> {
    record(3, 2, &[words(&[PID, thread]), padded(comm), identity(thread)])
}

fn mapping(start: u64, length: u64, offset: u64, path: &str, protection: u32) -> Vec<u8> {
    let is_data = if protection & 4 == 0 { 1 << 13 } else { 0 };
    let place = longs(&[start, length, offset, 0, 0, 0]);
    let body = [words(&[PID, PID]), place, words(&[protection, 2]), padded(path), identity(PID)];
    record(10, 2 | is_data, &body)
}

fn sample(place: usize, sample: &Sample) -> Vec<u8> {
    let time = 1_000_000 + 1000 * place as u64;
    let body = [
        longs(&[7 + sample.event as u64, sample.code]),
        words(&[PID, sample.thread]),
        longs(&[time, sample.data]),
        words(&[sample.cpu, 0]),
        // The period, the weight with its parts, and the source.
        longs(&[1, sample.weight.into(), sample.source]),
    ];
    record(9, 2, &body)
}

/// Writes a recording of two events on a machine with two nodes of two CPUs. Threads [`PID`] and the next one are of one process.
pub(super) fn write(path: &Path, addresses: &Addresses<'_>, samples: &[Sample]) {
    let names = ["cpu/mem-loads,ldlat=30/P", "cpu/mem-stores/P"];
    let attribute = |config: u64| {
        let mut bytes = [words(&[4, ATTRIBUTE as u32]), longs(&[config, 4000, SAMPLE, 4, FLAGS])].concat();
        bytes.resize(ATTRIBUTE, 0);
        bytes
    };
    let attributes = [attribute(0x1cd), attribute(0x82d0)];
    let mut data = [name(PID, "shared"), name(PID + 1, "worker"), addresses.mappings()].concat();
    for (place, one) in samples.iter().enumerate() {
        data.extend(sample(place, one));
    }
    let mut described = words(&[2, ATTRIBUTE as u32]);
    for ((attribute, name), id) in attributes.iter().zip(names).zip([7, 8]) {
        described.extend([attribute.clone(), words(&[1]), text(name), longs(&[id])].concat());
    }
    let node = |node: u32, cpus: &str| [words(&[node]), longs(&[1000, 500]), text(cpus)].concat();
    let features = [
        (6, text("x86_64")),
        (7, words(&[4, 4])),
        (12, described),
        (14, [words(&[2]), node(0, "0-1"), node(1, "2-3")].concat()),
    ];
    // The ids, the attributes with the places of the ids, the records, the table of features, the features.
    let ids = longs(&[7, 8]);
    let attributes_at = HEADER + ids.len() as u64;
    let sections =
        attributes.iter().zip([0, 8]).map(|(bytes, at)| [bytes.clone(), longs(&[HEADER + at, 8])].concat());
    let sections = sections.collect::<Vec<_>>().concat();
    let data_at = attributes_at + sections.len() as u64;
    let mut at = data_at + data.len() as u64 + 16 * features.len() as u64;
    let (mut table, mut bits) = (Vec::new(), 0);
    for (number, content) in &features {
        table.extend(longs(&[at, content.len() as u64]));
        at += content.len() as u64;
        bits |= 1 << number;
    }
    let header = [
        b"PERFILE2".to_vec(),
        longs(&[HEADER, ATTRIBUTE as u64 + 16, attributes_at, sections.len() as u64]),
        longs(&[data_at, data.len() as u64, 0, 0, bits, 0, 0, 0]),
    ];
    let features = features.map(|(_, content)| content).concat();
    std::fs::write(path, [header.concat(), ids, sections, data, table, features].concat()).unwrap();
}

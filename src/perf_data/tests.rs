//! Files as another reader of the format finds them (the crate `linux-perf-data`).

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use linux_perf_data::linux_perf_event_reader::RecordType;
use linux_perf_data::{PerfFile, PerfFileReader, PerfFileRecord};
use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

use super::build_ids::BuildIds;
use super::constants;
use super::existing::{Existing, ExistingProcesses, module_names};
use super::features::{Features, Machine};
use super::format::{self, EventSection, FINISHED_ROUND, RecordBytes};
use super::sections;
use super::writer::Writer;
use crate::files::Files;
use crate::host::Roots;
use crate::ring::{MappedFile, Mmap};
use crate::stack::MappingKinds;
use crate::sys::live::attr_bytes;
use crate::sys::{Attr, Fields, Rate, Sampling, Sideband, Start};

const STORED: Fields =
    Fields { identifier: true, ip: true, tid: true, time: true, cpu: true, ..Fields::NONE };
const TRAILER: usize = 32;

fn event(name: &str, config: u64, ids: &[u64]) -> EventSection {
    let fields = Fields { period: config == 0, ..STORED };
    let sampling =
        Sampling { rate: Rate::Frequency(99), fields, sideband: Sideband::default(), ordered: true };
    let attr = attr_bytes(&Attr::software(config, Some(sampling), Start::Later));
    EventSection { name: name.into(), attr, ids: ids.into() }
}

fn events() -> [EventSection; 2] {
    [event("cpu-clock", 0, &[7, 8]), event("dummy", 9, &[9, 10])]
}

fn sample(time: u64) -> Vec<u8> {
    let record = RecordBytes::new(PERF_RECORD_SAMPLE, 0).u64(7).u64(0x1000).u32(4).u32(5).u64(time);
    // The CPU and the period.
    record.u64(1).u64(42).end(0)
}

/// A machine in a directory: files of the kernel, process 5, and a program.
fn host(dir: &Path) -> Roots {
    let put = |path: &str, text: &str| {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("proc/sys/kernel/hostname", "box\n");
    put("proc/sys/kernel/osrelease", "6.1.0\n");
    put("proc/meminfo", "MemTotal:       24684092 kB\nMemFree: 1 kB\n");
    put("proc/cpuinfo", "model name\t: Some CPU\n");
    for cpu in 0..2 {
        for (name, text) in [
            ("package_cpus_list", "0-1"),
            ("core_cpus_list", &cpu.to_string()),
            ("core_id", &cpu.to_string()),
            ("physical_package_id", "0"),
        ] {
            put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"), &format!("{text}\n"));
        }
    }
    put("sys/devices/system/cpu/present", "0-1\n");
    put("sys/devices/system/cpu/online", "0\n");
    put("sys/bus/event_source/devices/software/type", "1\n");
    let kallsyms = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81200000 T _etext\n";
    put("proc/kallsyms", kallsyms);
    put("proc/modules", "veth 4096 0 - Live 0xffffffffc0000000\nhidden 4096 0 - Live 0x0000000000000000\n");
    put("proc/5/task/5/comm", "main\n");
    put("proc/5/task/6/comm", "worker\n");
    let maps = "00400000-00401000 r-xp 00001000 08:01 77 /bin/program\n\
                00401000-00402000 r--p 00002000 08:01 77 /bin/program\n\
                00500000-00501000 rw-p 00000000 00:00 0 \n\
                00600000-00601000 r-xp 00000000 00:00 0 \n";
    put("proc/5/maps", maps);
    put("proc/9/task/9/comm", "other\n");
    Roots::under(dir)
}

fn begin(dir: &Path, roots: &Roots) -> Writer {
    begin_with(dir, roots, BuildIds::start(Files::here(roots), module_names(roots)).unwrap())
}

fn begin_with(dir: &Path, roots: &Roots, build_ids: BuildIds) -> Writer {
    let events = events();
    let command_line = ["perf-exporter", "record"].map(Into::into);
    let features = Features::new(&Machine::read(roots), &events, &command_line, (2_000, 1_000));
    let file = File::create(dir.join("x.data")).unwrap();
    Writer::begin(file, &events, features, Some(build_ids), STORED, false).unwrap()
}

/// Reads the file, and returns it with the kinds of its records.
fn read(dir: &Path) -> (PerfFile, Vec<RecordType>) {
    let file = BufReader::new(File::open(dir.join("x.data")).unwrap());
    let PerfFileReader { mut perf_file, mut record_iter } = PerfFileReader::parse_file(file).unwrap();
    let mut kinds = Vec::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        if let PerfFileRecord::EventRecord { record, .. } = record {
            record.parse().unwrap();
            kinds.push(record.record_type);
        }
    }
    (perf_file, kinds)
}

#[test]
fn another_reader_finds_the_machine_the_events_and_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let roots = host(dir.path());
    let mut writer = begin(dir.path(), &roots);
    for time in [100, 200, 300] {
        writer.append(&sample(time));
    }
    writer.append(FINISHED_ROUND);
    writer.finish().unwrap();
    let (file, kinds) = read(dir.path());
    assert_eq!(kinds, [RecordType::SAMPLE; 3]);
    assert_eq!((file.hostname().unwrap(), file.os_release().unwrap()), (Some("box"), Some("6.1.0")));
    assert_eq!((file.cpu_desc().unwrap(), file.total_mem().unwrap()), (Some("Some CPU"), Some(24_684_092)));
    assert_eq!(file.perf_version().unwrap(), Some(concat!("perf-exporter ", env!("CARGO_PKG_VERSION"))));
    assert_eq!(file.cmdline().unwrap(), Some(vec!["perf-exporter", "record"]));
    let cpus = file.nr_cpus().unwrap().unwrap();
    assert_eq!((cpus.nr_cpus_available, cpus.nr_cpus_online), (2, 1));
    let times = file.sample_time_range().unwrap().unwrap();
    assert_eq!((times.first_sample_time, times.last_sample_time), (100, 300));
    let clock = file.clock_data().unwrap().unwrap();
    assert_eq!((clock.wall_clock_ns, clock.clockid_time_ns), (2_000, 1_000));
    assert_eq!(file.pmu_mappings().unwrap().unwrap().0.get(&1).map(String::as_str), Some("software"));
    let found: Vec<_> =
        file.event_attributes().iter().map(|event| (event.name().unwrap(), event.ids().to_vec())).collect();
    assert_eq!(found, [("cpu-clock", vec![7, 8]), ("dummy", vec![9, 10])]);
}

#[test]
fn a_reader_finds_what_was_committed_and_nothing_later() {
    let dir = tempfile::tempdir().unwrap();
    let roots = host(dir.path());
    let mut writer = begin(dir.path(), &roots);
    for committed in 1..4 {
        writer.append(&sample(committed));
        writer.commit().unwrap();
        writer.append(&sample(9));
        let (file, kinds) = read(dir.path());
        assert_eq!((kinds.len() as u64, file.hostname().unwrap()), (2 * committed - 1, Some("box")));
    }
}

#[test]
fn what_existed_before_has_records_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let roots = host(dir.path());
    let files = Files::here(&roots);
    let mut writer = begin(dir.path(), &roots);
    let processes = ExistingProcesses::Of([6].into());
    let mut count = 0;
    Existing { files: &files, processes, mappings: MappingKinds::Executable, trailer: TRAILER }.records(
        |record| {
            assert!(record.len().is_multiple_of(8));
            count += 1;
            writer.append(record);
        },
    );
    writer.append(&sample(1));
    writer.commit().unwrap();
    let (_, kinds) = read(dir.path());
    let expected = [
        // The kernel and the module with a visible address.
        [RecordType::MMAP; 2].as_slice(),
        &[RecordType::COMM; 2],
        // The program, and memory that it executes.
        &[RecordType::MMAP2; 2],
        &[RecordType::SAMPLE],
    ];
    assert_eq!((kinds, count), (expected.concat(), 6));
    let none = Existing {
        files: &files,
        processes: ExistingProcesses::Of([].into()),
        mappings: MappingKinds::Executable,
        trailer: TRAILER,
    };
    let (mut of_none, mut of_all, mut with_files, mut with_all) = (0, 0, 0, 0);
    none.records(|_| of_none += 1);
    let all = Existing { processes: ExistingProcesses::All, ..none };
    all.records(|_| of_all += 1);
    let with = |mappings, count: &mut u32| {
        let processes = ExistingProcesses::All;
        Existing { files: &files, processes, mappings, trailer: TRAILER }.records(|_| *count += 1);
    };
    with(MappingKinds::Files, &mut with_files);
    with(MappingKinds::All, &mut with_all);
    assert_eq!((of_none, of_all, with_files, with_all), (2, 7, 8, 9));
}

#[test]
fn build_ids_are_read_once_for_each_file_and_written_with_their_paths() {
    let own = std::env::current_exe().unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&own).unwrap());
    let dir = tempfile::tempdir().unwrap();
    // The files of this machine.
    let build_ids = BuildIds::start(Files::here(&Roots::default()), Vec::new()).unwrap();
    let mut writer = begin_with(dir.path(), &host(dir.path()), build_ids);
    let file = MappedFile { major: 8, minor: 1, inode };
    let path = own.to_str().unwrap().as_bytes();
    let pid = std::process::id();
    let mmap = Mmap { pid, tid: pid, start: 4096, length: 4096, offset: 0, file, protection: 5, path };
    for _ in 0..2 {
        writer.append(&format::mmap2(&mmap, TRAILER));
    }
    writer.finish().unwrap();
    let (file, _) = read(dir.path());
    let build_ids = file.build_ids().unwrap();
    let found: Vec<_> = build_ids.values().filter(|info| info.path == path).collect();
    assert_eq!(found.len(), 1, "{build_ids:?}");
    assert!(!found[0].build_id.is_empty());
}

#[test]
fn features_are_in_the_order_of_their_numbers_and_their_table_is_first() {
    let features = Features::default().with(Some((1, 2)), vec![3; 8], None);
    let numbers: Vec<u32> = features.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [constants::BUILD_ID, constants::SAMPLE_TIME]);
    let bytes = sections::layout(&features, 1000);
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[..4], [1032, 8, 1040, 16]);
    assert_eq!(words[5..], [1, 2]);
}

#[test]
fn a_long_path_fits_into_a_record() {
    let path = vec![b'x'; 1 << 20];
    let file = MappedFile { major: 0, minor: 0, inode: 1 };
    let mmap = Mmap { pid: 1, tid: 1, start: 0, length: 1, offset: 0, file, protection: 5, path: &path };
    let record = format::mmap2(&mmap, TRAILER);
    assert_eq!(usize::from(u16::from_ne_bytes([record[6], record[7]])), record.len());
}

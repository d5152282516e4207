//! What is written is read again, bad content is refused, and files are bounded.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::anomaly::{BaselineFile, Cpi2, Detector, Kind, Method, Quality, Robust, Sample, Unloaded};
use crate::host::read;

const DAY: u64 = 86_400_000;

/// Returns a baseline that has learned these values, by both methods.
fn learned(values: impl IntoIterator<Item = f64>) -> Baseline {
    let methods = [Method::Robust(Kind::Cpi.robust()), Method::Cpi2(Cpi2::default())];
    let (mut detector, mut baseline) = (Detector::running(), Baseline::default());
    for (step, value) in (1..).zip(values) {
        let sample = Sample {
            at: step * 60_000,
            value: Some(value),
            usage: 0.3 * (step % 9) as f64,
            quality: Quality::default(),
        };
        for method in &methods {
            detector.judge(method, Kind::rule(method), &mut baseline, sample);
        }
    }
    baseline
}

fn encoded<'b>(baselines: impl IntoIterator<Item = (&'b str, u64, &'b Baseline)>, now: u64) -> Vec<u8> {
    let all =
        baselines.into_iter().map(|(workload, used, baseline)| ("cpi".to_owned(), workload, used, baseline));
    encode(all, now)
}

fn encoded_again(all: &[Saved], now: u64) -> Vec<u8> {
    encode(all.iter().map(|one| (one.entry.clone(), &*one.workload, one.used, &one.baseline)), now)
}

/// Replaces the checksum, so that the content behind it is read.
fn signed(content: &[u8]) -> Vec<u8> {
    let content = &content[..content.len().saturating_sub(4)];
    [content, &checksum(content).to_le_bytes()].concat()
}

#[test]
fn what_is_written_is_read_again() {
    let baseline = learned((0..500).map(|step| 1.0 + f64::from(step % 7)));
    let written = encoded([("shop/web/app", DAY, &baseline), ("/a b", DAY - 1, &Baseline::default())], DAY);
    let all = decode(&written, DAY).unwrap();
    let names: Vec<_> = all.iter().map(|one| (&*one.entry, &*one.workload, one.used)).collect();
    assert_eq!(names, [("cpi", "shop/web/app", DAY), ("cpi", "/a b", DAY - 1)]);
    assert_eq!(format!("{:?}", all[0].baseline), format!("{baseline:?}"));
    assert_eq!(encoded_again(&all, DAY), written);
    assert!(written.starts_with(b"perf-exporter baselines 2\n"));
}

#[test]
fn values_by_hour_are_written_and_a_file_without_them_is_read() {
    let method = Method::Robust(Robust { by_hour: true, ..Kind::Cpi.robust() });
    let (mut detector, mut daily) = (Detector::default(), Baseline::default());
    for step in 0..5000 {
        let value = Some(1.0 + (step % 7) as f64);
        let sample = Sample { at: step * 60_000, value, usage: 1.0, quality: Quality::default() };
        detector.judge(&method, Kind::rule(&method), &mut daily, sample);
    }
    assert!(daily.hours.is_some());
    let now = 5000 * 60_000;
    let written = encoded([("/a", now, &daily)], now);
    let all = decode(&written, now).unwrap();
    assert!(encoded_again(&all, now) == written);
    // Version 1 had the same content without the number of values by hour, which is 0 here.
    let baseline = learned([1.0; 100]);
    let current = encoded([("/a", DAY, &baseline)], DAY);
    let mut earlier = [&current[..current.len() - 6], &current[current.len() - 4..]].concat();
    earlier[b"perf-exporter baselines ".len()] = b'1';
    let all = decode(&signed(&earlier), DAY).unwrap();
    assert_eq!(format!("{:?}", all[0].baseline), format!("{baseline:?}"));
}

#[test]
fn an_unused_baseline_is_dropped_after_a_week() {
    let baseline = learned([1.0]);
    let written = encoded([("/old", 0, &baseline), ("/new", 1, &baseline)], AGE);
    assert_eq!(decode(&written, AGE).unwrap().len(), 2);
    let left = |content: &[u8]| {
        decode(content, AGE + 1).unwrap().iter().map(|one| one.workload.clone()).collect::<Vec<_>>()
    };
    assert_eq!(left(&written), ["/new"]);
    assert_eq!(left(&encoded([("/old", 0, &baseline), ("/new", 1, &baseline)], AGE + 1)), ["/new"]);
}

#[test]
fn times_after_a_clock_that_was_set_back_are_now() {
    let written = encoded([("/a", DAY, &learned([1.0; 10]))], DAY);
    let all = decode(&written, 5000).unwrap();
    assert_eq!((all[0].used, all[0].baseline.aged), (5000, Some(5000)));
}

#[test]
fn a_file_has_at_most_eight_mebibytes_and_the_most_recently_used_baselines() {
    // Values that differ by a hundred percent each: as many buckets as possible.
    let large = learned((0..2000).map(|step| 1.011_f64.powi(step % 500)));
    let names: Vec<String> = (0..2000).map(|number| format!("/{number}")).collect();
    let all = || names.iter().zip(1..).map(|(name, used)| (name.as_str(), used, &large));
    let written = encoded(all(), DAY);
    assert!(written.len() <= SIZE, "{}", written.len());
    let read = decode(&written, DAY).unwrap();
    assert!((100..1999).contains(&read.len()), "{}", read.len());
    assert_eq!(read.iter().map(|one| one.used).max(), Some(2000));
    assert_eq!(read.iter().map(|one| one.used).min(), Some(2001 - read.len() as u64));

    let small = learned([1.0]);
    let names: Vec<String> = (0..=MOST).map(|number| format!("/{number}")).collect();
    let written = encoded(names.iter().map(|name| (name.as_str(), 1, &small)), DAY);
    assert_eq!(decode(&written, DAY).unwrap().len(), MOST);
    let long = "/".repeat(NAME + 1);
    assert!(decode(&encoded([(&*long, 1, &small)], DAY), DAY).unwrap().is_empty());
}

/// Contents that no version of this program has written, with the reason for which each is refused.
fn damaged() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let good = encoded([("/a", 1, &learned((1..100).map(f64::from)))], 1);
    let with = |place: usize, byte: u8| {
        let mut bad = good.clone();
        bad[place] ^= byte;
        bad
    };
    let header = b"perf-exporter baselines 2\n".len();
    // Entry, workload and time: 2 + 3, 2 + 2 and 8 bytes.
    let behind_names = header + 17;
    let replaced = |place: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[place..place + bytes.len()].copy_from_slice(bytes);
        signed(&bad)
    };
    vec![
        ("nothing", Vec::new(), "no file of this program"),
        ("only zeros", vec![0; 4096], "no file of this program"),
        ("another program's", b"\x7fELF and so on".to_vec(), "no file of this program"),
        ("no version", b"perf-exporter baselines \n".to_vec(), "no file of this program"),
        ("a newer version", b"perf-exporter baselines 3\nsomething".to_vec(), "its version is 3"),
        ("a truncated one", good[..good.len() / 2].to_vec(), "checksum"),
        ("only a header", good[..header].to_vec(), "its end is missing"),
        ("one changed bit", with(good.len() / 2, 0x10), "checksum"),
        ("appended bytes", [&good[..], b"more"].concat(), "checksum"),
        ("too large", [&good[..], &vec![0; SIZE]].concat(), "8 MiB"),
        ("a name without an end", replaced(header, &[0xff, 0xff]), "invalid baseline"),
        ("a name that is no text", replaced(header + 2, &[0xff]), "invalid baseline"),
        ("bins that do not exist", replaced(behind_names + 8, &[0xff, 0xff]), "invalid baseline"),
        (
            "a weight that is no number",
            replaced(behind_names + 10, &f64::NAN.to_le_bytes()),
            "invalid baseline",
        ),
        ("a negative weight", replaced(behind_names + 10, &(-1.0_f64).to_le_bytes()), "invalid baseline"),
        ("too many buckets", replaced(behind_names + 18, &[0xff, 0x7f]), "invalid baseline"),
        ("buckets in another order", replaced(behind_names + 20, &[0xff, 0x7f]), "invalid baseline"),
    ]
}

#[test]
fn a_damaged_file_is_refused_with_a_reason_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("baselines");
    for (kind, content, reason) in damaged() {
        fs::write(&path, &content).unwrap();
        let mut file = BaselineFile::new(directory.path());
        let error = file.load(1).unwrap_err();
        assert!(error.to_string().contains(reason), "{kind}: {error}");
        assert!(!file.save(b"new").unwrap(), "{kind}");
        assert_eq!(read(&path).unwrap(), content, "{kind}");
    }
}

/// Creates something at a path.
type Create<'c> = &'c dyn Fn(&Path);

#[test]
fn what_is_no_regular_file_is_not_opened_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("baselines");
    let other = directory.path().join("other");
    fs::write(&other, encoded([], 1)).unwrap();
    let kinds: [(&str, Create<'_>); 3] = [
        ("a directory", &|path| fs::create_dir(path).unwrap()),
        ("a link", &|path| symlink(&other, path).unwrap()),
        ("a pipe", &|path| {
            let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(status.success());
        }),
    ];
    for (kind, create) in kinds {
        create(&path);
        let mut file = BaselineFile::new(directory.path());
        let error = file.load(1).unwrap_err();
        assert!(matches!(error, Unloaded::Unreadable { .. }), "{kind}: {error}");
        assert!(!file.save(b"new").unwrap(), "{kind}");
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
        assert!(file.save(b"new").unwrap(), "{kind}: it was removed");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_is_replaced_as_a_whole_and_the_rest_of_a_crash_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("baselines.new"), "half of").unwrap();
    let mut file = BaselineFile::new(directory.path());
    assert!(file.load(1).unwrap().is_empty(), "there is no file yet");
    for content in [encoded([("/a", 1, &learned([1.0]))], 1), encoded([], 1)] {
        assert!(file.save(&content).unwrap());
        assert_eq!(read(&directory.path().join("baselines")).unwrap(), content);
    }
    assert_eq!(crate::host::list(directory.path()).unwrap(), ["baselines"]);
}

#[test]
fn a_directory_that_is_gone_is_an_error_and_the_next_write_succeeds_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut file = BaselineFile::new(&path);
    assert!(matches!(file.load(1), Err(Unloaded::Directory { .. })));
    file.save(b"one").unwrap_err();
    fs::create_dir(&path).unwrap();
    assert!(file.save(b"two").unwrap());
}

proptest! {
    #[test]
    fn any_bytes_behind_the_header_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let content = [MAGIC, b"1\n", &bytes, &[0; 4]].concat();
        // It must neither panic nor loop.
        if let Ok(all) = decode(&signed(&content), DAY) {
            decode(&encoded_again(&all, DAY), DAY).unwrap();
        }
    }

    #[test]
    fn no_part_of_a_file_is_read_as_a_whole_one(cut in 1..2000_usize) {
        let content = encoded([("/a", 1, &learned((1..100).map(f64::from)))], DAY);
        decode(&content[..content.len().saturating_sub(cut)], DAY).unwrap_err();
    }

    #[test]
    fn any_values_are_read_again_as_they_were_written(values in prop::collection::vec(0.0_f64..1e12, 0..200)) {
        let written = encoded([("/a", 1, &learned(values))], DAY);
        prop_assert_eq!(encoded_again(&decode(&written, DAY).unwrap(), DAY), written);
    }
}

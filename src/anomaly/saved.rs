//! What was learned, as the content of a file:
//!
//! ```text
//! perf-exporter baselines 2\n
//! baselines: entry, workload, time of the last use, the baseline
//! CRC-32 of all bytes before it
//! ```

use flate2::Crc;

use super::baseline::Baseline;
use super::wire::{Reader, Writer};

/// Begin of the first line. The version follows.
const MAGIC: &[u8] = b"perf-exporter baselines ";

/// The version that this program writes. It also reads version 1, which had no values by hour of the day.
const VERSION: u32 = 2;

/// Maximum size of a file, in bytes.
pub(super) const SIZE: usize = 8 << 20;

/// Maximum number of baselines in a file.
const MOST: usize = 20_000;

/// Time after which an unused baseline is dropped, in milliseconds: a week. Its samples have lost 99% of their weight by then.
const AGE: u64 = 7 * 24 * 3_600_000;

/// Maximum length of the name of a workload in bytes: a path.
const NAME: usize = 4096;

/// A baseline with its place.
#[derive(Debug, Clone)]
pub struct Saved {
    /// The name, the figure and the method of the entry: another method learns other things.
    pub(super) entry: String,
    pub(super) workload: String,
    /// The last time at which a figure of the workload was compared, in milliseconds.
    pub(super) used: u64,
    pub(super) baseline: Baseline,
}

/// Reason why a file of baselines is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another program has written it.
    #[error("it is no file of this program")]
    Foreign,
    /// It has a version that this program does not know.
    #[error("its version is {0}, and this program reads versions 1 to {VERSION}")]
    Version(u32),
    /// It is larger than this program writes.
    #[error("it has more than {} MiB", SIZE >> 20)]
    Large,
    /// Its content is not as it was written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

/// Returns the content of a file with these baselines: those that were used in the last week, the most recently used ones first, as many
/// as fit.
pub(super) fn encode<'b>(
    baselines: impl Iterator<Item = (String, &'b str, u64, &'b Baseline)>,
    now: u64,
) -> Vec<u8> {
    let mut all: Vec<_> = baselines
        .filter(|(_, workload, used, _)| now.saturating_sub(*used) <= AGE && workload.len() <= NAME)
        .collect();
    all.sort_by(|one, other| other.2.cmp(&one.2).then_with(|| (&one.0, one.1).cmp(&(&other.0, other.1))));
    let mut out = Writer(MAGIC.to_vec());
    out.0.extend_from_slice(format!("{VERSION}\n").as_bytes());
    for (entry, workload, used, baseline) in all.into_iter().take(MOST) {
        let before = out.0.len();
        out.text(&entry);
        out.text(workload);
        out.number(used);
        baseline.write(&mut out);
        if out.0.len() + size_of::<u32>() > SIZE {
            out.0.truncate(before);
            break;
        }
    }
    let sum = checksum(&out.0);
    out.bytes(sum.to_le_bytes());
    out.0
}

/// Returns the baselines of a file that were used in the last week.
///
/// # Errors
/// The reason why the content is not usable. It may be anything.
pub fn decode(content: &[u8], now: u64) -> Result<Vec<Saved>, Refusal> {
    let (version, rest) = versioned(content).ok_or(Refusal::Foreign)?;
    if !(1..=VERSION).contains(&version) {
        return Err(Refusal::Version(version));
    }
    if content.len() > SIZE {
        return Err(Refusal::Large);
    }
    let (rest, sum) = rest.split_last_chunk().ok_or(Refusal::Damaged("its end is missing"))?;
    if u32::from_le_bytes(*sum) != checksum(&content[..content.len() - sum.len()]) {
        return Err(Refusal::Damaged("its checksum is different"));
    }
    let (mut bytes, mut all) = (Reader(rest), Vec::new());
    while !bytes.0.is_empty() {
        let invalid = Refusal::Damaged("it has an invalid baseline");
        let saved = Saved::read(&mut bytes, now, version > 1).filter(|_| all.len() < MOST).ok_or(invalid)?;
        all.push(saved);
    }
    all.retain(|saved| now.saturating_sub(saved.used) <= AGE);
    Ok(all)
}

/// Returns the version and the rest of a content, if it is one of a file of baselines.
fn versioned(content: &[u8]) -> Option<(u32, &[u8])> {
    let rest = content.strip_prefix(MAGIC)?;
    let end = rest.iter().take(12).position(|&byte| byte == b'\n')?;
    let version = str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((version, &rest[end + 1..]))
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

impl Saved {
    fn read(bytes: &mut Reader<'_>, now: u64, has_hours: bool) -> Option<Self> {
        let (entry, workload) = (bytes.text()?, bytes.text()?);
        let used = bytes.number()?.min(now);
        Some(Self { entry, workload, used, baseline: Baseline::read(bytes, now, has_hours)? })
    }
}

#[cfg(test)]
mod tests;

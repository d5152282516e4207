//! Encodes profiles as OTLP requests (`ExportProfilesServiceRequest`) for the Collector, Pyroscope, Parca and similar receivers.
//!
//! ```text
//! Profile ─► group: samples by resource ─► dictionary: unique entries ─► piece: an OTLP Profile ─► Payload
//! ```
//!
//! Format:
//! [profiles.proto](https://github.com/open-telemetry/opentelemetry-proto/blob/v1.11.0/opentelemetry/proto/profiles/v1development/profiles.proto)
//! of v1.11, which equals v1.10 on the wire, and the
//! [specification](https://github.com/open-telemetry/opentelemetry-specification/tree/v1.60.0/specification/profiles). Open details are
//! decided as follows, most of them because some backend accepts nothing else:
//!
//! - **Resources.** One for each container (`container.id`, and `k8s.pod.uid` if the cgroup path contains it), and within it one for each
//!   service published by processes ([`ProcessContext`](crate::targets::ProcessContext)). One more covers the rest. All have the caller's
//!   attributes. Attributes of a container and a process take precedence over them.
//! - **Strings are inline** in resources, scopes and values, never references, because receivers do not resolve them.
//! - **Types and periods** are as follows (`kind` has a table): `samples/count` with a period in `cpu/nanoseconds`; `off_cpu/nanoseconds`
//!   without a period, as Pyroscope expects; `events/count` with a period named after the event, from which Pyroscope derives the profile
//!   name.
//! - **A sample has one value** and no timestamps. Equal stack, thread, mode and CPU make one sample. Its attributes are those of
//!   its process and cgroup ([`identity`](super::identity)), `thread.id`, `thread.name`, and `cpu.logical_number` if CPUs are separate. It
//!   also has `cpu.mode` (`user`, `kernel`) or, off the CPU, `thread.state` (`sleeping`, `uninterruptible`, `preempted`), for which there is
//!   no convention yet.
//! - **Links** are empty: the trace context of a thread is found through a register that samples do not contain.
//! - **Every mapping has a build ID**: the GNU build ID, the Go build ID, and `htlhash`. The kernel and its modules have no file and only
//!   the GNU build ID. A file without any (it was deleted before it could be read) has an `htlhash` of its path, which equals that of no
//!   file. The specification requires one, and path and addresses are still useful.
//! - **Addresses** are those of the file's own headers, like the bounds of its mapping.
//! - **A location without a function** has a function named after the location, `libc.so.6+0x2a1c0`, as in pprof.
//! - **Losses** are attributes of a profile, such as `perf_exporter.samples.lost.ring_full`. The name of the entry is
//!   `perf_exporter.profile`. If a profile is split, each part has them.
//!
//! A request above the limit is split, each part with its own dictionary. Strings are truncated as in pprof.

mod body;
mod dictionary;
mod frame;
mod group;
mod head;
mod kind;
mod message;
mod piece;
#[cfg(test)]
mod tests;

use ::ring::digest::{Context, SHA256};

use self::body::Body;
use self::dictionary::{Dictionary, TableLengths};
use self::group::{Group, groups};
use self::head::head;
use self::kind::Types;
use self::piece::Piece;
use super::attribute::Resource;
use super::{Encoded, Payload};
use crate::profile::Profile;

/// Size limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Maximum size of a request in bytes before compression. By default gRPC receivers accept 4 MiB. The specification recommends at most
    /// 32 MiB.
    pub limit: usize,
    /// Maximum number of samples in one profile. Pyroscope accepts 16000.
    pub samples: usize,
    /// Seed that is hashed into profile IDs together with their content. It must differ between exporters.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { limit: 4_000_000, samples: 16_000, seed: 0 }
    }
}

/// Encodes the profiles of one window as requests. Equal profiles result in equal bytes.
///
/// In addition to the requests, needs about 100 bytes for each sample of a piece ([`Options::samples`]), and four bytes for each entry of
/// the tables of all profiles.
pub fn encode(profiles: &[Profile], resource: &Resource, options: &Options) -> Encoded {
    let mut encoder = Encoder::new(profiles, options);
    groups(profiles, resource).iter().for_each(|group| encoder.group(group));
    encoder.finish();
    encoder.encoded
}

/// The current request, and the finished ones.
struct Encoder<'p> {
    profiles: &'p [Profile],
    options: &'p Options,
    dictionary: Dictionary<'p>,
    /// The finished part of the current request.
    body: Body,
    /// Bytes that enclose the last resource.
    around: usize,
    /// Number of profiles so far.
    number: u64,
    encoded: Encoded,
}

/// The profile that is being filled.
struct Open<'g, 'p> {
    group: &'g Group,
    profile: usize,
    types: Types<'p>,
    piece: Piece,
    head: Vec<u8>,
    /// State of the dictionary before the profile.
    mark: TableLengths,
    /// Upper bound of the bytes that enclose the samples.
    overhead: usize,
}

impl<'p> Encoder<'p> {
    fn new(profiles: &'p [Profile], options: &'p Options) -> Self {
        Self {
            profiles,
            options,
            dictionary: Dictionary::new(profiles),
            body: Body::default(),
            around: 0,
            number: 0,
            encoded: Encoded::default(),
        }
    }

    fn group(&mut self, group: &Group) {
        for (place, samples) in &group.samples {
            let Some(profile) = self.profiles.get(*place) else { continue };
            let mut open = self.open(group, *place, profile);
            for sample in samples.iter().filter_map(|&sample| profile.samples.get(sample as usize)) {
                if open.piece.len() >= self.options.samples.max(1) {
                    self.close(open);
                    open = self.open(group, *place, profile);
                }
                if self.add(&mut open, sample) {
                    continue;
                }
                // The profile did not fit into the current request, so it starts a new one.
                self.close(open);
                self.finish();
                open = self.open(group, *place, profile);
                if !self.add(&mut open, sample) {
                    self.encoded.left_out += 1;
                    self.dictionary = Dictionary::new(self.profiles);
                    open = self.open(group, *place, profile);
                }
            }
            self.close(open);
        }
    }

    fn open<'g>(&mut self, group: &'g Group, place: usize, profile: &'p Profile) -> Open<'g, 'p> {
        let mark = self.dictionary.mark();
        let types = Types::of(&profile.kind);
        self.number += 1;
        let id = self.id(profile);
        let head = head(profile, &types, &id, &mut self.dictionary);
        // The fields that enclose another resource are not written yet.
        let last = self.body.group().filter(|&last| last != group.number).map(|_| self.around);
        let around = Body::around(&group.resource) + last.unwrap_or_default();
        let overhead = around + head.len() + message::LENGTH;
        Open { group, profile: place, types, piece: Piece::default(), head, mark, overhead }
    }

    /// Returns a unique ID for a profile.
    fn id(&self, profile: &Profile) -> [u8; 16] {
        let mut context = Context::new(&SHA256);
        for number in [self.options.seed, profile.start.0, self.number] {
            context.update(&number.to_le_bytes());
        }
        context.update(profile.kind.name.as_bytes());
        context.finish().as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// Adds a sample and returns whether there was space.
    fn add(&mut self, open: &mut Open<'_, 'p>, sample: &crate::profile::Sample) -> bool {
        let mark = self.dictionary.mark();
        let identity = self.dictionary.identity(open.profile, sample);
        let value = (open.types.value)(sample);
        let bytes = open.piece.bytes_with(&identity, value, &self.dictionary);
        let size = self.body.bytes() + open.overhead + bytes + self.dictionary.bytes();
        if size + message::LENGTH <= self.options.limit {
            open.piece.add(identity, value, bytes);
            return true;
        }
        self.dictionary.cut(mark);
        false
    }

    /// Moves the filled profile to the finished part.
    fn close(&mut self, open: Open<'_, 'p>) {
        if open.piece.len() == 0 {
            // Dictionary entries added since the mark are unused.
            return self.dictionary.cut(open.mark);
        }
        let resource = (open.group.number, &open.group.resource);
        self.body.add(resource, &open.head, &open.piece, &self.dictionary);
        self.around = Body::around(&open.group.resource);
    }

    /// Finishes the current request and starts another one.
    fn finish(&mut self) {
        let dictionary = std::mem::replace(&mut self.dictionary, Dictionary::new(self.profiles));
        let body = std::mem::take(&mut self.body);
        let items = body.items();
        if items > 0 {
            let bytes = body.finish(dictionary.into_tables());
            self.encoded.payloads.push(Payload { bytes, items });
        }
    }
}

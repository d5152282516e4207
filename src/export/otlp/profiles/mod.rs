//! Profiles as requests of OTLP (`ExportProfilesServiceRequest`), as the Collector, Pyroscope, Parca and their kin take
//! them.
//!
//! ```text
//! Profile ─► group: whose samples ─► dictionary: each thing once ─► piece: a Profile of OTLP ─► Payload
//! ```
//!
//! Format: [profiles.proto](https://github.com/open-telemetry/opentelemetry-proto/blob/v1.11.0/opentelemetry/proto/profiles/v1development/profiles.proto)
//! of v1.11, which is that of v1.10 on the wire, and the
//! [specification](https://github.com/open-telemetry/opentelemetry-specification/tree/v1.60.0/specification/profiles).
//! What they leave open is chosen thus, most of it because some backend takes nothing else:
//!
//! - **Resources.** One for each container (`container.id`, and `k8s.pod.uid` where the cgroup tells), and within it for
//!   each service that processes say they are ([`ProcessContext`](crate::target::ProcessContext)); one more for the rest.
//!   All have the attributes that the caller gives, over which those of a container and a process stand.
//! - **Texts stand where they are**, never as references, in resources, scopes and values. Receivers do not resolve them.
//! - **Types and periods** are these (`kind` has a table of them): `samples/count` of a period in `cpu/nanoseconds`;
//!   `off_cpu/nanoseconds` without a period, which is how Pyroscope knows it; `events/count` of a period in the event's own
//!   name, after which Pyroscope calls the profile.
//! - **A sample has one value** and no times. Those of one stack, one thread, one mode and one CPU are one sample. Its
//!   attributes are `process.pid`, `process.executable.name`, `process.linux.cgroup`, `thread.id`, `thread.name`,
//!   `cpu.logical_number` where CPUs are told apart, and `cpu.mode` (`user`, `kernel`) or, off the CPU, `thread.state`
//!   (`sleeping`, `uninterruptible`, `preempted`), for which there is no convention yet.
//! - **Links** stay empty: what a thread publishes about its trace is found by a register that samples do not have.
//! - **Every mapping has a build id**: that of the linker, Go's, and `htlhash`. The kernel and its modules, of which there
//!   is no file, have the linker's alone. What has none at all (a file that was gone before it could be read) has an
//!   `htlhash` made of its path, which no file has: the specification wants one, and the path and the addresses are worth
//!   more than nothing.
//! - **Addresses** are those of the file's own headers, as are the bounds of its mapping.
//! - **A place without a function** has one called like the place, `libc.so.6+0x2a1c0`, as in pprof.
//! - **Losses** are attributes of a profile, `perf_exporter.samples.lost.ring_full` and so on, as the name of its entry is
//!   (`perf_exporter.profile`). Of a profile that became several, each has them.
//!
//! A request above the limit becomes several, each with a dictionary of its own. Texts are bounded as in pprof.

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
use self::dictionary::{Dictionary, Mark};
use self::group::{Group, groups};
use self::head::head;
use self::kind::Types;
use self::piece::Piece;
use super::attribute::Resource;
use super::{Encoded, Payload};
use crate::profile::Profile;

/// How large things may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a request before it is compressed. Receivers of gRPC take 4 MiB unless they are told otherwise; the
    /// specification recommends to send no more than 32 MiB.
    pub limit: usize,
    /// Samples of one profile. Pyroscope takes 16000.
    pub samples: usize,
    /// What the numbers of profiles are made of, beside what is in them: something that no other exporter has.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { limit: 4_000_000, samples: 16_000, seed: 0 }
    }
}

/// The requests for some profiles of one window. Equal profiles become equal bytes.
///
/// Beside the requests it takes some 100 bytes for each sample of a piece ([`Options::samples`]), and four for each entry
/// of the tables of all profiles.
pub fn encode(profiles: &[Profile], resource: &Resource, options: &Options) -> Encoded {
    let mut encoder = Encoder::new(profiles, options);
    groups(profiles, resource).iter().for_each(|group| encoder.group(group));
    encoder.finish();
    encoder.encoded
}

/// A request that is being made, and those that are.
struct Encoder<'p> {
    profiles: &'p [Profile],
    options: &'p Options,
    dictionary: Dictionary<'p>,
    /// What is done of this request.
    body: Body,
    /// Bytes around its last resource.
    around: usize,
    /// How many profiles there were so far.
    number: u64,
    encoded: Encoded,
}

/// What is being filled.
struct Open<'g, 'p> {
    group: &'g Group,
    profile: usize,
    types: Types<'p>,
    piece: Piece,
    head: Vec<u8>,
    /// What the dictionary was before it.
    mark: Mark,
    /// Bytes around the samples, or somewhat more.
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
                // It found no room beside the others: it has the next request to itself.
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
        // What is around another resource is not written yet.
        let last = self.body.group().filter(|&last| last != group.number).map(|_| self.around);
        let around = Body::around(&group.resource) + last.unwrap_or_default();
        let overhead = around + head.len() + message::LENGTH;
        Open { group, profile: place, types, piece: Piece::default(), head, mark, overhead }
    }

    /// A number that no other profile has.
    fn id(&self, profile: &Profile) -> [u8; 16] {
        let mut context = Context::new(&SHA256);
        for number in [self.options.seed, profile.start.0, self.number] {
            context.update(&number.to_le_bytes());
        }
        context.update(profile.kind.name.as_bytes());
        context.finish().as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// Whether there was room for it.
    fn add(&mut self, open: &mut Open<'_, 'p>, sample: &crate::profile::Sample) -> bool {
        let mark = self.dictionary.mark();
        let identity = self.dictionary.identity(open.profile, sample);
        let value = (open.types.value)(sample);
        let undo = open.piece.add(identity, value, &self.dictionary);
        let size = self.body.bytes() + open.overhead + open.piece.bytes() + self.dictionary.bytes();
        if size + message::LENGTH <= self.options.limit {
            return true;
        }
        open.piece.undo(undo);
        self.dictionary.cut(mark);
        false
    }

    /// Puts what was filled to what is done.
    fn close(&mut self, open: Open<'_, 'p>) {
        if open.piece.len() == 0 {
            // Whatever the dictionary has since is of no use to anybody.
            return self.dictionary.cut(open.mark);
        }
        let resource = (open.group.number, &open.group.resource);
        self.body.add(resource, &open.head, &open.piece, &self.dictionary);
        self.around = Body::around(&open.group.resource);
    }

    /// Makes a request of what is done, and begins another one.
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

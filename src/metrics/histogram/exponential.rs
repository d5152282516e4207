//! Counts in exponential buckets, as Prometheus' native histograms have them.
//!
//! Definition: <https://prometheus.io/docs/specs/native_histograms/#data-model>. With schema `s`, bucket `i` holds the
//! values above `base^(i-1)`, up to `base^i` and with it, where `base` is 2^(2^-s); buckets of negative values are
//! their mirror image, and values about zero have a bucket of their own.
//!
//! A histogram begins with eight buckets for each power of two (schema 3) and keeps those that were ever used. When
//! they become many, each two neighbours are made one, down to one bucket for each power of two (schema 0). Coarser
//! schemas exist, but their buckets do not end at every power of two, where the classic bounds are: with these,
//! what text says would no longer be exact.

/// The schema of a new histogram.
const FINEST: u8 = 3;

/// How many buckets may be in use before the resolution is halved: 40 powers of two at the finest one, as many as times
/// from a nanosecond to a quarter of an hour take. At schema 0 there may be more, at most 2307 with both signs, for
/// values over the whole range of an `f64`; whole numbers of 64 bits reach 129.
const MANY: usize = 320;

/// How much room is made at a time: typical histograms are small and many.
const ROOM: usize = 8;

/// Values that are not farther from zero count as zero: 2⁻¹²⁸, as client_golang has it.
pub(super) const ZERO_THRESHOLD: f64 = f64::from_bits((1023 - 128) << 52);

/// What is added to an index so that no bucket of positive values has a key of zero or less; those above the threshold
/// begin with index −1023.
const BIAS: i16 = 1024;

/// The index, at the finest schema, of the bucket above all finite values.
const INFINITE: i16 = 8 * 1024 + 1;

/// The bits of an `f64` that say where it is between two powers of two.
const MANTISSA: u64 = (1 << 52) - 1;

/// Where the buckets of schema 3 begin between two powers of two, as mantissas. Rounded as Prometheus rounds them
/// (`exponentialBounds` in its `model/histogram/generic.go`), so that both sort a value at an end into one bucket.
const BEGINNINGS: [u64; 8] = [
    mantissa(0.5),
    mantissa(0.5452538663326288),
    mantissa(0.5946035575013605),
    mantissa(0.6484197773255048),
    mantissa(0.7071067811865475),
    mantissa(0.7711054127039704),
    mantissa(0.8408964152537144),
    mantissa(0.9170040432046711),
];

const fn mantissa(value: f64) -> u64 {
    value.to_bits() & MANTISSA
}

/// A bucket, by a number that is ordered as the values are: the index plus [`BIAS`], negated for negative values, and 0
/// for the zero bucket. An `i16` has room for all of them.
type Key = i16;

/// The bucket of the finest schema that a value belongs to; NaN belongs to none.
pub(super) fn key(value: f64) -> Key {
    let magnitude = value.abs();
    if magnitude <= ZERO_THRESHOLD {
        return 0;
    }
    let index = if magnitude.is_infinite() {
        INFINITE
    } else {
        // Never subnormal, for the threshold is far above those. The exponent has 11 bits.
        let exponent = (magnitude.to_bits() >> 52) as i16 - 1023;
        let passed = BEGINNINGS.iter().filter(|&&beginning| beginning < mantissa(magnitude)).count();
        8 * exponent + passed as i16
    };
    if value < 0.0 { -(index + BIAS) } else { index + BIAS }
}

/// Whether buckets of every schema in use end at this value: a power of two, not below the zero bucket's end.
pub(super) fn is_end(value: f64) -> bool {
    value.is_finite() && value >= ZERO_THRESHOLD && mantissa(value) == 0
}

/// The bucket that holds this one `halvings` schemas further down: its index divided by powers of two, rounded up.
fn coarser(key: Key, halvings: u8) -> Key {
    if key == 0 {
        return 0;
    }
    let index = key.abs() - BIAS;
    key.signum() * (((index + (1 << halvings) - 1) >> halvings) + BIAS)
}

/// The last of the buckets, `doublings` schemas further up, that are this one; it holds the end that is farther from
/// zero.
fn finer(key: Key, doublings: u8) -> Key {
    key.signum() * (((key.abs() - BIAS) << doublings) + BIAS)
}

/// How many values each bucket has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exponential {
    schema: u8,
    /// The buckets in use, ascending.
    keys: Vec<Key>,
    /// The count of each. Whoever adds sees to it that their sum stays within an `i64`.
    counts: Vec<u64>,
}

impl Exponential {
    pub(super) const fn new() -> Self {
        Self { schema: FINEST, keys: Vec::new(), counts: Vec::new() }
    }

    /// Bytes of its buckets.
    pub(super) fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<Key>() + self.counts.capacity() * size_of::<u64>()
    }

    /// Adds so many values to a bucket of the finest schema.
    pub(super) fn add(&mut self, finest: Key, count: u64) {
        if count == 0 {
            return;
        }
        loop {
            let key = coarser(finest, FINEST - self.schema);
            match self.keys.binary_search(&key) {
                Ok(at) => {
                    self.counts[at] += count;
                    return;
                }
                Err(_) if self.keys.len() >= MANY && self.schema > 0 => self.halve(),
                Err(at) => {
                    self.insert(at, key, count);
                    return;
                }
            }
        }
    }

    fn insert(&mut self, at: usize, key: Key, count: u64) {
        if self.keys.len() == self.keys.capacity() {
            self.keys.reserve_exact(ROOM);
            self.counts.reserve_exact(ROOM);
        }
        self.keys.insert(at, key);
        self.counts.insert(at, count);
    }

    /// Makes each two neighbouring buckets one.
    fn halve(&mut self) {
        self.schema -= 1;
        let mut kept = 0;
        for at in 0..self.keys.len() {
            let key = coarser(self.keys[at], 1);
            if kept > 0 && self.keys[kept - 1] == key {
                self.counts[kept - 1] += self.counts[at];
            } else {
                (self.keys[kept], self.counts[kept]) = (key, self.counts[at]);
                kept += 1;
            }
        }
        self.keys.truncate(kept);
        self.counts.truncate(kept);
    }

    /// Gives up what `other` does not know, so that its buckets can be added.
    pub(super) fn at_most_as_fine_as(&mut self, other: &Self) {
        while self.schema > other.schema {
            self.halve();
        }
    }

    /// The buckets in use as ones of the finest schema, and their counts: what [`add`](Self::add) takes.
    pub(super) fn as_finest(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let doublings = FINEST - self.schema;
        self.keys.iter().zip(&self.counts).map(move |(&key, &count)| (finer(key, doublings), count))
    }

    /// The counts of the buckets in use, in the order of their values.
    pub(super) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many of [`counts`](Self::counts) are of values up to `end`: one of which [`is_end`] is true, or infinity.
    pub(super) fn used_up_to(&self, end: f64) -> usize {
        let last = coarser(key(end), FINEST - self.schema);
        self.keys.partition_point(|&key| key <= last)
    }
}

/// A histogram as exponential buckets: what the protobuf format calls native, and OTLP exponential.
#[derive(Debug, Clone, Copy)]
pub struct Native<'h>(pub(super) &'h Exponential);

impl<'h> Native<'h> {
    /// The resolution: 2^schema buckets for each power of two. From 3 down to 0.
    pub fn schema(self) -> i32 {
        i32::from(self.0.schema)
    }

    /// How far from zero a value of the zero bucket may be.
    pub fn zero_threshold(self) -> f64 {
        ZERO_THRESHOLD
    }

    /// How many values the zero bucket has.
    pub fn zero_count(self) -> u64 {
        self.0.keys.binary_search(&0).map_or(0, |at| self.0.counts[at])
    }

    /// Index and count of each bucket of positive values that was used, ascending. Bucket `i` ends at `base^i`
    /// (inclusive); OTLP, which numbers buckets by where they begin, calls it `i - 1`.
    pub fn positive(self) -> impl Iterator<Item = (i32, u64)> + Clone + 'h {
        let first = self.0.keys.partition_point(|&key| key <= 0);
        self.buckets(first..self.0.keys.len())
    }

    /// The same of negative values, by how far from zero they are.
    pub fn negative(self) -> impl Iterator<Item = (i32, u64)> + Clone + 'h {
        let end = self.0.keys.partition_point(|&key| key < 0);
        self.buckets(0..end).rev()
    }

    fn buckets(
        self,
        range: std::ops::Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (i32, u64)> + Clone + 'h {
        let (keys, counts) = (&self.0.keys[range.clone()], &self.0.counts[range]);
        keys.iter().zip(counts).map(|(&key, &count)| (i32::from(key.abs() - BIAS), count))
    }
}

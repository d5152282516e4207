//! Counts in exponential buckets, as in Prometheus' native histograms.
//!
//! Definition: <https://prometheus.io/docs/specs/native_histograms/#data-model>. With schema `s`, bucket `i` holds the values above
//! `base^(i-1)` up to and including `base^i`, where `base` is 2^(2^-s). Buckets of negative values are their mirror image. Values near zero
//! have a bucket of their own.
//!
//! A histogram starts with eight buckets for each power of two (schema 3) and keeps the buckets that were ever used. When it has too many,
//! neighboring buckets are merged in pairs, down to one bucket for each power of two (schema 0). Coarser schemas exist, but are not used.
//! Their buckets do not end at every power of two, so the classic buckets in the text formats would not be exact.

/// Schema of a new histogram.
const FINEST: u8 = 3;

/// Number of used buckets above which the resolution is halved. It equals 40 powers of two at schema 3, enough for times from a nanosecond
/// to a quarter of an hour. At schema 0 there may be more: at most 2307, with both signs, for values over the whole range of an `f64`.
/// 64-bit integers need up to 129.
const MANY: usize = 320;

/// Number of buckets by which the allocation grows. Typical histograms are small and numerous.
const ROOM: usize = 8;

/// Absolute values up to this threshold count as zero: 2⁻¹²⁸, as in client_golang.
pub(super) const ZERO_THRESHOLD: f64 = f64::from_bits((1023 - 128) << 52);

/// Offset added to bucket indexes, so that every bucket of positive values has a key above zero. The lowest index above the threshold is
/// −1023.
const BIAS: i16 = 1024;

/// Index, at schema 3, of the bucket above all finite values.
const INFINITE: i16 = 8 * 1024 + 1;

/// The bits of an `f64` that give its position between two powers of two.
const MANTISSA: u64 = (1 << 52) - 1;

/// Lower bounds of the buckets of schema 3 between two powers of two, as mantissas. They are rounded as in Prometheus (`exponentialBounds`
/// in its `model/histogram/generic.go`), so both assign a value at a bound to the same bucket.
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

/// A bucket as a number that sorts like the values: the index plus [`BIAS`], negated for negative values, and 0 for the zero bucket. All
/// keys fit an `i16`.
type Key = i16;

/// Returns the schema-3 bucket of a value. NaN has no bucket.
pub(super) fn key(value: f64) -> Key {
    let magnitude = value.abs();
    if magnitude <= ZERO_THRESHOLD {
        return 0;
    }
    let index = if magnitude.is_infinite() {
        INFINITE
    } else {
        // Never subnormal, because the threshold is far above subnormal numbers. The exponent has 11 bits.
        let exponent = (magnitude.to_bits() >> 52) as i16 - 1023;
        let passed = BEGINNINGS.iter().filter(|&&beginning| beginning < mantissa(magnitude)).count();
        8 * exponent + passed as i16
    };
    if value < 0.0 { -(index + BIAS) } else { index + BIAS }
}

/// Reports whether buckets of all used schemas end at this value: a power of two that is not below the bound of the zero bucket.
pub(super) fn is_end(value: f64) -> bool {
    value.is_finite() && value >= ZERO_THRESHOLD && mantissa(value) == 0
}

/// Returns the bucket that contains this one, `halvings` schemas coarser: its index divided by powers of two, rounded up.
fn coarser(key: Key, halvings: u8) -> Key {
    if key == 0 {
        return 0;
    }
    let index = key.abs() - BIAS;
    key.signum() * (((index + (1 << halvings) - 1) >> halvings) + BIAS)
}

/// Returns the last of the buckets, `doublings` schemas finer, that make up this one. It contains the bound that is farther from zero.
fn finer(key: Key, doublings: u8) -> Key {
    key.signum() * (((key.abs() - BIAS) << doublings) + BIAS)
}

/// Counts of the used buckets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exponential {
    schema: u8,
    /// Used buckets, ascending.
    keys: Vec<Key>,
    /// Count of each used bucket. Callers keep the sum within an `i64`.
    counts: Vec<u64>,
}

impl Exponential {
    pub(super) const fn new() -> Self {
        Self { schema: FINEST, keys: Vec::new(), counts: Vec::new() }
    }

    /// Returns the memory of the buckets in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<Key>() + self.counts.capacity() * size_of::<u64>()
    }

    /// Adds `count` values to a bucket of schema 3.
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

    /// Merges neighboring buckets in pairs.
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

    /// Reduces the resolution to that of `other` if it is finer, so that buckets of `other` can be added.
    pub(super) fn at_most_as_fine_as(&mut self, other: &Self) {
        while self.schema > other.schema {
            self.halve();
        }
    }

    /// Returns the used buckets as buckets of schema 3 with their counts, as [`add`](Self::add) expects them.
    pub(super) fn as_finest(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let doublings = FINEST - self.schema;
        self.keys.iter().zip(&self.counts).map(move |(&key, &count)| (finer(key, doublings), count))
    }

    /// Returns the counts of the used buckets, in ascending order of the values.
    pub(super) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns how many of [`counts`](Self::counts) belong to values up to `end`. [`is_end`] must be true for `end`, or it is infinity.
    pub(super) fn used_up_to(&self, end: f64) -> usize {
        let last = coarser(key(end), FINEST - self.schema);
        self.keys.partition_point(|&key| key <= last)
    }
}

/// Exponential buckets of a histogram: native in the Prometheus protobuf format, exponential in OTLP.
#[derive(Debug, Clone, Copy)]
pub struct Native<'h>(pub(super) &'h Exponential);

impl<'h> Native<'h> {
    /// Returns the schema, from 3 down to 0: there are 2^schema buckets for each power of two.
    pub fn schema(self) -> i32 {
        i32::from(self.0.schema)
    }

    /// Returns the maximum absolute value in the zero bucket.
    pub fn zero_threshold(self) -> f64 {
        ZERO_THRESHOLD
    }

    /// Returns the number of values in the zero bucket.
    pub fn zero_count(self) -> u64 {
        self.0.keys.binary_search(&0).map_or(0, |at| self.0.counts[at])
    }

    /// Returns index and count of each used bucket of positive values, ascending. Bucket `i` ends at `base^i` (inclusive). OTLP numbers
    /// buckets by their lower bound, so its index is `i - 1`.
    pub fn positive(self) -> impl Iterator<Item = (i32, u64)> + Clone + 'h {
        let first = self.0.keys.partition_point(|&key| key <= 0);
        self.buckets(first..self.0.keys.len())
    }

    /// Returns index and count of each used bucket of negative values, by ascending absolute value.
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

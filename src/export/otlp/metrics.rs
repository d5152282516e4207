//! Encodes snapshots as OTLP metrics: `ExportMetricsServiceRequest`s.
//!
//! | family | OTLP |
//! |---|---|
//! | counter | monotonic sum, integers as integers |
//! | gauge | gauge; some metrics of the exporter's own process are non-monotonic sums, as in the semantic conventions |
//! | info | gauge of 1, with its labels as attributes |
//! | histogram | exponential histogram if values are counted in exponential buckets, otherwise a histogram with explicit bounds |
//!
//! The count of a histogram is exactly the sum of its bucket counts. The sum of values is omitted if some are negative, as the
//! specification requires. Points have no exemplars, because the exporter has no traces. Names are defined in [`names`] and [`attributes`].
//!
//! **Cumulative or delta.** Cumulative points contain the total since the start of the series, so a lost request costs only resolution.
//! Delta points contain the change since the previously encoded collection. A lost delta is lost: the encoder has no feedback about
//! payloads. The next delta starts at the end of the lost one, so receivers see a gap in time instead of a rate that is too low. Use delta
//! only for receivers that require it.
//!
//! Format: <https://github.com/open-telemetry/opentelemetry-proto/blob/v1.11.0/opentelemetry/proto/metrics/v1/metrics.proto>. Semantics:
//! <https://opentelemetry.io/docs/specs/otel/metrics/data-model/>.

pub mod attributes;
mod distribution;
pub mod names;
mod points;
mod previous;
mod request;

use std::sync::Arc;

use super::Encoded;
use super::attribute::Resource;
use crate::clock::Timestamp;
pub use crate::config::push::{Histograms, Temporality};
use crate::metrics::{Family, Histogram, Kind, Point, Snapshot, Value};
use attributes::Cache;
use distribution::Exponential;
use names::{Instrument, Shape};
use points::{Buckets, HistogramPoint, Number, NumberPoint, Times};
use previous::{AbsentSeries, PreviousValues, find};
use request::{Data, EXPLICIT, EXPONENTIAL, GAUGE, Requests, SUM};

/// Encoding options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Temporality of sums and histograms.
    pub temporality: Temporality,
    /// Type of the histogram buckets.
    pub histograms: Histograms,
    /// Maximum size of a payload in bytes before compression.
    pub limit: usize,
    /// Start time of the process. It is used for series without a start time.
    pub began: Timestamp,
}

/// Encodes consecutive snapshots.
#[derive(Debug)]
pub struct Encoder {
    options: Options,
    /// The previous snapshot, if differences to it are needed, and earlier series that are missing in it.
    before: Option<Arc<Snapshot>>,
    away: AbsentSeries,
}

impl Encoder {
    /// Creates an encoder without history.
    pub fn new(options: Options) -> Self {
        Self { options, before: None, away: AbsentSeries::default() }
    }

    /// Changes the options. The history is kept unless the temporality changes.
    pub fn set_options(&mut self, options: Options) {
        if self.options.temporality != options.temporality {
            *self = Self::new(options);
        }
        self.options = options;
    }

    /// Encodes a snapshot.
    ///
    /// With [`Temporality::Delta`], the value of a series is the change since the previous snapshot. If the series was missing there, but
    /// was reported in the last five minutes, the value is the change since that report. If its last report is older, the value is the
    /// total since its start. If the series restarted or its value decreased, the value is reported as it is.
    ///
    /// Takes about 0.4 µs for a series with shared labels and 1 µs for one with its own labels. Uses at most some ten megabytes in addition
    /// to the result.
    pub fn encode(&mut self, snapshot: &Arc<Snapshot>, resource: &Resource) -> Encoded {
        let mut requests = Requests::new(resource, self.options.limit);
        let mut attributes = Cache::new(points::NUMBER_ATTRIBUTES);
        let known = self.before.take();
        for family in snapshot.families().iter().filter(|family| !family.points().is_empty()) {
            let name = family.metadata().name();
            let same = known.as_ref().and_then(|known| Some((known.taken(), find(known, name)?)));
            let mut before = PreviousValues::new(same, self.away.of(name));
            let instrument = Instrument::of(family.metadata(), |name| find(snapshot, name).is_some());
            let context = Context { options: self.options, taken: snapshot.taken(), instrument: &instrument };
            context.family(family, &mut before, &mut attributes, &mut requests);
        }
        if self.options.temporality == Temporality::Delta {
            self.away.follow(known.as_deref(), snapshot);
            self.before = Some(Arc::clone(snapshot));
        }
        requests.finish()
    }
}

/// Data common to all points of a family.
struct Context<'a> {
    options: Options,
    taken: Timestamp,
    instrument: &'a Instrument,
}

impl Context<'_> {
    fn family(
        &self,
        family: &Family,
        before: &mut PreviousValues<'_>,
        attributes: &mut Cache,
        requests: &mut Requests,
    ) {
        let data = self.data(family);
        let foreseen = family.points().len() * data.usual();
        requests.begin(self.instrument, family.metadata().help(), data, foreseen);
        let info = family.metadata().kind() == Kind::Info;
        for point in family.points() {
            let earlier = before.point(&point.labels);
            match &point.value {
                Value::Histogram(histogram) => self.distribution(point, histogram, earlier, data, requests),
                _ => {
                    let (start, number) = self.number(point, info, earlier);
                    let point = NumberPoint(self.since(start), number, attributes.get(&point.labels));
                    requests.point(&point);
                }
            }
        }
        requests.end();
    }

    fn data(&self, family: &Family) -> Data {
        let delta = self.options.temporality == Temporality::Delta;
        let native =
            |point: &Point| matches!(&point.value, Value::Histogram(histogram) if histogram.is_native());
        let exponential =
            || self.options.histograms == Histograms::Exponential && family.points().iter().all(native);
        let (field, delta, monotonic) = match self.instrument.shape {
            Shape::Gauge => (GAUGE, None, false),
            // Deltas of current values, such as memory usage, are not useful.
            Shape::UpDownCounter => (SUM, Some(false), false),
            Shape::Counter => (SUM, Some(delta), true),
            Shape::Histogram if exponential() => (EXPONENTIAL, Some(delta), false),
            Shape::Histogram => (EXPLICIT, Some(delta), false),
        };
        Data { field, delta, monotonic }
    }

    /// Returns start time and value of a number point.
    fn number(
        &self,
        point: &Point,
        info: bool,
        earlier: Option<(Timestamp, &Point)>,
    ) -> (Option<Timestamp>, Number) {
        match self.instrument.shape {
            Shape::Gauge if info => (None, Number::Integer(1)),
            Shape::Gauge => (None, self.value(&point.value)),
            Shape::UpDownCounter => (Some(self.start(point)), self.value(&point.value)),
            Shape::Counter | Shape::Histogram => {
                let difference = earlier
                    .filter(|(_, earlier)| earlier.start == point.start)
                    .and_then(|(taken, earlier)| Some((taken, difference(&point.value, &earlier.value)?)));
                match difference {
                    Some((taken, difference)) => (Some(taken), self.value(&difference)),
                    None => (Some(self.anew(point, earlier)), self.value(&point.value)),
                }
            }
        }
    }

    fn distribution(
        &self,
        point: &Point,
        histogram: &Histogram,
        earlier: Option<(Timestamp, &Point)>,
        data: Data,
        requests: &mut Requests,
    ) {
        let same = earlier.filter(|(_, earlier)| earlier.start == point.start);
        let before = same.and_then(|(taken, earlier)| match &earlier.value {
            Value::Histogram(earlier) => Some((taken, &**earlier)),
            _ => None,
        });
        let since_previous = before.and_then(|(taken, before)| {
            let sum = histogram.sum() - before.sum();
            Some((taken, sum, Buckets::of(histogram, Some(before), data)?))
        });
        let anew = || {
            let whole = Buckets::of(histogram, None, data)?;
            Some((self.anew(point, earlier), histogram.sum(), whole))
        };
        let Some((start, sum, buckets)) = since_previous.or_else(anew) else { return };
        let times = self.since(Some(start));
        let sum = Some(sum).filter(|_| !distribution::has_negative(histogram));
        let mut attributes = Vec::new();
        let field = match buckets {
            Buckets::Exponential(_) => points::EXPONENTIAL_ATTRIBUTES,
            Buckets::Explicit(_) => points::EXPLICIT_ATTRIBUTES,
        };
        attributes::write(&point.labels, field, &mut attributes);
        let (buckets, bounds, attributes) = (&buckets, histogram.bounds(), &*attributes);
        requests.point(&HistogramPoint { times, sum, buckets, bounds, attributes });
    }

    /// Keeps integers, unless the family may contain floating-point values.
    fn value(&self, value: &Value) -> Number {
        match *value {
            Value::Integer(value) => match i64::try_from(value) {
                Ok(value) if !self.instrument.measured => Number::Integer(value),
                _ => Number::Double(value as f64),
            },
            Value::Float(value) => Number::Double(value),
            // Families of numbers contain no histograms.
            Value::Histogram(_) => Number::Double(f64::NAN),
        }
    }

    fn start(&self, point: &Point) -> Timestamp {
        if point.start == Timestamp::default() { self.options.began } else { point.start }
    }

    /// Returns the start time for a series whose total is reported: the time of the previous snapshot, if the series was in it.
    fn anew(&self, point: &Point, earlier: Option<(Timestamp, &Point)>) -> Timestamp {
        let start = self.start(point);
        earlier.map_or(start, |(taken, _)| start.max(taken))
    }

    /// Returns the times of a point that ends at the collection. After a clock adjustment, the start is limited to the end.
    fn since(&self, start: Option<Timestamp>) -> Times {
        let nanoseconds = |time: Timestamp| time.0.saturating_mul(1_000_000);
        let start = start.map_or(0, |start| nanoseconds(start.min(self.taken)));
        Times { start, end: nanoseconds(self.taken) }
    }
}

/// Returns the difference between two values of one counter; `None` if it decreased.
fn difference(now: &Value, before: &Value) -> Option<Value> {
    let float = |value: &Value| match *value {
        Value::Integer(value) => Some(value as f64),
        Value::Float(value) => Some(value),
        Value::Histogram(_) => None,
    };
    match (now, before) {
        (Value::Integer(now), Value::Integer(before)) => now.checked_sub(*before).map(Value::Integer),
        _ => Some(float(now)? - float(before)?).filter(|difference| *difference >= 0.0).map(Value::Float),
    }
}

impl Buckets {
    fn of(histogram: &Histogram, before: Option<&Histogram>, data: Data) -> Option<Self> {
        match (data.field, histogram.native()) {
            (EXPONENTIAL, Some(native)) => {
                let before = match before {
                    Some(before) => Some(before.native()?),
                    None => None,
                };
                Exponential::of(native, before).map(Self::Exponential)
            }
            _ => distribution::explicit(histogram, before).map(Self::Explicit),
        }
    }
}

#[cfg(test)]
mod tests;

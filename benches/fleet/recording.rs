//! The recorded scrape of one node: each sample with its value at the beginning and at the end of the recording.
//!
//! The file has the form of OpenMetrics, with two values for each sample: `name{labels} first second`. `# SECONDS 60` is the time between
//! them. Cgroups of containers are written as `@1`, `@2` and so on. `run.sh record` creates it.

use std::collections::BTreeMap;
use std::sync::Arc;

use perf_exporter::metrics::{Kind, Metadata};

/// The series of one node.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Families in the order of the file.
    pub(crate) families: Vec<Family>,
    /// Number of recorded CPUs.
    pub(crate) cpus: usize,
    /// Number of recorded containers.
    pub(crate) containers: usize,
}

/// The recorded series of one metric.
#[derive(Debug)]
pub(crate) struct Family {
    /// Name, help text, unit and kind.
    pub(crate) metadata: Arc<Metadata>,
    /// Recorded series.
    pub(crate) series: Vec<Series>,
}

/// One recorded series.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// What the series belongs to.
    pub(crate) owner: Owner,
    /// Labels other than that of the owner.
    pub(crate) labels: Vec<(String, String)>,
    /// Recorded values.
    pub(crate) values: Values,
}

/// Object that a series belongs to, by its number in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The whole node, the exporter, or a cgroup that is not a container.
    Node,
    /// A CPU.
    Cpu(usize),
    /// A container.
    Container(usize),
}

/// Values of a series over the time of the recording.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    /// Increase of a counter per second.
    Counter {
        /// Increase per second.
        rate: f64,
        /// Whether all values are integers.
        is_integer: bool,
    },
    /// The two values of a gauge.
    Gauge {
        /// Value at the beginning.
        first: f64,
        /// Value at the end.
        second: f64,
        /// Whether both values are integers.
        is_integer: bool,
    },
    /// Upper bounds and increase per second of the buckets of a histogram. The last bound is infinite.
    Histogram(Vec<(f64, f64)>),
}

/// One line of the file.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<(String, String)>,
    first: f64,
    second: f64,
    is_integer: bool,
}

impl Recording {
    /// Parses a recording.
    ///
    /// # Errors
    /// Returns the first invalid line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { seconds: 60.0, ..Reader::default() };
        for line in text.lines() {
            reader.line(line).ok_or_else(|| format!("invalid line: {line}"))?;
        }
        reader.end_family().ok_or("an invalid family at the end")?;
        let of = |number: fn(Owner) -> Option<usize>| {
            let owners = reader.families.iter().flat_map(|family| &family.series);
            owners.filter_map(|series| number(series.owner)).map(|number| number + 1).max().unwrap_or(0)
        };
        let cpus = of(|owner| if let Owner::Cpu(number) = owner { Some(number) } else { None });
        let containers = of(|owner| if let Owner::Container(number) = owner { Some(number) } else { None });
        Ok(Self { families: reader.families, cpus, containers })
    }
}

/// State of the parser: the finished families, and metadata and samples of the current one.
#[derive(Default)]
struct Reader<'t> {
    families: Vec<Family>,
    seconds: f64,
    name: &'t str,
    kind: &'t str,
    unit: &'t str,
    help: &'t str,
    samples: Vec<Sample<'t>>,
}

impl<'t> Reader<'t> {
    fn line(&mut self, line: &'t str) -> Option<()> {
        let Some(comment) = line.strip_prefix("# ") else {
            self.samples.push(sample(line, self.name)?);
            return Some(());
        };
        if comment == "EOF" {
            return Some(());
        }
        let (word, rest) = comment.split_once(' ')?;
        if word == "SECONDS" {
            self.seconds = rest.parse().ok()?;
            return Some(());
        }
        let (name, text) = rest.split_once(' ')?;
        if name != self.name {
            self.end_family()?;
            (self.name, self.kind, self.unit, self.help) = (name, "", "", "");
        }
        match word {
            "TYPE" => self.kind = text,
            "UNIT" => self.unit = text,
            "HELP" => self.help = text,
            _ => return None,
        }
        Some(())
    }

    fn end_family(&mut self) -> Option<()> {
        if self.samples.is_empty() {
            return Some(());
        }
        let kind = match self.kind {
            "counter" => Kind::Counter,
            "gauge" => Kind::Gauge,
            "histogram" => Kind::Histogram,
            "info" => Kind::Info,
            _ => return None,
        };
        let metadata = Metadata::new(self.name, self.help, self.unit, kind).ok()?;
        let (samples, seconds) = (std::mem::take(&mut self.samples), self.seconds);
        let series = if kind == Kind::Histogram {
            histograms(samples, seconds)?
        } else {
            samples.into_iter().map(|sample| number(sample, kind, seconds)).collect::<Option<_>>()?
        };
        self.families.push(Family { metadata, series });
        Some(())
    }
}

fn number(sample: Sample<'_>, kind: Kind, seconds: f64) -> Option<Series> {
    let Sample { labels, first, second, is_integer, .. } = sample;
    let values = if kind == Kind::Counter {
        Values::Counter { rate: (second - first).max(0.0) / seconds, is_integer }
    } else {
        Values::Gauge { first, second, is_integer }
    };
    series(labels, values)
}

/// Combines the buckets of each histogram. Sums and counts are omitted because they follow from the buckets.
fn histograms(samples: Vec<Sample<'_>>, seconds: f64) -> Option<Vec<Series>> {
    let mut buckets: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for mut sample in samples.into_iter().filter(|sample| sample.name.ends_with("_bucket")) {
        let at = sample.labels.iter().position(|label| label.0 == "le")?;
        let bound = sample.labels.remove(at).1.parse().ok()?;
        buckets.entry(sample.labels).or_default().push((bound, (sample.second - sample.first) / seconds));
    }
    let all = buckets.into_iter().map(|(labels, cumulative)| {
        let mut below = 0.0;
        let of_bucket =
            |(bound, up_to): (f64, f64)| (bound, (up_to - std::mem::replace(&mut below, up_to)).max(0.0));
        series(labels, Values::Histogram(cumulative.into_iter().map(of_bucket).collect()))
    });
    all.collect()
}

/// Creates a series, with its owner from the labels.
fn series(mut labels: Vec<(String, String)>, values: Values) -> Option<Series> {
    let mut owner = Owner::Node;
    if let Some(at) = labels.iter().position(|(name, _)| name == "cpu") {
        owner = Owner::Cpu(labels.remove(at).1.parse().ok()?);
    } else if let Some(at) =
        labels.iter().position(|(name, value)| name == "cgroup" && value.starts_with('@'))
    {
        let number: usize = labels.remove(at).1.strip_prefix('@')?.parse().ok()?;
        owner = Owner::Container(number.checked_sub(1)?);
    }
    Some(Series { owner, labels, values })
}

/// Parses `name{labels} first second`. A name that does not begin with that of the family is invalid.
fn sample<'t>(line: &'t str, family: &str) -> Option<Sample<'t>> {
    let (series, values) = match line.split_once('}') {
        // Values of labels contain no braces: `run.sh record` checks it.
        Some((series, values)) => (series, values.trim_start()),
        None => line.split_once(' ')?,
    };
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    name.strip_prefix(family)?;
    let labels = labels.split_terminator(',').map(|label| {
        let (name, value) = label.split_once("=\"")?;
        Some((name.to_owned(), value.strip_suffix('"')?.to_owned()))
    });
    let (first, second) = values.split_once(' ')?;
    let is_integer = [first, second].iter().all(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    Some(Sample {
        name,
        labels: labels.collect::<Option<_>>()?,
        first: first.parse().ok()?,
        second: second.parse().ok()?,
        is_integer,
    })
}

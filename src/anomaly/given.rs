//! Usual values that were computed elsewhere, from the nodes of a whole fleet: a JSON file with mean and deviation of each workload.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::robust::Expected;

/// Maximum size of a file, in bytes.
pub const SPECIFICATIONS_SIZE: u64 = 4 << 20;

/// Maximum number of specifications in a file.
const MOST: usize = 20_000;

/// Maximum length of names, in bytes.
const NAME: usize = 4096;

/// Mean and standard deviation of a figure of one workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Given {
    mean: f64,
    deviation: f64,
    samples: f64,
}

impl Given {
    /// Returns what a sample is compared with. Outliers are above the mean by `deviations`, and at least above `floor`.
    pub(super) fn expected(&self, deviations: f64, floor: f64) -> Expected {
        let &Self { mean, deviation, .. } = self;
        let threshold = (mean + deviations * deviation).max(floor);
        Expected { center: mean, spread: deviation, threshold }
    }

    /// Returns the mean.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the number of samples.
    pub(super) fn samples(&self) -> f64 {
        self.samples
    }
}

/// The specifications of a workload, by the model of CPU for which each holds; `None` = all models.
type ByModel = Vec<(Option<String>, Given)>;

/// Specifications by entry and workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Specifications(FxHashMap<String, FxHashMap<String, ByModel>>);

/// One specification of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The name of an entry of `anomalies`.
    kind: String,
    /// The name of the workload: namespace, owner and container of a pod, with slashes, or the path of a cgroup.
    workload: String,
    /// The only model of CPU for which it holds, as in /proc/cpuinfo.
    #[serde(default)]
    cpu_model: Option<String>,
    mean: f64,
    deviation: f64,
    samples: f64,
}

/// Reason why a file of specifications is not read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is no JSON array of specifications.
    #[error("it is not a list of specifications: {0}")]
    Json(#[from] serde_json::Error),
    /// It is too large.
    #[error("it has more than {MOST} specifications")]
    Many,
    /// A specification has a value that makes no sense.
    #[error("the specification of {workload} for {kind} is invalid: {problem}")]
    Invalid {
        /// The entry.
        kind: String,
        /// The workload.
        workload: String,
        /// What is wrong.
        problem: &'static str,
    },
}

impl Specifications {
    /// Reads the content of a file. It may be anything.
    ///
    /// # Errors
    /// The reason why the content is not usable.
    pub fn parse(content: &[u8]) -> Result<Self, Unreadable> {
        let all: Vec<Written> = serde_json::from_slice(content)?;
        if all.len() > MOST {
            return Err(Unreadable::Many);
        }
        let mut specifications = Self::default();
        for Written { kind, workload, cpu_model, mean, deviation, samples } in all {
            let is_number = |number: f64| number.is_finite() && number >= 0.0;
            let of_workload =
                specifications.0.entry(kind.clone()).or_default().entry(workload.clone()).or_default();
            let problem = if ![mean, deviation, samples].into_iter().all(is_number) {
                "mean, deviation and samples are numbers that are not negative"
            } else if workload.is_empty() || workload.len() > NAME {
                "a workload has 1 to 4096 bytes"
            } else if of_workload.iter().any(|(known, _)| *known == cpu_model) {
                "it is there twice"
            } else {
                of_workload.push((cpu_model, Given { mean, deviation, samples }));
                continue;
            };
            return Err(Unreadable::Invalid { kind, workload, problem });
        }
        Ok(specifications)
    }

    /// Returns the names of the entries, sorted.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = self.0.keys().map(String::as_str).collect();
        kinds.sort_unstable();
        kinds
    }

    /// Returns the specification of a workload for an entry on a model of CPU, if there is none for it, that for all models.
    pub(super) fn get(&self, kind: &str, workload: &str, cpu_model: Option<&str>) -> Option<Given> {
        let all = self.0.get(kind)?.get(workload)?;
        let of = |model: Option<&str>| all.iter().find(|(known, _)| known.as_deref() == model);
        of(cpu_model).or_else(|| of(None)).map(|(_, given)| *given)
    }

    /// Returns the number of specifications.
    pub fn len(&self) -> usize {
        self.0.values().flat_map(FxHashMap::values).map(Vec::len).sum()
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Specifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} specifications", self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::anomaly::{Cpi2, Kind, Method};

    /// A file as the command in docs/anomalies.md writes it.
    const FILE: &str = include_str!("given/specifications.json");

    #[test]
    fn the_file_of_the_documented_command_is_read() {
        let all = Specifications::parse(FILE.as_bytes()).unwrap();
        assert_eq!((all.len(), all.kinds()), (2, vec!["cpi"]));
        let web = Given { mean: 1.25, deviation: 0.125, samples: 14_400.0 };
        assert_eq!(all.get("cpi", "shop/web/app", None), Some(web));
        assert_eq!(all.get("forks", "shop/web/app", None), None);
        assert_eq!(all.get("cpi", "shop/other/app", None), None);
    }

    #[test]
    fn a_specification_of_the_model_of_cpu_precedes_that_of_all() {
        let one = |model: &str, mean: f64| {
            let model =
                if model.is_empty() { String::new() } else { format!("\"cpu_model\": \"{model}\", ") };
            format!(
                "{{\"kind\": \"cpi\", \"workload\": \"/a\", {model}\"mean\": {mean}, \"deviation\": 0, \"samples\": 99}}"
            )
        };
        let text = format!("[{}, {}]", one("Xeon", 2.0), one("", 3.0));
        let all = Specifications::parse(text.as_bytes()).unwrap();
        let mean = |model| all.get("cpi", "/a", model).map(|given| given.mean);
        assert_eq!([mean(Some("Xeon")), mean(Some("EPYC")), mean(None)], [Some(2.0), Some(3.0), Some(3.0)]);
        let only = Specifications::parse(format!("[{}]", one("Xeon", 2.0)).as_bytes()).unwrap();
        assert_eq!(only.get("cpi", "/a", Some("EPYC")), None);
    }

    #[test]
    fn limits_are_those_of_the_method_and_few_samples_are_none() {
        let given = |samples| Given { mean: 2.0, deviation: 0.5, samples };
        let robust = Method::Robust(Kind::Cpi.robust());
        let limit =
            |method: &Method, samples| method.expected_by(&given(samples)).map(|expected| expected.threshold);
        // By hand: four deviations above the mean, and two.
        assert_eq!([limit(&robust, 60.0), limit(&robust, 59.0)], [Some(4.0), None]);
        let cpi2 = Method::Cpi2(Cpi2::default());
        assert_eq!([limit(&cpi2, 100.0), limit(&cpi2, 99.0)], [Some(3.0), None]);
        let steady = Given { mean: 2.0, deviation: 0.0, samples: 60.0 };
        assert_eq!(robust.expected_by(&steady).unwrap().threshold, 2.5, "at least a quarter more");
    }

    #[test]
    fn a_file_with_a_mistake_is_refused_as_a_whole_with_the_place() {
        let problem = |text: &str| Specifications::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(problem("{}").contains("not a list of specifications"));
        assert!(problem("[\n{\"kind\": \"cpi\", \"mea\": 1}]").contains("line 2"));
        let one = |mean: &str| {
            format!("{{\"kind\":\"cpi\",\"workload\":\"/a\",\"mean\":{mean},\"deviation\":0,\"samples\":1}}")
        };
        assert!(problem(&format!("[{}]", one("-1"))).contains("/a for cpi is invalid"));
        assert!(problem(&format!("[{}, {}]", one("1"), one("2"))).contains("there twice"));
        let many = vec![one("1"); MOST + 1].join(",");
        assert!(problem(&format!("[{many}]")).contains("more than 20000"));
    }

    proptest! {
        #[test]
        fn any_content_is_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..300)) {
            drop(Specifications::parse(&content));
        }

        #[test]
        fn a_changed_file_is_read_or_refused(place in 0..FILE.len(), byte in any::<u8>()) {
            let mut content = FILE.as_bytes().to_vec();
            content[place] = byte;
            if let Ok(all) = Specifications::parse(&content) {
                prop_assert!(all.len() <= 2);
            }
        }

        #[test]
        fn every_specification_is_found(all in prop::collection::btree_map("[a-z/]{1,20}", (0.0_f64..1e9, 0.0_f64..1e9), 0..50)) {
            let one = |(workload, (mean, deviation)): (&String, &(f64, f64))| {
                serde_json::json!({"kind": "cpi", "workload": workload, "mean": mean, "deviation": deviation, "samples": 100})
            };
            let text = serde_json::Value::Array(all.iter().map(one).collect()).to_string();
            let specifications = Specifications::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(specifications.len(), all.len());
            for (workload, (mean, deviation)) in all {
                let found = specifications.get("cpi", &workload, None).unwrap();
                prop_assert!((found.mean - mean).abs() <= mean * 1e-12 && (found.deviation - deviation).abs() <= deviation * 1e-12);
            }
        }
    }
}

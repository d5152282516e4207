//! Declaration of `derived`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::decode::At;

/// A metric that is computed from counts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Derived {
    /// The expression, as perf writes those of its metrics: event names, numbers, `+ - * / %`, comparisons, `A if CONDITION else B`, `min`, `max`,
    /// `d_ratio`, `duration_time` and constants such as `#num_cpus`. Values of events are in their base units: seconds, bytes, joules.
    #[schemars(extend("examples" = ["1000 * mem_load_retired.l3_miss / instructions"]))]
    pub(in crate::config) expression: Option<At<String>>,
    /// Unit, with the factor that the value is multiplied with before it is shown, as in perf: `100%`, `1e-9GHz`, `per 1000 insn`.
    #[schemars(extend("examples" = ["100%"]))]
    pub(in crate::config) unit: Option<At<String>>,
}

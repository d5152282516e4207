//! Keys of `pods`: rules for pods and their containers.

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::json;

use crate::config::decode::At;
use crate::config::value::{List, Texts, or_short};

/// A rule for pods and their containers. All conditions that it gives must match.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct PodRule {
    /// A pattern of the namespace.
    #[schemars(extend("examples" = ["shop"]))]
    pub(in crate::config) namespace: Option<At<String>>,
    /// A pattern of the name of the pod.
    #[schemars(extend("examples" = ["web-*"]))]
    pub(in crate::config) pod: Option<At<String>>,
    /// A pattern of the name of the container.
    #[schemars(extend("examples" = ["app"]))]
    pub(in crate::config) container: Option<At<String>>,
    /// Labels of the pod, with patterns of their values.
    #[schemars(extend("examples" = [{"app": "web"}]))]
    pub(in crate::config) labels: Option<At<Texts>>,
}

/// A selection of containers and pods by their metadata. The short form is the rules to include.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "ListOrBlock", deny_unknown_fields)]
#[schemars(rename = "PodSelection", description = "The long form of a selection of pods.", transform = PodsOrRules::short_form)]
pub(in crate::config) struct PodsOrRules {
    /// Rules; one match is enough.
    #[serde(default)]
    #[schemars(extend("examples" = [[{"namespace": "shop", "pod": "web-*"}]]))]
    pub(in crate::config) include: Option<At<List<PodRule>>>,
    /// Rules for containers and pods to exclude; takes precedence over `include`.
    #[serde(default)]
    pub(in crate::config) exclude: Option<At<List<PodRule>>>,
}

impl PodsOrRules {
    fn short_form(schema: &mut Schema) {
        let about = "Rules for containers and pods to include, or rules to include and to exclude.";
        let rules = json!({ "anyOf": [{ "type": "array", "items": { "$ref": "#/$defs/PodRule" } }, { "$ref": "#/$defs/PodRule" }] });
        or_short(schema, about, &rules);
    }
}

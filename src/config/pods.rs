//! Checks of rules for pods: patterns of names, and labels.

use std::sync::Arc;

use super::decode::At;
use super::file::{self, PodsOrRules};
use super::patterns::{Lists, glob, lists};
use super::problem::shown;
use super::report::Report;
use super::value::{List, Texts};
use crate::targets::{Glob, PodRule};

/// Maximum number of labels in one rule.
const LABEL_LIMIT: usize = 16;

/// The written conditions of a rule.
#[derive(Clone, Copy)]
pub(super) struct Written<'f> {
    pub(super) namespace: &'f Option<At<String>>,
    pub(super) pod: &'f Option<At<String>>,
    pub(super) container: &'f Option<At<String>>,
    pub(super) labels: &'f Option<At<Texts>>,
}

/// Returns the rule with these conditions. Omitted conditions match everything.
pub(super) fn rule(
    Written { namespace, pod, container, labels }: Written<'_>,
    report: &mut Report<'_>,
) -> PodRule {
    let mut named = |written: &Option<At<String>>| written.as_ref().and_then(|text| name(text, report));
    let (namespace, pod, container) = (named(namespace), named(pod), named(container));
    PodRule {
        namespace,
        pod,
        container,
        labels: labels.as_ref().map_or_else(Vec::new, |at| self::labels(at, report)),
    }
}

/// Returns the written rules for pods.
pub(super) fn selection(written: &Option<At<PodsOrRules>>, report: &mut Report<'_>) -> Lists<PodRule> {
    let Some(At { value: PodsOrRules { include, exclude }, .. }) = written else { return (None, None) };
    rules(include, exclude, report)
}

/// Returns the written rules for pods to include and to exclude.
pub(super) fn rules(
    include: &Option<At<List<file::PodRule>>>,
    exclude: &Option<At<List<file::PodRule>>>,
    report: &mut Report<'_>,
) -> Lists<PodRule> {
    let hint = "leave it out";
    let read = |At { node, value: file::PodRule { namespace, pod, container, labels } }: &At<
        file::PodRule,
    >,
                report: &mut Report<'_>| {
        let rule = rule(Written { namespace, pod, container, labels }, report);
        if rule.is_empty() && !report.blames(*node) {
            let hint = "for every pod write {pod: \"*\"}; otherwise give namespace, pod, container or labels";
            report.error(*node, "a rule without conditions", hint);
        }
        Some(rule)
    };
    lists(include, exclude, ("selects no container", hint), report, read)
}

/// Compiles a pattern of names.
fn name(pattern: &At<String>, report: &mut Report<'_>) -> Option<Glob> {
    let (message, hint) = if pattern.is_empty() {
        ("an empty pattern matches nothing".to_owned(), "leave it out, or write `*` for any name".to_owned())
    } else if pattern.contains('/') {
        let message = format!("{} never matches: names contain no slash", shown(pattern));
        (message, "write `namespace` and `pod` as two keys; for a path write `cgroup`".to_owned())
    } else {
        return glob(pattern, report);
    };
    report.error(pattern.node, message, hint);
    None
}

fn labels(written: &At<Texts>, report: &mut Report<'_>) -> Vec<(Arc<str>, Glob)> {
    let all = &written.value.0;
    if all.is_empty() && !report.blames(written.node) {
        report.error(written.node, "contains no labels", "leave it out");
    }
    report.too_many(written.node, (all.len(), "labels"), LABEL_LIMIT, None);
    let mut rules = Vec::new();
    for (key, pattern) in all.iter().take(LABEL_LIMIT) {
        if key.trim().is_empty() {
            report.error(key.node, "the label name is empty", None);
        }
        // An empty value is a value like any other.
        rules.extend(glob(pattern, report).map(|glob| (Arc::from(key.value.as_str()), glob)));
    }
    rules
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{good, report};
    use crate::targets::{CgroupSelection, Targets};

    /// Returns the selection of the only entry, which counts per cgroup.
    fn selection(file: &str, entry: &str) -> CgroupSelection {
        let config = good(&format!("{file}\ncounters: {{a: {{events: cycles, per: cgroup{entry}}}}}"));
        let [Targets::Cgroups(selection)] = &config.counters[0].per[..] else { panic!("{config:?}") };
        selection.clone()
    }

    /// Returns the patterns and rules that select cgroups, and those that exclude them.
    fn shown(file: &str, entry: &str) -> [String; 2] {
        let CgroupSelection { include, exclude, pods, .. } = selection(file, entry);
        [(include, pods.include), (exclude, pods.exclude)].map(|(globs, rules)| {
            let globs = globs.iter().map(|glob| glob.as_str().to_owned());
            globs.chain(rules.iter().map(ToString::to_string)).collect::<Vec<_>>().join("; ")
        })
    }

    const USUAL: &str = "**/session-*.scope";

    #[test]
    fn pods_replace_the_paths_that_would_be_inherited() {
        assert_eq!(shown("", ""), ["/**", USUAL]);
        assert_eq!(shown("pods: {namespace: shop}", ""), ["namespace shop", USUAL]);
        assert_eq!(shown("pods: [{namespace: a}, {pod: b}]", ""), ["namespace a; pod b", USUAL]);
        assert_eq!(shown("", ", pods: {pod: web-*}"), ["pod web-*", USUAL]);
        assert_eq!(shown("pods: {namespace: shop}", ", pods: {pod: web-*}"), ["pod web-*", USUAL]);
        assert_eq!(shown("pods: {namespace: shop}", ", cgroups: {include: /a}"), ["/a", USUAL]);
        assert_eq!(shown("pods: {namespace: shop}", ", cgroups: {depth: 3}"), ["namespace shop", USUAL]);
    }

    #[test]
    fn paths_and_pods_of_one_place_select_together() {
        let both = "cgroups: {include: [/system.slice/*]}\npods: {namespace: shop}";
        assert_eq!(shown(both, ""), ["/system.slice/*; namespace shop", USUAL]);
    }

    #[test]
    fn excluded_pods_are_inherited_apart_from_the_included_ones() {
        let file = "pods: {exclude: [{namespace: kube-system}]}";
        let excluded = &format!("{USUAL}; namespace kube-system");
        assert_eq!(shown(file, ""), ["/**", excluded]);
        assert_eq!(shown(file, ", pods: {namespace: shop}"), ["namespace shop", excluded]);
    }

    #[test]
    fn pods_are_not_a_few_named_targets() {
        assert!(!selection("pods: {pod: web-0}", "").names_few());
        assert!(selection("cgroups: {include: /a}", "").names_few());
    }

    #[test]
    fn rules_that_match_everything_or_nothing_are_errors() {
        let said = |pods: &str| report(&format!("pods: {pods}"));
        assert!(
            said("{}").contains("a rule without conditions; for every pod write {pod: \"*\"}"),
            "{}",
            said("{}")
        );
        assert!(said("[{}]").contains("pods[0]: a rule without conditions"), "{}", said("[{}]"));
        assert!(said("[]").contains("an empty list selects no container"), "{}", said("[]"));
        assert!(
            said("{include: [{pod: ''}]}").contains("pods.include[0].pod: an empty pattern matches nothing")
        );
        assert!(said("{namespce: a}").contains("unknown setting `namespce`; did you mean `namespace`?"));
        assert!(said("{include: [{pod: a}], namespace: b}").contains("unknown setting `namespace`"));
        assert!(said("{labels: {'': web}}").contains("the label name is empty"));
        assert!(said("shop").contains("expected"), "{}", said("shop"));
        let none = report("counters: {a: {events: cycles, per: cpu, pods: {pod: a}}}");
        assert!(none.contains("this has no effect: the entry does not count per cgroup"), "{none}");
    }

    #[test]
    fn labels_of_all_rules_are_requested_from_the_sources() {
        let file = "pods: {labels: {app: web}}\nprofiles: {x: {event: cpu-clock, pods: {exclude: {labels: {tier: db}}}}}";
        assert_eq!(good(file).containers.selecting, ["app".into(), "tier".into()]);
        assert!(good("pods: {pod: a}").containers.selecting.is_empty());
    }
}

//! What README.md and the commented configurations promise, held against the program: command lines, options, YAML,
//! metrics, paths.

use std::collections::{BTreeMap, BTreeSet};

use perf_exporter::config::traced::{Measure, TracedKind};
use perf_exporter::config::{Config, Preset, Traced, load};
use perf_exporter::event::Catalog;
use perf_exporter::export::prometheus::Format;
use perf_exporter::host::{self as files, Facts, Roots};
use perf_exporter::plan::{Entries, StreamSupport, plan};
use perf_exporter::target::Targets;
use perf_exporter::{profile, tracepoint};

use crate::fake::scrape;
use crate::program::{Service, host, repository, run};

/// Words that begin like metrics and are the kernel's, or the group of probes that a person adds.
const OF_THE_KERNEL: [&str; 7] = [
    "perf_event_max_sample_rate",
    "perf_event_max_stack",
    "perf_event_mlock_kb",
    "perf_event_open",
    "perf_event_paranoid",
    "perf_events",
    "perf_exporter",
];

/// Events that comments name by way of example, and that no configuration here counts so.
const EXAMPLES: &str = r#"
counters:
  forks: {events: ["sched:sched_process_fork"], per: cgroup}
  raw: {events: [{event: "cpu/event=0x3c/", name: my_cycles}]}
probes:
  hits: {kprobe: tcp_sendmsg}
"#;

fn readme() -> String {
    files::read_text(&repository("README.md")).unwrap()
}

/// The content of each fenced block in one of these languages.
fn blocks(text: &str, languages: &[&str]) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, fence)) = rest.split_once("```") {
        let (language, after) = fence.split_once('\n').unwrap();
        let (content, after) = after.split_once("```").unwrap();
        if languages.contains(&language.trim()) {
            blocks.push(content.to_owned());
        }
        rest = after;
    }
    blocks
}

/// What stands between backquotes on a line.
pub(crate) fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_yaml_of_the_readme_is_a_configuration_without_a_warning() {
    let blocks = blocks(&readme(), &["yaml"]);
    assert!(!blocks.is_empty());
    for block in blocks {
        let (_, warnings) =
            load(block.as_bytes(), "README.md").unwrap_or_else(|error| panic!("{error}\n{block}"));
        assert!(warnings.is_empty(), "{warnings:?}\n{block}");
    }
}

/// The configurations that the repository has, each behind its path.
pub(crate) fn configurations() -> Vec<(String, String)> {
    let examples = files::list(&repository("config/examples")).unwrap();
    let examples = examples.iter().map(|name| format!("config/examples/{name}"));
    let presets = Preset::ALL.iter().map(|preset| format!("config/presets/{}.yaml", preset.as_str()));
    let others = [
        "config/perf-exporter.yaml",
        "deploy/otel-collector/agent-collector.yaml",
        "deploy/otel-collector/agent-otlp.yaml",
        "deploy/otel-collector/agent-prometheus-pyroscope.yaml",
        "tests/data/config/uncore.yaml",
    ];
    let others = others.map(str::to_owned);
    let read = |path: String| (path.clone(), files::read_text(&repository(&path)).unwrap());
    examples.chain(presets).chain(others).map(read).collect()
}

/// Every metric that the program has for any of these configurations on any fixture host.
fn metrics() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let readme = blocks(&readme(), &["yaml"]).into_iter().map(|block| ("README.md".to_owned(), block));
    let examples = ("examples".to_owned(), EXAMPLES.to_owned());
    for (path, yaml) in configurations().into_iter().chain(readme).chain([examples]) {
        let (config, _) = load(yaml.as_bytes(), &path).unwrap();
        for on in ["intel-hybrid", "intel-server", "amd", "arm", "vm"] {
            let roots = Roots::under(&host(on));
            let facts = Facts::read(&roots);
            let support = StreamSupport::foreseen(&facts);
            let entries = Entries {
                scheduler: config.scheduler.as_ref(),
                syscalls: config.syscalls.as_ref(),
                ..Entries::counters(&config.counters)
            };
            let plan = plan(&entries, &Catalog::load(&roots, &facts), &support);
            let outputs = plan.traces.iter().flat_map(|trace| &trace.outputs);
            let of_threads = outputs.flat_map(|output| output.hits.iter().chain(&output.amount));
            known.extend(
                of_threads.flat_map(|metric| [metric.name().into(), format!("{}_total", metric.name())]),
            );
            let counters = plan.groups.iter().flat_map(|group| &group.counters);
            let metrics = counters.flat_map(|counter| [&counter.metric, &counter.unattributed]);
            known.extend(metrics.map(|metric| format!("{}_total", metric.name())));
            known.extend(config.traced.iter().flat_map(traced));
        }
    }
    let sometimes = tracepoint::METRICS.iter().chain(&profile::METRICS);
    known.extend(sometimes.flat_map(|metric| [(*metric).to_owned(), format!("{metric}_total")]));
    let served = Service::start_pushing("tests/data/hosts/vm").get("/metrics").1;
    let counted = scrape(&host("amd"), &Config::default(), Format::Text);
    for line in served.lines().chain(counted.lines()) {
        known.extend(line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()).map(str::to_owned));
    }
    known
}

/// The metrics of an entry, on a host that has its events.
fn traced(traced: &Traced) -> Vec<String> {
    let (base, stem) = (traced.base(), traced.stem());
    let metrics = match traced.measure {
        Measure::Count => vec![format!("{base}_total")],
        Measure::Sum(_) => vec![format!("{base}_total"), format!("{stem}_total")],
        Measure::Histogram(..) | Measure::Elapsed(_) => vec![stem],
    };
    let about = match traced.kind {
        TracedKind::Tracepoint | TracedKind::Preset(_) => "tracepoint",
        TracedKind::Probe => "probe",
        TracedKind::Scheduler | TracedKind::Syscalls => panic!("these are no entries"),
    };
    let scope = |per: &Targets| per.scope().prefix().unwrap_or(about);
    let scopes: Vec<&str> = traced.per.iter().map(scope).collect();
    metrics
        .iter()
        .flat_map(|metric| scopes.iter().map(move |scope| format!("perf_{scope}_{metric}")))
        .collect()
}

/// The words of a text that are metrics by their first letters.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("perf_") && !OF_THE_KERNEL.contains(word)).collect()
}

/// A name that ends with an underscore stands for all that begin so (`perf_cpu_<event>_total`).
#[test]
fn every_metric_that_is_written_about_exists() {
    let mut known = metrics();
    // Those of containers take containers to be seen: unit tests and live ones have them.
    known.insert("perf_container_info".to_owned());
    let of_histogram = |name: &str| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name.strip_suffix(end).is_some_and(|stem| known.contains(stem)))
    };
    let exists = |name: &str| {
        known.contains(name)
            || of_histogram(name)
            || name.ends_with('_') && known.iter().any(|known| known.starts_with(name))
    };
    let readme = readme();
    assert!(named(&readme).len() > 5, "the test finds no metrics any more");
    for (path, text) in configurations().into_iter().chain([("README.md".to_owned(), readme)]) {
        // In the configurations, words in code are events and paths.
        let text = text.replace("perf_exporter::", "");
        let unknown: Vec<&str> = named(&text).into_iter().filter(|name| !exists(name)).collect();
        assert!(unknown.is_empty(), "{path}: nobody publishes {unknown:?}");
    }
}

/// The words of a command line behind the program's name, up to a comment, a pipe or the command to be measured.
fn words(line: &str) -> Option<Vec<&str>> {
    let line = line.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
    let arguments = line.strip_prefix("perf-exporter")?;
    if !arguments.is_empty() && !arguments.starts_with(' ') {
        return None;
    }
    Some(arguments.split_whitespace().take_while(|word| !["--", "|", "#", ">", "&"].contains(word)).collect())
}

/// The options that follow each command somewhere in the README, or stand in the same row of a table.
fn options(readme: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut options: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let is_option = |word: &&str| word.starts_with('-') && word.len() > 1;
    let mut add = |words: Vec<&str>, beside: Vec<&str>| {
        // Only one has commands of its own.
        let depth = if words.first() == Some(&"sched") { 2 } else { 1 };
        let command: Vec<&str> =
            words.iter().take(depth).take_while(|word| !is_option(word)).copied().collect();
        let command = command.join(" ");
        let words = words.into_iter().chain(beside).filter(is_option);
        options.entry(command).or_default().extend(words.map(str::to_owned));
    };
    for line in blocks(readme, &["sh", "console"]).iter().flat_map(|block| block.lines()) {
        words(line).into_iter().for_each(|words| add(words, Vec::new()));
    }
    for line in readme.lines() {
        let spans = spans(line);
        let commands: Vec<_> = spans.iter().filter_map(|span| words(span)).collect();
        let beside = match (&commands[..], line.starts_with('|')) {
            ([_], true) => spans
                .iter()
                .filter(|span| is_option(span))
                .filter_map(|span| span.split(' ').next())
                .collect(),
            _ => Vec::new(),
        };
        commands.into_iter().for_each(|words| add(words, beside.clone()));
    }
    options
}

#[test]
fn every_command_and_option_that_is_written_about_exists() {
    let options = options(&readme());
    assert!(options.len() > 2, "the test finds no commands any more: {options:?}");
    for (command, options) in options {
        let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = run(&arguments);
        assert_eq!(help.code, 0, "perf-exporter {command}: {}", help.stderr);
        let known: BTreeSet<&str> =
            help.stdout.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        for option in options {
            let name = option.split('=').next().unwrap();
            assert!(known.contains(name), "perf-exporter {command} has no option {option}");
        }
    }
}

#[test]
fn every_path_that_is_written_about_is_served() {
    let service = Service::start(["--host-root", "tests/data/hosts/vm"]);
    let readme = readme();
    let rows = readme.lines().filter(|line| line.starts_with("| `/"));
    let paths: Vec<&str> = rows.flat_map(spans).filter(|span| span.starts_with('/')).collect();
    assert!(paths.len() > 3, "the test finds no paths any more: {paths:?}");
    for path in paths {
        assert_ne!(service.get(path).0, 404, "{path}");
    }
}

#[test]
fn every_file_that_is_linked_to_is_there() {
    let readme = readme();
    let links: Vec<&str> = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let local: Vec<&str> = links.into_iter().filter(|link| !link.contains("://")).collect();
    assert!(!local.is_empty());
    for link in local {
        let path = link.split('#').next().unwrap();
        assert!(path.is_empty() || repository(path).exists(), "{link}");
    }
}

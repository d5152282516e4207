//! Compares README.md, the pages below `docs` and the commented configurations with the program: command lines, options, YAML, metrics,
//! paths, links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perf_exporter::config::traced::{Measure, TracedKind};
use perf_exporter::config::{Config, Preset, Traced, load, schema};
use perf_exporter::event::Catalog;
use perf_exporter::export::prometheus::Format;
use perf_exporter::host::{self as files, Facts, Roots};
use perf_exporter::metrics::Level;
use perf_exporter::plan::{Entries, StreamSupport, plan};
use perf_exporter::targets::Targets;
use perf_exporter::{profile, tracepoint};
use serde_json::Value as Json;

use crate::fake::scrape;
use crate::program::{Service, host, repository, run};

/// Words with the prefix of metrics that are not metrics: names of the kernel, and the probe group of the command `probe`.
const OF_THE_KERNEL: [&str; 7] = [
    "perf_event_max_sample_rate",
    "perf_event_max_stack",
    "perf_event_mlock_kb",
    "perf_event_open",
    "perf_event_paranoid",
    "perf_events",
    "perf_exporter",
];

/// Events used as examples in comments, which no configuration here counts in this form.
const EXAMPLES: &str = r#"
counters:
  forks: {events: ["sched:sched_process_fork"], per: cgroup}
  raw: {events: [{event: "cpu/event=0x3c/", name: my_cycles}]}
probes:
  hits: {kprobe: tcp_sendmsg}
"#;

/// Pages of the manual. All their YAML blocks are configurations.
const MANUAL: [&str; 24] = [
    "README.md",
    "docs/comparing-deploys.md",
    "docs/concepts.md",
    "docs/configuration.md",
    "docs/containers.md",
    "docs/cost.md",
    "docs/dashboards-and-alerts.md",
    "docs/deep.md",
    "docs/glossary.md",
    "docs/http.md",
    "docs/introduction.md",
    "docs/labels.md",
    "docs/lifecycle.md",
    "docs/limits.md",
    "docs/probes-in-pods.md",
    "docs/profiles.md",
    "docs/push-otlp.md",
    "docs/queries.md",
    "docs/remote-write.md",
    "docs/retention.md",
    "docs/scheduler-and-syscalls.md",
    "docs/adding-a-command.md",
    "docs/adding-a-metric.md",
    "docs/tracepoints-and-probes.md",
];

fn read(path: &str) -> String {
    files::read_text(&repository(path)).unwrap()
}

/// Returns the Markdown files of a directory, with their paths.
fn pages_in(dir: &str) -> Vec<(String, String)> {
    let names = files::list(&repository(dir)).unwrap();
    let paths = names.iter().filter(|name| name.ends_with(".md")).map(|name| format!("{dir}/{name}"));
    paths.map(|path| (path.clone(), read(&path))).collect()
}

/// Returns the pages of the manual and of the commands.
fn manual() -> Vec<(String, String)> {
    let pages = MANUAL.iter().map(|path| ((*path).to_owned(), read(path)));
    pages.chain(pages_in("docs/commands")).collect()
}

/// Returns README.md and all pages below `docs`.
fn pages() -> Vec<(String, String)> {
    let readme = ("README.md".to_owned(), read("README.md"));
    [readme].into_iter().chain(pages_in("docs")).chain(pages_in("docs/commands")).collect()
}

/// Returns the YAML blocks of the manual, each with the path of its page.
fn yaml() -> Vec<(String, String)> {
    let of_page = |(path, text): (String, String)| {
        blocks(&text, &["yaml"]).into_iter().map(move |block| (path.clone(), block))
    };
    manual().into_iter().flat_map(of_page).collect()
}

/// Returns the content of each fenced block in one of these languages.
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

/// Returns the texts between backquotes on a line.
pub(crate) fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_yaml_of_the_manual_is_a_configuration_without_a_warning() {
    let blocks = yaml();
    assert!(blocks.iter().any(|(path, _)| path == "README.md"), "README.md has no configuration");
    assert!(blocks.len() > 5, "this test found too few YAML blocks: {blocks:?}");
    for (path, block) in blocks {
        let (_, warnings) = load(block.as_bytes(), &path).unwrap_or_else(|error| panic!("{error}\n{block}"));
        assert!(warnings.is_empty(), "{path}: {warnings:?}\n{block}");
    }
}

/// Returns the configurations in the repository, each with its path.
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

/// Returns every metric that the program exports for any of these configurations on any fixture host.
fn metrics() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let examples = ("examples".to_owned(), EXAMPLES.to_owned());
    for (path, yaml) in configurations().into_iter().chain(yaml()).chain([examples]) {
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
    let served = Service::start_pushing("tests/data/hosts/vm", Level::Full).get("/metrics").1;
    let counted = scrape(&host("amd"), &Config::default(), Format::Text);
    for line in served.lines().chain(counted.lines()) {
        known.extend(line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()).map(str::to_owned));
    }
    known
}

/// Returns the metrics of an entry, on a host that has its events.
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
        TracedKind::Scheduler | TracedKind::Syscalls => panic!("counters are not trace entries"),
    };
    let scope = |per: &Targets| per.scope().prefix().unwrap_or(about);
    let scopes: Vec<&str> = traced.per.iter().map(scope).collect();
    metrics
        .iter()
        .flat_map(|metric| scopes.iter().map(move |scope| format!("perf_{scope}_{metric}")))
        .collect()
}

/// Returns the words of a text that have the prefix of metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("perf_") && !OF_THE_KERNEL.contains(word)).collect()
}

/// A name that ends with an underscore stands for all names with this prefix (`perf_cpu_<event>_total`).
#[test]
fn every_metric_that_is_written_about_exists() {
    let mut known = metrics();
    // The container metric requires running containers, so other tests cover it.
    known.insert("perf_container_info".to_owned());
    known.insert("perf_exporter_container_lookups_total".to_owned());
    // Anomalies require a history, which other tests cover.
    known.extend(perf_exporter::anomaly::NAMES.map(str::to_owned));
    known.insert("perf_anomalies_total".to_owned());
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
    let manual = manual();
    let count = manual.iter().flat_map(|(_, text)| named(text)).collect::<BTreeSet<_>>().len();
    assert!(count > 50, "this test found too few metrics");
    for (path, text) in configurations().into_iter().chain(manual) {
        // In the configurations, words in code are events and paths.
        let text = text.replace("perf_exporter::", "");
        let unknown: Vec<&str> = named(&text).into_iter().filter(|name| !exists(name)).collect();
        assert!(unknown.is_empty(), "{path}: the program does not export {unknown:?}");
    }
}

/// Returns the words of a command line after the program's name, up to a comment, a pipe or the measured command.
fn words(line: &str) -> Option<Vec<&str>> {
    let line = line.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
    let arguments = line.strip_prefix("perf-exporter")?;
    if !arguments.is_empty() && !arguments.starts_with(' ') {
        return None;
    }
    Some(arguments.split_whitespace().take_while(|word| !["--", "|", "#", ">", "&"].contains(word)).collect())
}

/// Returns the options that follow each command in the manual, or are in the same table row.
fn options(manual: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut options: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let is_option = |word: &&str| word.starts_with('-') && word.len() > 1;
    let mut add = |words: Vec<&str>, beside: Vec<&str>| {
        let has_subcommands =
            words.first().is_some_and(|first| ["sched", "lock", "incidents", "mem", "c2c"].contains(first));
        let depth = if has_subcommands { 2 } else { 1 };
        let command: Vec<&str> =
            words.iter().take(depth).take_while(|word| !is_option(word)).copied().collect();
        let command = command.join(" ");
        let words = words.into_iter().chain(beside).filter(is_option);
        options.entry(command).or_default().extend(words.map(str::to_owned));
    };
    for line in blocks(manual, &["sh", "console"]).iter().flat_map(|block| block.lines()) {
        words(line).into_iter().for_each(|words| add(words, Vec::new()));
    }
    for line in manual.lines() {
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
    let text: Vec<String> = manual().into_iter().map(|(_, text)| text).collect();
    let options = options(&text.join("\n"));
    assert!(options.len() > 10, "this test found too few commands: {options:?}");
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
    let page = read("docs/http.md");
    let rows = page.lines().filter(|line| line.starts_with("| `/"));
    let paths: Vec<&str> = rows.flat_map(spans).filter(|span| span.starts_with('/')).collect();
    assert!(paths.len() > 9, "this test found too few paths: {paths:?}");
    for path in paths {
        assert_ne!(service.get(path).0, 404, "{path}");
    }
}

/// Returns the targets of the links on a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// Returns the anchors of a page: its headings as written by GitHub and mdBook.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim();
        let kept = text.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_file_and_anchor_that_is_linked_to_is_there() {
    let mut count = 0;
    for (path, text) in pages() {
        let dir = Path::new(&path).parent().unwrap();
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { repository(&path) } else { repository("").join(dir).join(file) };
            assert!(target.exists(), "{path}: {link}");
            if !anchor.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
                let anchors = anchors(&files::read_text(&target).unwrap());
                assert!(anchors.contains(anchor), "{path}: {link}: {anchors:?}");
            }
            count += 1;
        }
    }
    assert!(count > 100, "this test found too few links");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents = read("docs/SUMMARY.md");
    let listed: BTreeSet<&str> = links(&contents).collect();
    for (path, _) in pages_in("docs").into_iter().chain(pages_in("docs/commands")) {
        let page = path.trim_start_matches("docs/");
        assert!(page == "SUMMARY.md" || listed.contains(page), "docs/SUMMARY.md lacks {page}");
    }
}

/// Returns the sections of a command's page, each with its command line. A heading that is a command line begins a section.
fn command_parts(text: &str) -> Vec<(Vec<&str>, Vec<&str>)> {
    let mut parts: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        let command = line.starts_with('#').then(|| spans(line).first().copied().and_then(words)).flatten();
        if let Some(command) = command {
            parts.push((command, Vec::new()));
        } else if let Some((_, lines)) = parts.last_mut() {
            lines.push(line);
        }
    }
    parts
}

/// Returns the options that a help text describes, without the global options.
fn described(help: &str) -> BTreeSet<&str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines =
        help.lines().filter(|line| (1..=6).contains(&indent(line)) && line.trim_start().starts_with('-'));
    let words = lines.flat_map(|line| line.split([' ', ','])).filter(|word| word.starts_with('-'));
    let options =
        words.filter_map(|word| word.split(['[', '=', '<']).next()).map(|word| word.trim_end_matches('.'));
    options.filter(|option| !GLOBAL.contains(option)).collect()
}

/// Global options, which are documented on a separate page.
const GLOBAL: [&str; 5] = ["--host-root", "--log", "--log-format", "-h", "--help"];

#[test]
fn the_page_of_a_command_has_its_options_and_no_others() {
    let mut count = 0;
    for (path, text) in pages_in("docs/commands") {
        for (command, lines) in command_parts(&text) {
            let rows = lines.iter().filter(|line| line.starts_with("| `-"));
            let cells = rows.filter_map(|row| row.split(" | ").next());
            let options = cells.flat_map(spans).filter_map(|span| span.split(' ').next());
            let written: BTreeSet<&str> = options.collect();
            let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
            let help = run(&arguments);
            assert_eq!(help.code, 0, "{path}: {}", help.stderr);
            if help.stdout.contains("Commands:") {
                continue;
            }
            assert_eq!(written, described(&help.stdout), "{path}: perf-exporter {}", command.join(" "));
            count += 1;
        }
    }
    assert!(count >= 10, "this test found too few pages of commands");
}

/// Formats a bound as on the page: sizes with the largest unit that divides them.
fn bound(value: &Json, is_size: bool) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let number = value.as_u64().unwrap();
    let unit = units.into_iter().find(|&(_, bits)| is_size && number.is_multiple_of(1_u64 << bits));
    unit.map_or_else(|| number.to_string(), |(unit, bits)| format!("{}{unit}", number >> bits))
}

/// Formats a default as on the page: strings without quotes, other values as JSON.
fn default(value: &Json) -> String {
    format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// Returns the definitions with keys: the whole file, and each definition that is a block or has an alternative that is a block.
fn definitions(schema: &Json) -> Vec<&serde_json::Map<String, Json>> {
    let own = schema["properties"].as_object();
    let named = schema["$defs"].as_object().unwrap().values().flat_map(|definition| {
        let forms = definition["anyOf"].as_array().into_iter().flatten();
        [definition].into_iter().chain(forms).filter_map(|form| form["properties"].as_object())
    });
    own.into_iter().chain(named).collect()
}

#[test]
fn the_page_about_the_configuration_has_every_key_with_its_default_and_bounds() {
    let schema = schema();
    let page = read("docs/configuration.md");
    // The rows of each table, by key.
    let mut tables: Vec<BTreeMap<&str, Vec<&str>>> = Vec::new();
    for line in page.lines() {
        if line.starts_with("| key |") {
            tables.push(BTreeMap::new());
        } else if let (Some(table), true) = (tables.last_mut(), line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            table.insert(cells[0].trim_matches('`'), cells);
        }
    }
    let definitions = definitions(&schema);
    assert!(definitions.len() > 20, "this test found too few definitions");
    for keys in definitions {
        let names: BTreeSet<&str> = keys.keys().map(String::as_str).collect();
        let same_keys = |table: &&BTreeMap<&str, Vec<&str>>| table.keys().copied().eq(names.iter().copied());
        let of_keys = |table: &BTreeMap<&str, Vec<&str>>| {
            keys.iter().find_map(|(key, property)| {
                let cells = &table[key.as_str()];
                let is_size = property.to_string().contains("#/$defs/Size");
                let expected = property.get("default").map(default);
                if expected.is_some_and(|expected| cells[1] != expected) {
                    return Some(format!("the default of {key} is {}", property["default"]));
                }
                let bounds = [property.get("minimum"), property.get("maximum")].into_iter().flatten();
                let bounds: Vec<String> = bounds.map(|value| bound(value, is_size)).collect();
                let missing = bounds.iter().find(|bound| !cells[2].split(' ').any(|word| word == **bound));
                missing.map(|bound| format!("a bound of {key} is {bound}"))
            })
        };
        // Some blocks have the same keys, for example the cgroups and the processes of a profile.
        let wrong: Vec<_> = tables.iter().filter(same_keys).map(of_keys).collect();
        assert!(!wrong.is_empty(), "docs/configuration.md has no table with {names:?}");
        assert!(wrong.iter().any(Option::is_none), "docs/configuration.md: {wrong:?}");
    }
}

//! The status page on `/` and `/status`: one HTML document without scripts and external resources, readable on a phone. Problems are shown
//! first.

mod annotated;
mod containers;
mod deep;
pub(crate) mod figures;
mod files;
mod function_table;
pub(super) mod heat;
pub(in crate::export) mod html;
mod memory;
pub(super) mod not_recorded;
pub mod profile;
mod profiled;
mod pushes;
mod selection_form;
pub(in crate::export) mod threads;
mod traces;
mod view;

use std::cmp::Reverse;
use std::fmt::Display;

use self::figures::{bytes, count, duration, percent};
use self::html::Html;
use crate::clock::Timestamp;
use crate::health::SameReason;
use crate::status::{CounterStatus, EventStatus, Loss, Series, Status, Stream, Unattributed, Usage};

/// Maximum number of lines in each list. Further lines are counted only; `/api/v1/status` has all of them.
const LINES: usize = 40;

/// Age of the last collection, in intervals, above which collection is reported as stopped.
const STALE_INTERVALS: u32 = 3;

/// Renders the status page.
pub fn render(status: &Status) -> String {
    let mut html = Html::default();
    html.raw(profile::HEAD_START).raw(concat!(
        "<title>perf-exporter</title><style>",
        include_str!("page.css"),
        "</style></head><body><header><h1>perf-exporter</h1><span class=\"quiet\">"
    ));
    html.put(
        concat!(
            "{}</span><nav><a href=\"/\">Overview</a><a href=\"/metrics\">Metrics</a><a href=\"/api/v1/status\">JSON</a>",
            "<a href=\"/-/healthy\">Health</a><a href=\"/-/ready\">Readiness</a></nav></header><main>"
        ),
        [&status.version],
    );
    verdict(&mut html, status);
    failed_reload(&mut html, status);
    tiles(&mut html, status);
    refusals(&mut html, &status.refusals);
    counters(&mut html, &status.counters);
    status.stream.iter().for_each(|shown| stream(&mut html, shown));
    status.threads.iter().for_each(|shown| threads::threads(&mut html, shown));
    traces::traces(&mut html, &status.traces);
    profiled::profiled(&mut html, &status.profiles);
    deep::deep(&mut html, status);
    files::files(&mut html, status);
    containers::containers(&mut html, status);
    pushes::pushes(&mut html, status);
    html.raw("<div class=\"cards\">");
    series(&mut html, &status.series);
    losses(&mut html, &status.losses);
    html.raw("</div><div class=\"cards\">");
    memory::memory(&mut html, status);
    host(&mut html, status);
    configuration(&mut html, status);
    html.raw("</div></main></body></html>\n");
    html.finish()
}

/// Writes a one-sentence summary of the state.
fn verdict(html: &mut Html, status: &Status) {
    let total = |of: fn(&EventStatus) -> u64| -> u64 {
        status.counters.iter().flat_map(|entry| &entry.events).map(of).sum()
    };
    let counting = total(|event| event.counting + event.shared.map_or(0, |shared| shared.count));
    let (stalled, refused) = (total(|event| event.stalled), total(|event| event.refused));
    let all = counting + stalled + refused;
    match status.collection {
        None => {
            html.raw("<div class=\"banner warn\"><p><b>Starting.</b> No collection has finished yet.");
        }
        Some(last) if age(status, last.at) > last.interval * STALE_INTERVALS => {
            html.put(
                "<div class=\"banner bad\"><p><b>Collection has stopped.</b> The last collection is {} old; the interval is {}.",
                [&duration(age(status, last.at)), &duration(last.interval)],
            );
        }
        Some(_) => {
            html.put(
                "<div class=\"banner {}\"><p><b>{} of {} counters are counting</b>",
                [&if counting == all { "good" } else { "warn" }, &count(counting), &count(all)],
            );
            for (number, what) in [(stalled, "stalled"), (refused, "could not be opened")] {
                if number > 0 {
                    html.put(", {} {}", [&count(number), &what]);
                }
            }
            html.raw(".");
        }
    }
    html.put(" <span class=\"quiet\">As of {}</span></p></div>", [&format_args!("{:#}", status.now)]);
}

fn failed_reload(html: &mut Html, status: &Status) {
    let Some(failed) = &status.configuration.failed_reload else { return };
    html.put(
        "<div class=\"banner bad\"><p><b>The configuration reload failed</b> at {}; the previous configuration stays in \
         force. Correct the file and reload again.</p><ul>",
        [&format_args!("{:#}", failed.at)],
    );
    some(html, &failed.problems, "</ul>", |html, problem| {
        html.put("<li>{}</li>", [problem]);
    });
    html.raw("</div>");
}

fn tiles(html: &mut Html, status: &Status) {
    html.raw("<div class=\"tiles\">");
    if let Some(last) = status.collection {
        html.put(
            "<div class=\"tile\"><small>Last collection</small><b>{} ago</b><small>took {}</small></div>\
             <div class=\"tile\"><small>Series</small><b>{}</b><small>in {} metrics</small></div>",
            [
                &duration(age(status, last.at)),
                &duration(last.duration),
                &count(last.series),
                &count(status.series.len() as u64),
            ],
        );
    }
    descriptors(html, status.descriptors);
    let cost = &status.cost;
    html.put(
        "<div class=\"tile\"><small>Exporter CPU</small><b>{}</b><small>of one CPU, {} in total</small></div>\
         <div class=\"tile\"><small>Exporter memory</small><b>{}</b><small>resident</small></div>\
         <div class=\"tile\"><small>Uptime</small><b>{}</b><small>since {}</small></div></div>",
        [
            &cost.cpu_percent.map_or_else(|| "–".to_owned(), percent),
            &duration(cost.cpu),
            &bytes(cost.resident_bytes),
            &duration(age(status, status.started)),
            &format_args!("{:#}", status.started),
        ],
    );
}

fn descriptors(html: &mut Html, usage: Usage) {
    html.put("<div class=\"tile\"><small>Event descriptors</small><b>{}</b>", [&count(usage.used)]);
    if let Some(limit) = usage.limit {
        let share = 100.0 * usage.used as f64 / limit.max(1) as f64;
        let state = if share > 90.0 { "refused" } else { "counting" };
        html.put("<small>of {}</small>", [&count(limit)]);
        bar(html, "bar usage", &[(state, share.min(100.0))]);
    } else {
        html.raw("<small>no separate limit</small>");
    }
    html.raw("</div>");
}

/// Writes a bar of `(class, percent)` segments.
fn bar(html: &mut Html, class: &'static str, parts: &[(&'static str, f64)]) {
    html.put("<div class=\"{}\">", [&class]);
    for (class, percent) in parts.iter().filter(|part| part.1 > 0.0) {
        html.put("<i class=\"{}\" style=\"width:{}%\"></i>", [class, &format_args!("{percent:.1}")]);
    }
    html.raw("</div>");
}

fn refusals(html: &mut Html, refusals: &[SameReason]) {
    if refusals.is_empty() {
        return;
    }
    let mut sorted: Vec<&SameReason> = refusals.iter().collect();
    sorted.sort_by_key(|refusal| (refusal.cause, Reverse(refusal.count)));
    html.raw("<h2>Could not be opened<small>configured events</small></h2><div class=\"card\">");
    some(html, &sorted, "", |html, refusal| {
        let cause = refusal.cause.as_str();
        html.put("<div class=\"refusal\"><span class=\"pill {}\">{}</span><div>", [&cause, &cause]);
        joined(html, ", ", refusal.events.iter().take(LINES), code);
        html.put(" <span class=\"quiet\">for {}", [&refusal.target]);
        if refusal.count > 1 {
            html.put(" and others, {} instances in total", [&count(refusal.count as u64)]);
        }
        html.put("</span></div><p>{}</p>", [&refusal.reason]);
        if !refusal.remedy.is_empty() {
            html.put("<p class=\"fix\">{}</p>", [&refusal.remedy]);
        }
        html.raw("</div>");
    });
    html.raw("</div>");
}

fn counters(html: &mut Html, entries: &[CounterStatus]) {
    html.raw("<h2>Counters<small>by configuration entry and scope</small></h2><div class=\"cards\">");
    let none = "<p class=\"quiet\">The configuration has no counters.</p></div>";
    some(html, entries, if entries.is_empty() { none } else { "</div>" }, |html, entry| {
        let head = "<section class=\"card\"><header><h3>{}</h3><span>per {}</span><small>{}</small></header>";
        html.put(head, [&entry.entry, &entry.scope, &entry.how]);
        some(html, &entry.events, "", event);
        html.raw("</section>");
    });
}

fn event(html: &mut Html, event: &EventStatus) {
    let shared = event.shared.map_or(0, |shared| shared.count);
    let states = [
        ("counting", event.counting),
        ("shared", shared),
        ("stalled", event.stalled),
        ("refused", event.refused),
    ];
    let total = states.iter().map(|state| state.1).sum::<u64>().max(1) as f64;
    html.put("<div class=\"event\"><code>{}</code>", [&event.event]);
    bar(html, "bar", &states.map(|(class, number)| (class, 100.0 * number as f64 / total)));
    html.raw("<div class=\"states\">");
    for (class, number) in states.into_iter().filter(|state| state.1 > 0) {
        html.put("<span class=\"{}\">{} {}", [&class, &count(number), &class]);
        if let (Some(shared), "shared") = (event.shared, class) {
            html.put(", down to {}\u{a0}%", [&shared.lowest_percent]);
        }
        html.raw("</span>");
    }
    html.raw("</div></div>");
}

fn stream(html: &mut Html, stream: &Stream) {
    let between = if stream.granularity == "cgroup" { "cgroups" } else { "threads" };
    html.put(
        "<h2>Switch stream<small>records all counters at each switch between {}</small></h2>\
         <div class=\"cards\"><div class=\"card\"><dl><dt>Leader</dt><dd><code>{}</code> on {} CPUs</dd>\
         <dt>Descriptors</dt><dd>{}, independent of the number of cgroups and processes</dd><dt>Groups</dt><dd>",
        [&between, &stream.leader, &count(stream.cpus), &count(stream.descriptors)],
    );
    match &stream.groups[..] {
        [] => drop(html.raw("one per CPU")),
        [_] => drop(html.raw("two per CPU: one of software events, one of hardware events")),
        groups => {
            html.put(
                "per CPU one of software events and {} of hardware events, which are multiplexed on the PMU: ",
                [&count(groups.len() as u64)],
            );
            joined(html, " | ", groups.iter().take(LINES).map(|entries| entries.join(", ")), code);
        }
    }
    html.put("</dd><dt>Rings</dt><dd>{} locked", [&bytes(stream.ring_bytes.used)]);
    if let Some(limit) = stream.ring_bytes.limit {
        html.put(", up to {}", [&bytes(limit)]);
    }
    let records = [&count(stream.records) as &dyn Display, &bytes(stream.record_bytes)];
    html.put("</dd><dt>Records</dt><dd>{} read, of {} each; ", records);
    html.raw(if stream.lost > 0 { "<span class=\"refused\">" } else { "<span>" });
    html.put("{} lost</span></dd></dl></div>", [&count(stream.lost)]);
    stream.unattributed.iter().for_each(|scope| unattributed(html, scope));
    html.raw("</div>");
}

fn unattributed(html: &mut Html, scope: &Unattributed) {
    html.put(
        "<section class=\"card\"><header><h3>Unattributed</h3><span>per {}</span><small>of <code>{}</code>, since \
         the start</small></header><table class=\"reasons\"><tr><td>in series</td><td></td>\
         <td class=\"number counting\">{}</td></tr>",
        [&scope.scope, &scope.event, &percent(scope.attributed_percent)],
    );
    for part in scope.reasons.iter().take(LINES) {
        html.put(
            "<tr><td><code>{}</code></td><td class=\"quiet\">{}</td><td class=\"number\">{}</td></tr>",
            [&part.reason, &meaning(part.reason), &percent(part.percent)],
        );
    }
    html.raw("</table></section>");
}

/// Explains a reason for readers who are new to it.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "idle" => "idle CPU",
        "idle_or_root" => "idle CPU, or tasks of the root cgroup",
        "not_selected" => "cgroups or processes outside of the selection",
        "lost" => "records lost because a ring was full",
        "rotated" => "counters were not on the PMU (multiplexing)",
        "unrecorded" => "slices with a switch that the kernel did not record",
        "unknown" => "cgroup or process of unknown name",
        "ended" => "between the last record and the close of the counters",
        _ => "",
    }
}

fn series(html: &mut Html, series: &[Series]) {
    html.raw("<section><h2>Series<small>largest metrics first</small></h2><div class=\"card\"><table>");
    let mut sorted: Vec<&Series> = series.iter().collect();
    sorted.sort_by_key(|series| Reverse(series.series));
    some(html, &sorted, "</table>", |html, metric| {
        html.put("<tr><td><code>{}</code>", [&metric.metric]);
        if metric.in_other > 0 {
            html.put(" <span class=\"stalled\">{} aggregated into other</span>", [&count(metric.in_other)]);
        }
        html.put("</td><td class=\"number\">{}</td></tr>", [&count(metric.series)]);
    });
    html.raw("</div></section>");
}

fn losses(html: &mut Html, losses: &[Loss]) {
    html.raw("<section><h2>Losses<small>measured but not delivered</small></h2><div class=\"card\">");
    let lost: Vec<&Loss> = losses.iter().filter(|loss| loss.count > 0).collect();
    if lost.is_empty() {
        html.raw("<p class=\"quiet\">None since the start.</p>");
    }
    html.raw("<table>");
    some(html, &lost, "</table>", |html, loss| {
        html.put(
            "<tr><td>{}</td><td><code>{}</code></td><td class=\"number refused\">{}</td></tr>",
            [&loss.what, &loss.reason, &count(loss.count)],
        );
    });
    html.raw("</div></section>");
}

fn host(html: &mut Html, status: &Status) {
    let host = &status.host;
    let machine = if host.virtual_machine {
        "virtual: hardware events may be missing"
    } else {
        "no hypervisor detected"
    };
    html.put(
        "<section><h2>Host</h2><div class=\"card\"><dl><dt>Kernel</dt><dd>{}</dd><dt>CPUs online</dt><dd>{}</dd>\
         <dt>Machine</dt><dd>{}</dd><dt>perf_event_paranoid</dt><dd>",
        [&host.kernel, &host.cpus, &machine],
    );
    match host.paranoid {
        Some(level) => html.text(level),
        None => html.raw("<span class=\"refused\">this kernel has no perf events</span>"),
    };
    html.raw("</dd>");
    words(html, "<dt>Capabilities</dt><dd>", &host.capabilities);
    words(html, "<dt>PMUs</dt><dd>", &host.pmus);
    html.raw("</dl>");
    for note in host.notes.iter().take(LINES) {
        html.put("<p>{}</p>", [note]);
    }
    html.raw("</div></section>");
}

fn words(html: &mut Html, head: &'static str, words: &[String]) {
    joined(html.raw(head), " ", words.iter().take(LINES), code);
    if words.is_empty() {
        html.raw("<span class=\"quiet\">none</span>");
    }
    and_more(html, words.len());
    html.raw("</dd>");
}

fn configuration(html: &mut Html, status: &Status) {
    html.raw("<section><h2>Configuration</h2><div class=\"card\"><dl><dt>File</dt><dd>");
    match &status.configuration.file {
        Some(file) => html.put("<code>{}</code>", [&file.display()]),
        None => html.raw("none (built-in configuration)"),
    };
    let loaded = status.configuration.loaded;
    html.put("</dd><dt>Loaded</dt><dd>{}</dd><dt>Last reload</dt><dd>", [&format_args!("{loaded:#}")]);
    match &status.configuration.failed_reload {
        Some(failed) => {
            html.put("<span class=\"refused\">failed</span> at {}", [&format_args!("{:#}", failed.at)])
        }
        None => html.raw("<span class=\"counting\">no failure since</span>"),
    };
    html.raw("</dd></dl></div></section>");
}

fn code(html: &mut Html, text: impl Display) {
    html.put("<code>{}</code>", [&text]);
}

/// Writes all elements, with `separator` between them.
pub(in crate::export) fn joined<T>(
    html: &mut Html,
    separator: &'static str,
    all: impl IntoIterator<Item = T>,
    mut show: impl FnMut(&mut Html, T),
) {
    for (place, one) in all.into_iter().enumerate() {
        html.raw(if place == 0 { "" } else { separator });
        show(html, one);
    }
}

/// Writes the first [`LINES`] elements, then `end`, then the number of the remaining elements.
fn some<T>(html: &mut Html, all: &[T], end: &'static str, mut show: impl FnMut(&mut Html, &T)) {
    all.iter().take(LINES).for_each(|one| show(html, one));
    html.raw(end);
    and_more(html, all.len());
}

fn and_more(html: &mut Html, total: usize) {
    if let Some(more) = total.checked_sub(LINES).filter(|&more| more > 0) {
        let markup = "<p class=\"quiet\">and {} more, in <a href=\"/api/v1/status\">JSON</a></p>";
        html.put(markup, [&count(more as u64)]);
    }
}

fn age(status: &Status, moment: Timestamp) -> std::time::Duration {
    std::time::Duration::from_millis(status.now.0.saturating_sub(moment.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::example;

    #[test]
    fn the_page_is_as_recorded() {
        let page = render(&example()).replace(include_str!("page.css"), "\n");
        insta::assert_snapshot!(page.replace("><", ">\n<"));
    }

    #[test]
    fn a_hostile_command_name_stays_text() {
        let page = render(&example());
        assert!(page.contains("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;\u{fffd}"), "{page}");
        assert!(!page.contains("<script"));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = render(&example());
        for reference in ["src=", "url(", "@import", "\"http:", "\"https:"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        let mut status = example();
        status.refusals = vec![status.refusals[0].clone(); 10_000];
        let page = render(&status);
        assert_eq!(page.matches("class=\"refusal\"").count(), LINES);
        assert!(page.contains("and 9\u{202f}960 more"));
        assert!(page.len() < 100_000, "{}", page.len());
    }

    #[test]
    fn the_most_severe_refusal_stands_first() {
        let page = render(&example());
        let place = |cause: &str| page.find(&format!("class=\"pill {cause}\"")).unwrap();
        assert!(place("exhausted") < place("forbidden") && place("forbidden") < place("absent"));
    }

    #[test]
    fn an_old_collection_is_the_first_thing_said() {
        let mut status = example();
        status.now = Timestamp(status.now.0 + 3_600_000);
        assert!(render(&status).contains("Collection has stopped."));
        status.collection = None;
        assert!(render(&status).contains("Starting."));
    }

    #[test]
    fn all_is_well_when_nothing_is_refused() {
        let mut status = example();
        status.refusals.clear();
        status.counters.truncate(1);
        let page = render(&status);
        assert!(page.contains("8 of 8 counters are counting"));
        assert!(!page.contains("Could not be opened"));
    }
}

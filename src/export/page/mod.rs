//! The page for people, on `/` and `/status`: one HTML document without scripts and without anything to load, that can
//! be read on a phone. What is wrong stands first.

mod containers;
pub(crate) mod figures;
mod files;
mod html;
mod memory;
pub mod profile;
mod profiled;
mod pushes;
mod threads;
mod traces;

use std::cmp::Reverse;

use self::figures::{bytes, count, duration, percent};
use self::html::Html;
use crate::clock::Timestamp;
use crate::health::SameReason;
use crate::status::{CounterStatus, EventStatus, Loss, Series, Status, Stream, Unattributed, Usage};

/// How many lines each list has before the rest is only counted; `/api/v1/status` has them all.
const LINES: usize = 40;

/// A collection older than so many intervals means that collecting has stopped.
const STALE_INTERVALS: u32 = 3;

/// Renders the page.
pub fn render(status: &Status) -> String {
    let mut html = Html::default();
    html.raw(concat!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
        "<link rel=\"icon\" href=\"data:,\"><title>perf-exporter</title><style>",
        include_str!("page.css"),
        "</style></head><body><header><h1>perf-exporter</h1><span class=\"quiet\">"
    ));
    html.text(&status.version).raw(concat!(
        "</span><nav><a href=\"/metrics\">Metrics</a><a href=\"/api/v1/status\">JSON</a>",
        "<a href=\"/-/healthy\">Health</a><a href=\"/-/ready\">Readiness</a></nav></header><main>"
    ));
    verdict(&mut html, status);
    failed_reload(&mut html, status);
    tiles(&mut html, status);
    refusals(&mut html, &status.refusals);
    counters(&mut html, &status.counters);
    status.stream.iter().for_each(|shown| stream(&mut html, shown));
    status.threads.iter().for_each(|shown| threads::threads(&mut html, shown));
    traces::traces(&mut html, &status.traces);
    profiled::profiled(&mut html, &status.profiles);
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

/// One sentence about how things are.
fn verdict(html: &mut Html, status: &Status) {
    let total = |of: fn(&EventStatus) -> u64| -> u64 {
        status.counters.iter().flat_map(|entry| &entry.events).map(of).sum()
    };
    let counting = total(|event| event.counting + event.shared.map_or(0, |shared| shared.count));
    let (stalled, refused) = (total(|event| event.stalled), total(|event| event.refused));
    let all = counting + stalled + refused;
    match status.collection {
        None => {
            html.raw("<div class=\"banner warn\"><p><b>Starting.</b> Nothing has been collected yet.");
        }
        Some(last) if age(status, last.at) > last.interval * STALE_INTERVALS => {
            html.raw("<div class=\"banner bad\"><p><b>Collecting has stopped.</b> The last collection is ")
                .text(duration(age(status, last.at)))
                .raw(" old, where every ")
                .text(duration(last.interval))
                .raw(" there should be one.");
        }
        Some(_) => {
            let class = if counting == all { "good" } else { "warn" };
            html.raw("<div class=\"banner ").raw(class).raw("\"><p><b>").text(count(counting));
            html.raw(" of ").text(count(all)).raw(" counters are counting</b>");
            for (number, what) in [(stalled, " stalled"), (refused, " refused")] {
                if number > 0 {
                    html.raw(", ").text(count(number)).raw(what);
                }
            }
            html.raw(".");
        }
    }
    html.raw(" <span class=\"quiet\">As of ").text(format_args!("{:#}", status.now)).raw("</span></p></div>");
}

fn failed_reload(html: &mut Html, status: &Status) {
    let Some(failed) = &status.configuration.failed_reload else { return };
    html.raw("<div class=\"banner bad\"><p><b>The configuration was not reloaded</b> at ")
        .text(format_args!("{:#}", failed.at))
        .raw("; the one before stays in force. Correct the file and reload again.</p><ul>");
    for problem in failed.problems.iter().take(LINES) {
        html.raw("<li>").text(problem).raw("</li>");
    }
    html.raw("</ul>");
    and_more(html, failed.problems.len());
    html.raw("</div>");
}

fn tiles(html: &mut Html, status: &Status) {
    html.raw("<div class=\"tiles\">");
    if let Some(last) = status.collection {
        html.raw("<div class=\"tile\"><small>Last collection</small><b>")
            .text(duration(age(status, last.at)))
            .raw(" ago</b><small>took ")
            .text(duration(last.duration))
            .raw("</small></div><div class=\"tile\"><small>Series</small><b>")
            .text(count(last.series))
            .raw("</b><small>in ")
            .text(count(status.series.len() as u64))
            .raw(" metrics</small></div>");
    }
    descriptors(html, status.descriptors);
    html.raw("<div class=\"tile\"><small>Own CPU</small><b>")
        .text(status.cost.cpu_percent.map_or_else(|| "–".to_owned(), percent))
        .raw("</b><small>of one CPU, ")
        .text(duration(status.cost.cpu))
        .raw(" in all</small></div><div class=\"tile\"><small>Own memory</small><b>")
        .text(bytes(status.cost.resident_bytes))
        .raw("</b><small>resident</small></div><div class=\"tile\"><small>Running for</small><b>")
        .text(duration(age(status, status.started)))
        .raw("</b><small>since ")
        .text(format_args!("{:#}", status.started))
        .raw("</small></div></div>");
}

fn descriptors(html: &mut Html, usage: Usage) {
    html.raw("<div class=\"tile\"><small>Event descriptors</small><b>").text(count(usage.used)).raw("</b>");
    if let Some(limit) = usage.limit {
        let share = 100.0 * usage.used as f64 / limit.max(1) as f64;
        let state = if share > 90.0 { "refused" } else { "counting" };
        html.raw("<small>of ").text(count(limit)).raw("</small>");
        bar(html, "bar usage", &[(state, share.min(100.0))]);
    } else {
        html.raw("<small>no limit of their own</small>");
    }
    html.raw("</div>");
}

/// A bar of `(class, percent)` parts.
fn bar(html: &mut Html, class: &'static str, parts: &[(&'static str, f64)]) {
    html.raw("<div class=\"").raw(class).raw("\">");
    for (class, percent) in parts.iter().filter(|part| part.1 > 0.0) {
        html.raw("<i class=\"")
            .raw(class)
            .raw("\" style=\"width:")
            .text(format_args!("{percent:.1}"))
            .raw("%\"></i>");
    }
    html.raw("</div>");
}

fn refusals(html: &mut Html, refusals: &[SameReason]) {
    if refusals.is_empty() {
        return;
    }
    let mut sorted: Vec<&SameReason> = refusals.iter().collect();
    sorted.sort_by_key(|refusal| (refusal.cause, Reverse(refusal.count)));
    html.raw(
        "<h2>Not measured<small>what was asked for and could not be opened</small></h2><div class=\"card\">",
    );
    for refusal in sorted.iter().take(LINES) {
        let cause = refusal.cause.as_str();
        html.raw("<div class=\"refusal\"><span class=\"pill ")
            .raw(cause)
            .raw("\">")
            .raw(cause)
            .raw("</span><div>");
        for (index, event) in refusal.events.iter().take(LINES).enumerate() {
            html.raw(if index == 0 { "<code>" } else { ", <code>" }).text(event).raw("</code>");
        }
        html.raw(" <span class=\"quiet\">for ").text(&refusal.target);
        if refusal.count > 1 {
            html.raw(" and others, ").text(count(refusal.count as u64)).raw(" places in all");
        }
        html.raw("</span></div><p>").text(&refusal.reason).raw("</p>");
        if !refusal.remedy.is_empty() {
            html.raw("<p class=\"fix\">").text(&refusal.remedy).raw("</p>");
        }
        html.raw("</div>");
    }
    and_more(html, refusals.len());
    html.raw("</div>");
}

fn counters(html: &mut Html, entries: &[CounterStatus]) {
    html.raw(
        "<h2>Counters<small>per entry of the configuration, and for whom</small></h2><div class=\"cards\">",
    );
    for entry in entries.iter().take(LINES) {
        html.raw("<section class=\"card\"><header><h3>").text(&entry.entry).raw("</h3><span>per ");
        html.text(entry.scope).raw("</span><small>").text(&entry.how).raw("</small></header>");
        entry.events.iter().take(LINES).for_each(|shown| event(html, shown));
        and_more(html, entry.events.len());
        html.raw("</section>");
    }
    if entries.is_empty() {
        html.raw("<p class=\"quiet\">The configuration has no counters.</p>");
    }
    html.raw("</div>");
    and_more(html, entries.len());
}

fn event(html: &mut Html, event: &EventStatus) {
    let shared = event.shared.map_or(0, |shared| shared.count);
    let states = [
        ("counting", " counting", event.counting),
        ("shared", " shared", shared),
        ("stalled", " stalled", event.stalled),
        ("refused", " refused", event.refused),
    ];
    let total = states.iter().map(|state| state.2).sum::<u64>().max(1) as f64;
    html.raw("<div class=\"event\"><code>").text(&event.event).raw("</code>");
    bar(html, "bar", &states.map(|(class, _, number)| (class, 100.0 * number as f64 / total)));
    html.raw("<div class=\"states\">");
    for (class, label, number) in states.into_iter().filter(|state| state.2 > 0) {
        html.raw("<span class=\"").raw(class).raw("\">").text(count(number)).raw(label);
        if let (Some(shared), "shared") = (event.shared, class) {
            html.raw(", down to ").text(shared.lowest_percent).raw("\u{a0}%");
        }
        html.raw("</span>");
    }
    html.raw("</div></div>");
}

fn stream(html: &mut Html, stream: &Stream) {
    let between = if stream.granularity == "cgroup" { "cgroups" } else { "threads" };
    html.raw("<h2>Switch stream<small>a record of all counters at each switch between ").text(between);
    html.raw("</small></h2><div class=\"cards\"><div class=\"card\"><dl><dt>Leader</dt><dd><code>");
    html.text(stream.leader)
        .raw("</code> on ")
        .text(count(stream.cpus))
        .raw(" CPUs</dd><dt>Descriptors</dt><dd>");
    html.text(count(stream.descriptors)).raw(", however many cgroups and processes there are</dd>");
    html.raw("<dt>Groups</dt><dd>");
    match &stream.groups[..] {
        [] => html.raw("one on each CPU"),
        [_] => html.raw("two on each CPU: of software events, and of hardware events"),
        groups => {
            html.raw("one of software events on each CPU, and ").text(count(groups.len() as u64));
            html.raw(" of hardware events, which take turns on its PMU: ")
        }
    };
    if stream.groups.len() > 1 {
        for (place, entries) in stream.groups.iter().take(LINES).enumerate() {
            html.raw(if place == 0 { "<code>" } else { " | <code>" }).text(entries.join(", ")).raw("</code>");
        }
    }
    html.raw("</dd><dt>Rings</dt><dd>").text(bytes(stream.ring_bytes.used)).raw(" locked");
    if let Some(limit) = stream.ring_bytes.limit {
        html.raw(", up to ").text(bytes(limit));
    }
    html.raw("</dd><dt>Records</dt><dd>").text(count(stream.records)).raw(" read, of ");
    html.text(bytes(stream.record_bytes)).raw(" each; ");
    html.raw(if stream.lost > 0 { "<span class=\"refused\">" } else { "<span>" });
    html.text(count(stream.lost)).raw(" lost</span></dd></dl></div>");
    stream.unattributed.iter().for_each(|scope| unattributed(html, scope));
    html.raw("</div>");
}

fn unattributed(html: &mut Html, scope: &Unattributed) {
    html.raw("<section class=\"card\"><header><h3>Unattributed</h3><span>per ").text(scope.scope);
    html.raw("</span><small>of <code>")
        .text(&scope.event)
        .raw("</code>, since the start</small></header><table class=\"reasons\">");
    html.raw("<tr><td>in series</td><td></td><td class=\"number counting\">");
    html.text(percent(scope.attributed_percent)).raw("</td></tr>");
    for part in scope.reasons.iter().take(LINES) {
        html.raw("<tr><td><code>").text(part.reason).raw("</code></td><td class=\"quiet\">");
        html.raw(meaning(part.reason)).raw("</td><td class=\"number\">");
        html.text(percent(part.percent)).raw("</td></tr>");
    }
    html.raw("</table></section>");
}

/// What a reason says to somebody who meets it for the first time.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "idle" => "nothing to do",
        "idle_or_root" => "nothing to do, or work of the root cgroup",
        "not_selected" => "work of those that the configuration leaves out",
        "lost" => "records that found no room in a ring",
        "rotated" => "while the counters were not on the PMU",
        "unrecorded" => "slices with a switch that the kernel did not record",
        "unknown" => "nobody knows the name of who did it",
        "ended" => "after the last record, when counters were closed",
        _ => "",
    }
}

fn series(html: &mut Html, series: &[Series]) {
    html.raw("<section><h2>Series<small>the largest metrics first</small></h2><div class=\"card\"><table>");
    let mut sorted: Vec<&Series> = series.iter().collect();
    sorted.sort_by_key(|series| Reverse(series.series));
    for metric in sorted.iter().take(LINES) {
        html.raw("<tr><td><code>").text(&metric.metric).raw("</code>");
        if metric.in_other > 0 {
            html.raw(" <span class=\"stalled\">")
                .text(count(metric.in_other))
                .raw(" targets in other</span>");
        }
        html.raw("</td><td class=\"number\">").text(count(metric.series)).raw("</td></tr>");
    }
    html.raw("</table>");
    and_more(html, series.len());
    html.raw("</div></section>");
}

fn losses(html: &mut Html, losses: &[Loss]) {
    html.raw("<section><h2>Losses<small>measured, and not delivered</small></h2><div class=\"card\">");
    let lost: Vec<&Loss> = losses.iter().filter(|loss| loss.count > 0).collect();
    if lost.is_empty() {
        html.raw("<p class=\"quiet\">None since the start.</p>");
    }
    html.raw("<table>");
    for loss in lost.iter().take(LINES) {
        html.raw("<tr><td>").text(loss.what).raw("</td><td><code>").text(loss.reason);
        html.raw("</code></td><td class=\"number refused\">").text(count(loss.count)).raw("</td></tr>");
    }
    html.raw("</table>");
    and_more(html, lost.len());
    html.raw("</div></section>");
}

fn host(html: &mut Html, status: &Status) {
    let host = &status.host;
    html.raw("<section><h2>Host</h2><div class=\"card\"><dl><dt>Kernel</dt><dd>").text(&host.kernel);
    html.raw("</dd><dt>CPUs online</dt><dd>").text(&host.cpus);
    html.raw("</dd><dt>Machine</dt><dd>");
    html.raw(if host.virtual_machine {
        "virtual: hardware events may be missing"
    } else {
        "no hypervisor announced"
    });
    html.raw("</dd><dt>perf_event_paranoid</dt><dd>");
    match host.paranoid {
        Some(level) => html.text(level),
        None => html.raw("<span class=\"refused\">this kernel has no perf events</span>"),
    };
    html.raw("</dd>");
    words(html, "<dt>Capabilities</dt><dd>", &host.capabilities);
    words(html, "<dt>PMUs</dt><dd>", &host.pmus);
    html.raw("</dl>");
    for note in host.notes.iter().take(LINES) {
        html.raw("<p>").text(note).raw("</p>");
    }
    html.raw("</div></section>");
}

fn words(html: &mut Html, head: &'static str, words: &[String]) {
    html.raw(head);
    for (at, word) in words.iter().take(LINES).enumerate() {
        html.raw(if at == 0 { "<code>" } else { " <code>" }).text(word).raw("</code>");
    }
    if words.is_empty() {
        html.raw("<span class=\"quiet\">none</span>");
    }
    and_more(html, words.len());
    html.raw("</dd>");
}

fn configuration(html: &mut Html, status: &Status) {
    html.raw("<section><h2>Configuration</h2><div class=\"card\"><dl><dt>File</dt><dd>");
    match &status.configuration.file {
        Some(file) => html.raw("<code>").text(file.display()).raw("</code>"),
        None => html.raw("none: the built-in configuration"),
    };
    html.raw("</dd><dt>Loaded</dt><dd>")
        .text(format_args!("{:#}", status.configuration.loaded))
        .raw("</dd><dt>Last reload</dt><dd>");
    match &status.configuration.failed_reload {
        Some(failed) => {
            html.raw("<span class=\"refused\">failed</span> at ").text(format_args!("{:#}", failed.at))
        }
        None => html.raw("<span class=\"counting\">no failure since</span>"),
    };
    html.raw("</dd></dl></div></section>");
}

fn and_more(html: &mut Html, total: usize) {
    if let Some(more) = total.checked_sub(LINES).filter(|&more| more > 0) {
        html.raw("<p class=\"quiet\">and ")
            .text(count(more as u64))
            .raw(" more, in <a href=\"/api/v1/status\">JSON</a></p>");
    }
}

fn age(status: &Status, moment: Timestamp) -> std::time::Duration {
    std::time::Duration::from_millis(status.now.0.saturating_sub(moment.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::specimen;

    #[test]
    fn the_page_is_as_recorded() {
        let page = render(&specimen()).replace(include_str!("page.css"), "\n");
        insta::assert_snapshot!(page.replace("><", ">\n<"));
    }

    #[test]
    fn a_hostile_command_name_stays_text() {
        let page = render(&specimen());
        assert!(page.contains("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;\u{fffd}"), "{page}");
        assert!(!page.contains("<script"));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = render(&specimen());
        for reference in ["src=", "url(", "@import", "\"http:", "\"https:"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        let mut status = specimen();
        status.refusals = vec![status.refusals[0].clone(); 10_000];
        let page = render(&status);
        assert_eq!(page.matches("class=\"refusal\"").count(), LINES);
        assert!(page.contains("and 9\u{202f}960 more"));
        assert!(page.len() < 100_000, "{}", page.len());
    }

    #[test]
    fn the_most_severe_refusal_stands_first() {
        let page = render(&specimen());
        let place = |cause: &str| page.find(&format!("class=\"pill {cause}\"")).unwrap();
        assert!(place("exhausted") < place("forbidden") && place("forbidden") < place("absent"));
    }

    #[test]
    fn an_old_collection_is_the_first_thing_said() {
        let mut status = specimen();
        status.now = Timestamp(status.now.0 + 3_600_000);
        assert!(render(&status).contains("Collecting has stopped."));
        status.collection = None;
        assert!(render(&status).contains("Starting."));
    }

    #[test]
    fn all_is_well_when_nothing_is_refused() {
        let mut status = specimen();
        status.refusals.clear();
        status.counters.truncate(1);
        let page = render(&status);
        assert!(page.contains("8 of 8 counters are counting"));
        assert!(!page.contains("Not measured"));
    }
}

//! Goldens of the pages, without the styles and scripts, which have files of their own.

use super::*;
use crate::annotate::tests::annotated;
use crate::export::folded::{self, Folded};
use crate::export::query::{ANNOTATE, FLAMEGRAPH, TOP};
use crate::export::top::Options;
use crate::profile::Selection;
use crate::profile::sample_profiles::{example, hostile};

/// Returns the markup, an element on each line.
fn lines(page: &str) -> String {
    let mut text = page.to_owned();
    for (start, end) in [("<style>", "</style>"), ("<script nonce=\"00\">", "</script>")] {
        let pieces: Vec<_> =
            text.split(start).map(|piece| piece.split_once(end).map_or(piece, |cut| cut.1)).collect();
        text = pieces.concat();
    }
    text.replace("><", ">\n<")
}

fn kinds() -> Vec<Arc<str>> {
    vec!["cpu".into()]
}

fn flame_graph(profile: &Profile, text: &str) -> String {
    let (query, kinds) = (Query::parse(text, FLAMEGRAPH).unwrap(), kinds());
    let view = View { query: &query, kinds: &kinds, nonce: "00" };
    let base = query.base().map(|base| profile.select(&base));
    let profile = profile.select(&query.selection);
    let options = flamegraph::Options {
        shape: query.shape,
        root: query.root,
        view: query.view(),
        base: base.as_ref(),
        search: query.search.as_deref(),
        ..flamegraph::Options::default()
    };
    let picture = flamegraph::embedded(&profile, options, "00");
    let changes = base.as_ref().map(|base| {
        Top::with(&profile, Options { by: query.grouping, base: Some(base), normalized: true, limit: 3 })
    });
    flamegraph(view, &profile, picture.as_ref().ok_or("none"), changes.as_ref())
}

fn table(profile: &Profile, text: &str) -> String {
    let (query, kinds) = (Query::parse(text, TOP).unwrap(), kinds());
    let view = View { query: &query, kinds: &kinds, nonce: "00" };
    let base = query.base().map(|base| profile.select(&base));
    let options = Options { by: query.grouping, base: base.as_ref(), normalized: true, limit: 3 };
    let profile = profile.select(&query.selection);
    top(view, &profile, Ok(&Top::with(&profile, options)))
}

#[test]
fn the_flame_graph_page_is_as_recorded() {
    let page = flame_graph(&example(), "type=cpu&comm=postgres&s=hash&by=cgroup");
    insta::assert_snapshot!(lines(&page));
    let page = flame_graph(&example(), "comm=node&by=thread");
    assert!(page.len() < 60_000, "{} bytes", page.len());
}

#[test]
fn the_page_of_a_function_is_as_recorded() {
    insta::assert_snapshot!(lines(&flame_graph(
        &example(),
        "focus=ExecProcNode&base_comm=kworker*&invert=true"
    )));
}

#[test]
fn the_table_is_as_recorded() {
    insta::assert_snapshot!(lines(&table(&example(), "comm=nginx")));
}

#[test]
fn the_table_of_changes_is_as_recorded() {
    insta::assert_snapshot!(lines(&table(&example(), "by=cgroup&comm=nginx&base_comm=node")));
}

#[test]
fn the_page_of_callers_and_callees_is_as_recorded() {
    let (query, kinds) = (Query::parse("focus=tcp_sendmsg", TOP).unwrap(), kinds());
    let view = View { query: &query, kinds: &kinds, nonce: "00" };
    let calls = Calls::new(&Folded::new(&example(), folded::Options::default()), "tcp_sendmsg", true);
    insta::assert_snapshot!(lines(&super::calls(view, &example(), calls.as_ref().ok_or(""))));
}

#[test]
fn a_kind_that_is_not_recorded_has_the_lines_that_record_it() {
    let query = Query { kind: Some("off_cpu".to_owned()), ..Query::default() };
    let view = View { query: &query, kinds: &kinds(), nonce: "00" };
    let page =
        refused(Page::FlameGraph, view, "off_cpu is not recorded", Some(super::super::not_recorded::SECTION));
    assert!(page.contains("off_cpu: {threshold: 1ms}"), "{page}");
    assert!(page.contains("<option value=\"off_cpu\" selected>off_cpu (not recorded)</option>"));
}

#[test]
fn hostile_names_are_text_on_every_page() {
    for page in [
        flame_graph(&hostile(), "base_comm=a*"),
        flame_graph(&hostile(), "focus=</script><script>alert(1)</script>&s=<b>"),
        table(&hostile(), "base_comm=a*"),
        table(&hostile(), "by=comm"),
        offline(&hostile(), None, Some("</title><script>"), 100),
    ] {
        let scripts = page.matches("<script").count();
        assert_eq!(scripts, page.matches("<script nonce=\"0").count(), "{page}");
        assert!(!page.contains("<b>") || !page.contains("<b></"), "{page}");
        assert!(!page.contains("alert(1)</script>"));
        assert!(!page.contains("onload=") && !page.contains("javascript:"));
    }
}

#[test]
fn every_link_of_a_page_is_a_query_that_the_server_accepts() {
    let pages = [
        flame_graph(&example(), "comm=n*&base_comm=node&normalize=false&by=thread&shape=flame&s=x"),
        flame_graph(&hostile(), "focus=y_[k]"),
        table(&example(), "by=comm&mode=user&seconds=3"),
        table(&hostile(), ""),
    ];
    let mut seen = 0;
    for page in pages {
        for link in page.split(" href=\"").skip(1) {
            let link = link.split_once('"').unwrap().0.replace("&amp;", "&").replace("&#39;", "'");
            let Some((path, query)) = link.split_once('?') else { continue };
            let keys = match path {
                "/flamegraph" => FLAMEGRAPH,
                "/top" => TOP,
                "/annotate" => ANNOTATE,
                "/folded" => crate::export::query::FOLDED,
                _ => crate::export::query::PPROF,
            };
            assert!(Query::parse(query, keys).is_ok(), "{link}: {:?}", Query::parse(query, keys));
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} links");
}

#[test]
fn a_selection_without_samples_is_a_page() {
    let nobody = Selection { pid: Some(1), ..Selection::default() };
    assert!(flame_graph(&example().select(&nobody), "").contains("No data:"));
}

#[test]
fn the_page_of_instructions_is_as_recorded() {
    let text = "comm=hot&symbol=burns&module=/usr/bin/hot";
    let (query, kinds) = (Query::parse(text, ANNOTATE).unwrap(), kinds());
    let view = View { query: &query, kinds: &kinds, nonce: "00" };
    let annotated = Annotated { notes: vec!["no <source> lines".into()], ..annotated() };
    insta::assert_snapshot!(lines(&annotate(view, &example(), Ok(&annotated))));
}

//! The heat map page: a column for each second, a row for each part of a second, darker with more samples. A selection of cells leads to the
//! flame graph of their time. Netflix's FlameScope is the model.

use super::figures::count;
use super::html::Html;
use super::profile::{begin, end};
use super::view::{Page, View};
use crate::export::query::Query;
use crate::profile::HeatMap;

/// Number of colors of cells with samples.
const LEVELS: u32 = 8;

/// Width and height of a cell in the coordinate system of the image.
const CELL: (usize, usize) = (10, 6);

/// Renders the page.
pub(in crate::export) fn heat_map(view: View<'_>, kind: &str, map: &HeatMap) -> String {
    let mut html = Html::default();
    begin(&mut html, Page::HeatMap, view);
    let rows = map.counts.first().map_or(0, |second| second.len());
    let most = map.counts.iter().flat_map(|second| second.iter().copied()).max().unwrap_or(0);
    let sum: u64 = map.counts.iter().flat_map(|second| second.iter().copied()).map(u64::from).sum();
    html.put(
        "<div class=\"about\"><h2>{}</h2><span>{} samples</span><span class=\"quiet\">{} seconds from {}</span>",
        [&kind, &count(sum), &map.counts.len(), &format_args!("{:#}", map.from)],
    );
    html.raw("<nav>").link("", &view.query.address("/api/v1/heatmap"), "JSON").raw("</nav></div>");
    if map.complete_from > map.from {
        html.put(
            "<p class=\"quiet\">Samples before {} have left the memory.</p>",
            [&format_args!("{:#}", map.complete_from)],
        );
    }
    if sum == 0 {
        html.raw("<div class=\"banner idle\"><p><b>No data:</b> no sample in this range matches the selection.</p></div>");
        return end(html);
    }
    let alone = Query { period: Default::default(), rows: None, ..view.query.same_selection() };
    html.put(
        "<div class=\"card\"><svg id=\"heat\" class=\"heat\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" tabindex=\"0\" \
         role=\"img\" aria-label=\"Samples by second and by offset within the second\" data-from=\"{}\" data-rows=\"{}\" \
         data-seconds=\"{}\" data-most=\"{}\" data-to=\"",
        [
            &(map.counts.len() * CELL.0),
            &(rows * CELL.1),
            &(map.from.0 / 1000),
            &rows,
            &map.counts.len(),
            &most,
        ],
    );
    html.address(&alone.address("/flamegraph")).raw("\">");
    for (level, path) in paths(map, most).iter().enumerate() {
        html.put("<path class=\"l{}\" d=\"", [&level]).address(path).raw("\"/>");
    }
    html.raw("<path id=\"chosen\" d=\"\"/></svg></div>");
    html.put(
        "<p id=\"cell\" class=\"quiet\">Each column is a second, each row {} ms; the darkest cell has {} samples. Drag from the first \
         to the last cell of a time to see its stacks.</p><p id=\"to\" class=\"hide\"><b></b> <a href=\"#\">Flame graph of this</a></p>",
        [&(1000.0 / rows.max(1) as f64), &count(most.into())],
    );
    html.put("<script nonce=\"{}\">", [&view.nonce]).raw(include_str!("heat.js")).raw("</script>");
    end(html)
}

/// Returns a path for each color: the rectangles of its cells. Cells of a color that follow each other are one rectangle. The begin of a
/// second is at the bottom.
fn paths(map: &HeatMap, most: u32) -> [String; LEVELS as usize] {
    let mut paths = [const { String::new() }; LEVELS as usize];
    // Zero has no color; the largest number has the last one.
    let level = |samples: u32| {
        (samples > 0).then(|| u64::from(samples - 1) * u64::from(LEVELS) / u64::from(most.max(1)))
    };
    let (width, height) = CELL;
    for (second, cells) in map.counts.iter().enumerate() {
        let mut row = 0;
        for run in cells.chunk_by(|one, next| level(*one) == level(*next)) {
            let path = run.first().and_then(|cell| paths.get_mut(usize::try_from(level(*cell)?).ok()?));
            if let Some(path) = path {
                let y = (cells.len() - row - run.len()) * height;
                path.push_str(&format!("M{} {y}h{width}v{}h-{width}z", second * width, run.len() * height));
            }
            row += run.len();
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn map(counts: &[&[u32]]) -> HeatMap {
        let counts = counts.iter().map(|&second| second.into()).collect();
        HeatMap { from: Timestamp(5000), complete_from: Timestamp(5000), counts }
    }

    fn page(map: &HeatMap) -> String {
        let query = Query::default();
        heat_map(View { query: &query, kinds: &["cpu".into()], nonce: "0" }, "cpu", map)
    }

    #[test]
    fn the_darkest_color_has_the_most_samples_and_equal_cells_are_one_rectangle() {
        let paths = paths(&map(&[&[0, 8, 8], &[1, 0, 4]]), 8);
        assert_eq!(paths[7], "M0 0h10v12h-10z");
        assert_eq!(paths[0], "M10 12h10v6h-10z");
        assert_eq!(paths[3], "M10 0h10v6h-10z");
    }

    #[test]
    fn the_page_leads_to_the_flame_graph_of_cells() {
        let page = page(&map(&[&[0, 3], &[1, 0]]));
        assert!(
            page.contains("data-from=\"5\" data-rows=\"2\" data-seconds=\"2\" data-most=\"3\""),
            "{page}"
        );
        assert!(page.contains("data-to=\"/flamegraph\""), "{page}");
        assert!(page.contains("4 samples"), "{page}");
    }

    #[test]
    fn a_map_without_samples_says_so() {
        let page = page(&map(&[&[0, 0]]));
        assert!(page.contains("no sample in this range matches the selection") && !page.contains("<svg"));
    }

    #[test]
    fn a_map_of_any_counts_has_colors() {
        let paths = paths(&map(&[&[1, u32::MAX, u32::MAX / 2]]), u32::MAX);
        assert!(!paths[0].is_empty() && !paths[7].is_empty());
    }
}

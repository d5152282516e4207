//! The list of incidents, as a page and as JSON.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::export::overview;
use crate::export::page::figures::bytes;
use crate::export::page::html::Html;
use crate::incident::{Incident, Listed, Store};

/// Maximum number of incidents in a list.
const MOST: usize = 500;

/// The response of `/api/v1/incidents`.
#[derive(Debug, Serialize)]
struct Response<'l> {
    /// The directory; `null` if none is configured.
    directory: Option<String>,
    /// Number of incidents in the directory.
    total: usize,
    /// The latest incidents.
    incidents: Vec<Row<'l>>,
}

#[derive(Debug, Serialize)]
struct Row<'l> {
    id: &'l str,
    /// Size of the archive.
    bytes: u64,
    /// The description; `null` if it cannot be read.
    incident: Option<&'l Incident>,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Returns the list as JSON, the latest incident first.
///
/// # Errors
/// If it cannot be encoded, which is a bug.
pub fn list_json(store: Option<&Store>) -> serde_json::Result<Vec<u8>> {
    let directory = store.map(|store| store.directory().display().to_string());
    let (listed, total) = store.map(|store| store.list(MOST)).unwrap_or_default();
    let rows = listed.iter().map(|Listed { id, bytes, incident }| Row {
        id: id.as_str(),
        bytes: *bytes,
        incident: incident.as_ref().ok(),
        error: incident.as_ref().err().map(ToString::to_string),
    });
    serde_json::to_vec_pretty(&Response { directory, total, incidents: rows.collect() })
}

/// Renders the list as a page. `None`: no directory is configured.
pub fn list_page(store: Option<&Store>, nonce: &str) -> String {
    overview::plain("Incidents", "/incidents", nonce, |html| match store {
        Some(store) => table(html, store),
        None => {
            html.raw(
                "<div class=\"banner idle\"><p>No incidents are kept: the configuration has no directory for them.</p></div>\
                 <pre>incidents:\n  directory: /var/lib/perf-exporter/incidents</pre>",
            );
        }
    })
}

fn table(html: &mut Html, store: &Store) {
    let (listed, total) = store.list(MOST);
    html.put("<h2>Incidents<small>in {}</small></h2>", [&store.directory().display()]);
    if listed.is_empty() {
        html.raw("<p class=\"quiet\">There was none so far.</p>");
        return;
    }
    html.raw(
        "<div class=\"card\"><table><thead><tr><th>Began</th><th>Subject</th><th>Trigger</th><th>Ended</th>\
         <th>First suspect</th><th class=\"number\">Size</th></tr></thead><tbody>",
    );
    for Listed { id, bytes: size, incident } in &listed {
        html.put("<tr><td><a href=\"/incidents/{}\">", [id]);
        let time = |milliseconds| format!("{:#}", Timestamp(milliseconds));
        match incident {
            Ok(incident) => {
                let ended = incident.ended_ms.map_or_else(|| "\u{2013}".to_owned(), time);
                let suspect = incident.suspects.first().map_or("\u{2013}", |suspect| &suspect.cgroup);
                html.put(
                    "{}</a></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                    [
                        &time(incident.began_ms),
                        &incident.subject(),
                        &incident.trigger.text(),
                        &ended,
                        &suspect,
                    ],
                );
            }
            Err(error) => {
                html.put("{}</a></td><td colspan=\"4\" class=\"refused\">{}</td>", [id, error]);
            }
        }
        html.put(
            "<td class=\"number\"><a href=\"/incidents/{}/archive.tar\">{}</a></td></tr>",
            [id, &bytes(*size)],
        );
    }
    html.raw("</tbody></table></div>");
    if total > listed.len() {
        html.put("<p class=\"quiet\">and {} older ones</p>", [&(total - listed.len())]);
    }
}

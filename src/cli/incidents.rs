//! `perf-exporter incidents`: lists the incidents that the service has recorded, describes one, and copies its archive. Requires read access
//! to the directory. `capture` requests one from the service.

mod capture;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{FAILED, Output, fail};
use crate::clean::clean;
use crate::clock::Timestamp;
use crate::incident::{Incident, IncidentId, Listed, NoIncident, Store};

/// Maximum number of incidents in a list, the maximum of `incidents.number`.
const MOST: usize = 10_000;

/// Maximum size of an archive in bytes.
const ARCHIVE: u64 = 100 << 30;

/// Maximum length of a text in the table, in bytes.
const TEXT: usize = 80;

#[derive(Debug, Args)]
pub(super) struct IncidentsArgs {
    #[command(subcommand)]
    action: Action,
    /// Directory of the incidents: `incidents.directory` of the configuration.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/perf-exporter/incidents", global = true)]
    directory: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the incidents, the latest first.
    List {
        /// Output format of the list.
        #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
        output: Output,
    },
    /// Request an incident from the service: it writes the evidence of the last minutes, and of the next one.
    Capture(capture::CaptureArgs),
    /// Describe an incident as JSON.
    Show {
        /// The identifier.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Copy the archive of an incident: the report, profiles and figures. Or one of its files.
    Export {
        /// The identifier.
        #[arg(value_name = "ID")]
        id: String,
        /// Copy only this file of the archive, such as report.html.
        #[arg(long, value_name = "NAME")]
        file: Option<String>,
        /// Where to write it; standard output by default.
        #[arg(short, long, value_name = "PATH")]
        output_file: Option<PathBuf>,
    },
}

/// A row of the list.
#[derive(Debug, Serialize)]
struct Row {
    id: IncidentId,
    bytes: u64,
    #[serde(flatten)]
    described: Described,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Described {
    Incident(Box<Incident>),
    Error(String),
}

impl From<Listed> for Row {
    fn from(Listed { id, bytes, incident }: Listed) -> Self {
        let described = match incident {
            Ok(incident) => Described::Incident(Box::new(incident)),
            Err(error) => Described::Error(error.to_string()),
        };
        Self { id, bytes, described }
    }
}

pub(super) fn incidents(args: &IncidentsArgs) -> ExitCode {
    let store = Store::at(&args.directory);
    match &args.action {
        Action::List { output } => match store.directory().read_dir() {
            Err(error) => {
                let what = format!("cannot read {}, the directory of incidents", args.directory.display());
                fail(FAILED, &anyhow::Error::new(error).context(what))
            }
            Ok(_) => {
                let (listed, _) = store.list(MOST);
                output.print(listed.into_iter().map(Row::from), text)
            }
        },
        Action::Capture(args) => match capture::capture(args) {
            Ok(id) => super::written(super::put(format!("{id}\n"))),
            Err(error) => fail(FAILED, &error),
        },
        Action::Show { id } => {
            done(parsed(id).and_then(|id| store.read(&id)), |incident| super::json(&incident))
        }
        Action::Export { id, file, output_file } => {
            let content = parsed(id).and_then(|id| match file {
                None => store.archive(&id, ARCHIVE),
                Some(file) => store.member(&id, file, ARCHIVE)?.ok_or_else(|| {
                    NoIncident::Unreadable(format!("it has no file {file:?}; see `incidents show`"))
                }),
            });
            done(content, |content| match output_file {
                None => super::put(content),
                Some(path) => std::fs::write(path, content),
            })
        }
    }
}

fn parsed(id: &str) -> Result<IncidentId, NoIncident> {
    IncidentId::parse(id).ok_or(NoIncident::Unknown)
}

/// Writes the result, and returns the exit code.
fn done<T>(result: Result<T, NoIncident>, write: impl FnOnce(T) -> io::Result<()>) -> ExitCode {
    match result {
        Ok(value) => super::written(write(value)),
        Err(error) => fail(FAILED, &error.into()),
    }
}

fn text(out: &mut dyn Write, rows: impl IntoIterator<Item = Row>) -> io::Result<()> {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return writeln!(out, "there was no incident so far");
    }
    writeln!(out, "{:<20} {:<24} {:<10} trigger", "incident", "began", "length")?;
    for Row { id, described, .. } in rows {
        match described {
            Described::Error(error) => writeln!(out, "{id:<20} {}", clean(&error, 200))?,
            Described::Incident(incident) => {
                let began = format!("{:#}", Timestamp(incident.began_ms));
                let length = incident.ended_ms.map_or_else(
                    || "-".to_owned(),
                    |ended| format!("{} s", ended.saturating_sub(incident.began_ms) / 1000),
                );
                let trigger = incident.trigger.text();
                writeln!(
                    out,
                    "{id:<20} {began:<24} {length:<10} {}, {}",
                    clean(&trigger, TEXT),
                    clean(incident.subject(), TEXT)
                )?;
            }
        }
    }
    Ok(())
}

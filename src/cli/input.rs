//! Recordings: files of other programs and of this one, and profiles of a running service.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper::Uri;

use crate::cli::files;
use crate::cli::service::ServiceArgs;
use crate::host::Roots;
use crate::recording::perf_data::Options;
use crate::recording::{self, About, Recording};

/// Maximum time of a request. The service may sample for five minutes first.
pub(super) const PATIENCE: Duration = Duration::from_secs(330);

/// What a service is asked for without a query: its last minute.
pub(super) const LAST_MINUTE: &str = "from=-1m";

/// Reads a recording: a file, or its samples of some time, or a profile of the service at a URL.
///
/// # Errors
/// If it cannot be read, with its name.
pub(super) fn read(
    input: &OsStr,
    times: Option<&RangeInclusive<u64>>,
    service: &ServiceArgs,
    roots: &Roots,
) -> anyhow::Result<Recording> {
    let name = || input.to_string_lossy().into_owned();
    let Some(uri) = url(input)?.map(|uri| profile_of(&uri)).transpose()? else {
        // Callers are looked up as perf does.
        let options =
            Options { return_addresses: true, times: times.cloned(), ..crate::cli::reading_options() };
        return recording::open(Path::new(input), &options, &files(roots)).with_context(name);
    };
    if times.is_some() {
        bail!("--time: select a time by from= and to= in the URL, such as ?from=-10m&to=-9m");
    }
    let bytes = service.request(&uri, None, recording::INFLATED, PATIENCE).with_context(name)?;
    let profile = recording::read(&bytes).with_context(name)?;
    Ok(Recording { about: About::default(), profiles: vec![profile] })
}

/// Returns the URL, if the input is that of a service.
///
/// # Errors
/// If it begins as a URL and is none.
pub(super) fn url(input: &OsStr) -> anyhow::Result<Option<Uri>> {
    let is_url = |text: &&str| text.starts_with("http://") || text.starts_with("https://");
    let Some(text) = input.to_str().filter(is_url) else { return Ok(None) };
    text.parse().with_context(|| text.to_owned()).map(Some)
}

/// Returns the URL of a profile of a service. Without a path and a query, it is that of the last minute.
fn profile_of(uri: &Uri) -> anyhow::Result<Uri> {
    let path = if uri.path() == "/" { "/debug/pprof/profile" } else { uri.path() };
    at(uri, &format!("{path}?{}", uri.query().unwrap_or(LAST_MINUTE)))
}

/// Returns the URL of an address on the server of another URL.
pub(super) fn at(uri: &Uri, address: &str) -> anyhow::Result<Uri> {
    let (scheme, authority) =
        (uri.scheme_str().unwrap_or("http"), uri.authority().map_or("", |of| of.as_str()));
    format!("{scheme}://{authority}{address}").parse().with_context(|| uri.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_without_a_path_is_asked_for_its_last_minute() {
        let of = |text: &str| url(OsStr::new(text)).unwrap().map(|uri| profile_of(&uri).unwrap().to_string());
        let last_minute = "http://node:7373/debug/pprof/profile?from=-1m";
        assert_eq!(of("http://node:7373").as_deref(), Some(last_minute));
        assert_eq!(of("http://node:7373/").as_deref(), Some(last_minute));
        let chosen = "https://node/debug/pprof/profile?type=off_cpu&at=-5m&for=10s";
        assert_eq!(of(chosen).as_deref(), Some(chosen));
        assert_eq!(
            of("http://node:7373/?pod=web-*").as_deref(),
            Some("http://node:7373/debug/pprof/profile?pod=web-*")
        );
        assert_eq!(of("perf.data"), None);
        assert!(url(OsStr::new("http://")).is_err());
    }
}

//! The text of a sample, as perf script prints it (`process_event` in `tools/perf/builtin-script.c`, `evsel_fprintf.c`).

use std::fmt::Write as _;

use super::fields::{Field, Fields};
use crate::recording::perf_data::{Attribute, Place, Reader, Sampled};
use crate::stack::Frame;
use crate::symbol::Named;

/// How samples are printed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Whether call chains are printed.
    pub(super) chains: bool,
    /// Length of the longest name of an event.
    pub(super) width: usize,
}

/// Appends the line of a sample up to its location. `trace` contains the fields of a tracepoint.
pub(super) fn start(
    text: &mut String,
    sample: &Sampled,
    event: &Attribute,
    (fields, style): (Fields, Style),
    trace: Option<&str>,
) -> std::fmt::Result {
    let with_chain = is_chain(sample, fields, style);
    if fields.has(Field::Comm) {
        let comm = crate::error::printable(&sample.comm);
        if with_chain { write!(text, "{comm} ")? } else { write!(text, "{comm:>16} ")? }
    }
    let (pid, tid) = (sample.pid.cast_signed(), sample.tid.cast_signed());
    match (fields.has(Field::Pid), fields.has(Field::Tid)) {
        (true, true) => write!(text, "{pid:>5}/{tid:<5} ")?,
        (true, false) => write!(text, "{pid:>5} ")?,
        (false, true) => write!(text, "{tid:>5} ")?,
        (false, false) => {}
    }
    if let Some(cpu) = sample.cpu.filter(|_| fields.has(Field::Cpu)) {
        write!(text, "[{cpu:03}] ")?;
    }
    if let Some(time) = sample.time.filter(|_| fields.has(Field::Time)) {
        let microseconds = time / 1000;
        let time = format!("{}.{:06}", microseconds / 1_000_000, microseconds % 1_000_000);
        write!(text, "{time:>12}: ")?;
    }
    if fields.has(Field::Period) {
        write!(text, "{:>10} ", sample.period)?;
    }
    if fields.has(Field::Event) {
        write!(text, "{:>width$}: ", event.name, width = style.width)?;
    }
    if fields.has(Field::Trace) {
        text.push_str(&crate::error::printable(trace.unwrap_or("[unknown format]")));
    }
    if fields.has(Field::Cgroup) {
        let cgroup = sample.cgroup.as_deref().unwrap_or("unknown");
        write!(text, " {}", crate::error::printable(cgroup))?;
    }
    Ok(())
}

/// Reports whether the call chain of a sample is printed.
pub(super) fn is_chain(sample: &Sampled, fields: Fields, style: Style) -> bool {
    fields.has(Field::Ip) && style.chains && sample.has_chain
}

/// Appends a location: its address, function and file.
pub(super) fn place(
    text: &mut String,
    reader: &Reader<'_>,
    sample: &Sampled,
    (place, named): (&Place, &Named),
    (fields, is_chain): (Fields, bool),
) -> std::fmt::Result {
    if fields.has(Field::Ip) {
        // In call chains, addresses in files are offsets.
        let address = match place.frame {
            Frame::File { offset, .. } if is_chain => offset,
            _ => place.address,
        };
        write!(text, "{address:>16x}")?;
    }
    if fields.has(Field::Sym) {
        text.push(' ');
        match symbol(named) {
            Some(name) => text.push_str(&crate::error::printable(name)),
            None => text.push_str("[unknown]"),
        }
        if fields.has(Field::Symoff)
            && let Some((start, _)) = named.function
        {
            write!(text, "+{:#x}", named.address.wrapping_sub(start))?;
        }
    }
    if fields.has(Field::Dso) {
        write!(text, " ({})", dso(reader, sample, place, named))?;
    }
    Ok(())
}

/// Returns the name of the function at a location.
pub(super) fn symbol(named: &Named) -> Option<&str> {
    named.lines.last().map(|line| &*line.name)
}

/// Returns the file of a location, with the words of perf for everything else.
pub(super) fn dso(reader: &Reader<'_>, sample: &Sampled, place: &Place, named: &Named) -> String {
    let name = match place.frame {
        Frame::File { .. } => reader.path(place.frame).map(ToString::to_string),
        Frame::Kernel(address) => {
            let segment = named.segment.as_ref().map(|segment| segment.path.to_string());
            segment.or_else(|| reader.kernel_module(address).map(ToString::to_string))
        }
        Frame::Memory { .. } => Some(format!("/tmp/perf-{}.map", sample.pid)),
        Frame::Nowhere(_) | Frame::Truncation(_) => None,
    };
    name.map_or_else(|| "[unknown]".into(), |name| crate::error::printable(&name))
}

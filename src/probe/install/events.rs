//! Events of a probe: of the kprobe or uprobe PMU, or a tracepoint that is defined for it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::place::{Instance, Place, Site, refused};
use super::{ConfiguredProbe, Placed};
use crate::event::format::Format;
use crate::event::{Event, Kind, ParseErrors, ProbePoint, Selector};
use crate::health::{Cause, Refusal};
use crate::host::{Roots, read_number, read_text};
use crate::probe::argument::Argument;
use crate::probe::kallsyms;
use crate::probe::tracefs::{Line, Probes};

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;

/// Position of the semaphore's offset in the `config` of the uprobe PMU (`format/ref_ctr_offset`).
const SEMAPHORE_SHIFT: u32 = 32;

/// Returns the definitions of an untimed probe, one for each instance.
pub(super) fn lines(configured: &ConfiguredProbe, site: &Site) -> Result<Vec<Line>, Refusal> {
    let returns = configured.definition.location.kind().returns();
    let lines = site.uses.iter().map(|instance| line(site, instance, returns, &instance.arguments));
    lines.collect::<Result<_, _>>().map_err(|error| refused(configured, Cause::Broken, error.to_string()))
}

/// Returns the definition of one instance of a probe.
fn line(
    site: &Site,
    instance: &Instance,
    returns: bool,
    arguments: &[Argument],
) -> Result<Line, ParseErrors> {
    match &site.place {
        Place::Kernel { module, function } => {
            Line::kernel(module.as_deref(), function, instance.offset, returns, arguments, site.arch)
        }
        Place::File(path) => {
            let semaphore = instance.semaphore.filter(|_| !returns);
            Line::user(path, instance.offset, semaphore, returns, arguments, site.arch)
        }
    }
}

/// Creates the events of a probe.
pub(super) struct EventCreator<'a> {
    configured: &'a ConfiguredProbe,
    site: &'a Site,
    roots: &'a Roots,
    /// Defines probes. `None`: nothing is defined, only described in `ways`.
    probes: Option<&'a mut Probes>,
    /// Names of the created definitions.
    pub(super) defined: Vec<Arc<str>>,
    /// Description of each event, for users.
    pub(super) ways: Vec<String>,
}

impl<'a> EventCreator<'a> {
    pub(super) fn new(
        configured: &'a ConfiguredProbe,
        site: &'a Site,
        roots: &'a Roots,
        probes: Option<&'a mut Probes>,
    ) -> Self {
        Self { configured, site, roots, probes, defined: Vec::new(), ways: Vec::new() }
    }

    /// Returns the events: one for each instance of the probe, or the entry and the return of a timed function.
    pub(super) fn all(&mut self) -> Result<Vec<Placed>, Refusal> {
        let (site, returns) = (self.site, self.configured.definition.location.kind().returns());
        let mut placed = Vec::new();
        for instance in &site.uses {
            placed.push(self.at(instance, returns, &instance.arguments)?);
            if self.configured.timed {
                placed.push(self.at(instance, true, &instance.returned)?);
            }
        }
        Ok(placed)
    }

    /// Returns the event of one instance, or of its return.
    fn at(&mut self, instance: &Instance, returns: bool, arguments: &[Argument]) -> Result<Placed, Refusal> {
        let site = self.site;
        let simple = arguments.is_empty() && !self.configured.filtered;
        let semaphore = instance.semaphore.filter(|_| !returns).unwrap_or(0);
        let (pmu, place) = match &site.place {
            // The PMU accepts a module's function without its module.
            Place::Kernel { function, .. } => ("kprobe", function.as_bytes()),
            Place::File(path) => ("uprobe", path.as_os_str().as_bytes()),
        };
        if simple
            && u32::try_from(semaphore).is_ok()
            && let Some(kind) = self.pmu(pmu)
        {
            let config = u64::from(returns) | semaphore << SEMAPHORE_SHIFT;
            let point = self.point(place, instance.offset)?;
            return Ok(self.by_pmu(pmu, kind, config, point, returns));
        }
        let placed = self.define(line(site, instance, returns, arguments), returns);
        match (&site.place, placed) {
            (Place::Kernel { function, .. }, Err(refusal))
                if simple && refusal.cause == Cause::Absent && !returns && instance.offset == 0 =>
            {
                self.by_function_tracer(function).unwrap_or(Err(refusal))
            }
            (_, placed) => placed,
        }
    }

    /// Returns the type of a probe PMU, if this kernel has it (Linux 4.17).
    fn pmu(&self, name: &str) -> Option<u32> {
        let path = self.roots.sys.join("bus/event_source/devices").join(name).join("type");
        u32::try_from(read_number(&path).ok()?).ok()
    }

    fn point(&self, place: &[u8], offset: u64) -> Result<ProbePoint, Refusal> {
        let place = CString::new(place).map_err(|_| {
            refused(self.configured, Cause::Broken, "the probe location contains a NUL byte".to_owned())
        })?;
        Ok(ProbePoint { place, offset, file: self.site.id })
    }

    fn by_pmu(&mut self, name: &str, kind: u32, config: u64, point: ProbePoint, returns: bool) -> Placed {
        let side = if returns { ", at its return" } else { "" };
        let place = point.place.to_string_lossy();
        self.ways.push(format!("PMU {name}: {place}+{:#x}{side}", point.offset));
        let selector = Selector { kind, config: [config, 0, 0, 0] };
        let event = self.event(Kind::Probe, selector, returns);
        Placed { event: Event { probe: Some(Arc::new(point)), ..event }, format: None }
    }

    /// Counts a function with ftrace, on kernels without kprobes. `None` if the kernel has no function tracing.
    fn by_function_tracer(&mut self, function: &str) -> Option<Result<Placed, Refusal>> {
        let number = read_number(&self.roots.tracing.join("events/ftrace/function/id")).ok()?;
        // Of several names of one address, function tracing supports the first. Without the list, the kernel checks the name.
        if let Ok(false) = kallsyms::is_traceable(self.roots, function) {
            let reason = "this kernel has no kprobes, and its function tracing does not support the function";
            let remedy = "see available_filter_functions in tracefs for supported functions and their names";
            let refusal = refused(self.configured, Cause::Absent, reason.to_owned());
            return Some(Err(Refusal { remedy: Some(remedy.to_owned()), ..refusal }));
        }
        let selector = Selector { kind: TRACEPOINT, config: [number, 0, 0, 0] };
        let event = self.event(Kind::Tracepoint, selector, false);
        self.ways.push(format!("tracepoint ftrace:function, where ip == {function}"));
        let filter = Some(format!("ip == {function}").into());
        Some(Ok(Placed { event: Event { filter, ..event }, format: None }))
    }

    /// Defines a tracepoint in tracefs.
    fn define(&mut self, line: Result<Line, ParseErrors>, returns: bool) -> Result<Placed, Refusal> {
        let line = line.map_err(|error| refused(self.configured, Cause::Broken, error.to_string()))?;
        let name: Arc<str> = self.configured.definition.location.to_string().into();
        let Some(probes) = &mut self.probes else {
            self.ways.push(line.to_string());
            let event = self.event(Kind::Tracepoint, Selector { kind: TRACEPOINT, config: [0; 4] }, returns);
            return Ok(Placed { event, format: None });
        };
        let added = probes
            .add(&self.configured.name, &line)
            .map_err(|refusal| refusal.refusal(&name, "this host"))?;
        self.ways.push(format!("{line} as {}:{}", added.system, added.event));
        self.defined.push(Arc::clone(&added.event));
        let dir = self.roots.tracing.join("events").join(&*added.system).join(&*added.event);
        let broken = |reason: String| refused(self.configured, Cause::Broken, reason);
        let format = read_text(&dir.join("format")).map_err(|error| broken(error.to_string()))?;
        let format = Format::parse(&format).map_err(|error| broken(error.to_string()))?;
        let selector = Selector { kind: TRACEPOINT, config: [format.id(), 0, 0, 0] };
        Ok(Placed { event: self.event(Kind::Tracepoint, selector, returns), format: Some(Arc::new(format)) })
    }

    fn event(&self, kind: Kind, selector: Selector, returns: bool) -> Event {
        let place = self.configured.definition.location.to_string();
        let name = match (self.configured.timed, returns) {
            (true, true) => format!("{place}%return"),
            _ => place,
        };
        let event = Event::unnamed(kind, selector, format!("Number of hits of the probe {name}"));
        Event { name: name.into(), stem: Arc::clone(&self.configured.name), ..event }
    }
}

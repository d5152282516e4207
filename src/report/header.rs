//! The description of a recording, in the layout of `perf report --header`.

use std::fmt::{self, Display};

use crate::clean::{NAME, clean};
use crate::recording::About;
use crate::recording::perf_data::Attribute;

/// Names of the fields of a sample, by their bits in `perf_event_attr.sample_type`.
const FIELDS: [&str; 25] = [
    "IP",
    "TID",
    "TIME",
    "ADDR",
    "READ",
    "CALLCHAIN",
    "ID",
    "CPU",
    "PERIOD",
    "STREAM_ID",
    "RAW",
    "BRANCH_STACK",
    "REGS_USER",
    "STACK_USER",
    "WEIGHT",
    "DATA_SRC",
    "IDENTIFIER",
    "TRANSACTION",
    "REGS_INTR",
    "PHYS_ADDR",
    "AUX",
    "CGROUP",
    "DATA_PAGE_SIZE",
    "CODE_PAGE_SIZE",
    "WEIGHT_STRUCT",
];

/// The description of a recording, one line for each known fact.
#[derive(Debug)]
pub struct Header<'a>(pub &'a About);

impl Display for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { hostname, release, version, arch, cpu, .. } = self.0;
        writeln!(f, "# ========")?;
        if let Some(written) = self.0.written {
            writeln!(f, "# captured on    : {written:#}")?;
        }
        for (name, text) in
            [("hostname", hostname), ("os release", release), ("perf version", version), ("arch", arch)]
        {
            if let Some(text) = text {
                writeln!(f, "# {name} : {}", clean(text, NAME))?;
            }
        }
        if let Some((online, available)) = self.0.cpus {
            writeln!(f, "# nrcpus online : {online}\n# nrcpus avail : {available}")?;
        }
        if let Some(cpu) = cpu {
            writeln!(f, "# cpudesc : {}", clean(cpu, NAME))?;
        }
        if let Some(memory) = self.0.memory {
            writeln!(f, "# total memory : {memory} kB")?;
        }
        if !self.0.command.is_empty() {
            let words = self.0.command.iter().map(|word| format!("{} ", clean(word, NAME)));
            writeln!(f, "# cmdline : {}", words.collect::<String>())?;
        }
        self.0.events.iter().try_for_each(|event| writeln!(f, "# event : {}", described(event)))?;
        if let Some((first, last)) = self.0.times {
            let seconds = |time: u64| format!("{}.{:06}", time / 1_000_000_000, time / 1000 % 1_000_000);
            writeln!(f, "# time of first sample : {}", seconds(first))?;
            writeln!(f, "# time of last sample : {}", seconds(last))?;
            writeln!(f, "# sample duration : {:10.3} ms", last.saturating_sub(first) as f64 / 1e6)?;
        }
        writeln!(f, "# ========\n#")
    }
}

/// Describes an event by the attributes that are set.
fn described(event: &Attribute) -> String {
    let mut parts = vec![format!("name = {}", clean(&event.name, NAME))];
    // Without fields, only the name is known: the file is no recording of perf.
    if event.sample != 0 {
        parts.push(format!("type = {}", event.kind));
        if event.config != 0 {
            parts.push(format!("config = {:#x}", event.config));
        }
        parts.push(format!("{{ sample_period, sample_freq }} = {}", event.period));
        let is_set = |(bit, _): &(usize, _)| event.sample & (1 << bit) != 0;
        let fields: Vec<&str> = FIELDS.into_iter().enumerate().filter(is_set).map(|(_, name)| name).collect();
        parts.push(format!("sample_type = {}", fields.join("|")));
        if event.frequency {
            parts.push("freq = 1".to_owned());
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_header_has_the_known_facts_in_the_layout_of_perf() {
        let mut events = vec![Attribute::default()];
        for event in &mut events {
            (event.name, event.kind) = ("cpu-clock".into(), 1);
            (event.period, event.frequency, event.sample) = (999, true, 0x127);
        }
        let about = About {
            hostname: Some("node\u{1b}[2J".into()),
            release: Some("6.1.0".into()),
            cpus: Some((2, 4)),
            memory: Some(24_684_092),
            command: ["perf", "record"].map(Into::into).to_vec(),
            written: Some(Timestamp(1_763_715_126_000)),
            times: Some((30_864_995_080_123, 30_865_068_754_999)),
            events,
            ..About::default()
        };
        insta::assert_snapshot!(Header(&about).to_string());
        assert_eq!(Header(&About::default()).to_string(), "# ========\n# ========\n#\n");
    }
}

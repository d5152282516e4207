//! Identity of CPU models, in the form of the kernel's `mapfile.csv`.

use std::path::Path;

use regex::Regex;

use crate::host::{self, Roots};

/// Bits of MIDR_EL1 that identify the model: implementer, architecture and part number. Source: Arm Architecture Reference Manual, MIDR_EL1.
const MIDR_MODEL: u64 = 0xff0f_fff0;

/// Identity of a CPU: `GenuineIntel-6-55-7` (vendor, family, model and stepping; the last two in hexadecimal), or MIDR_EL1 of Arm as a
/// hexadecimal number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::event) struct CpuId(String);

impl From<&str> for CpuId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl CpuId {
    /// Reads the identity of a CPU. `None` if the kernel does not report it.
    pub(in crate::event) fn read(roots: &Roots, cpu: u32) -> Option<Self> {
        Self::arm(&roots.sys, cpu).or_else(|| Self::x86(&host::read_text(&roots.proc.join("cpuinfo")).ok()?))
    }

    /// Returns the identity as text.
    pub(in crate::event) fn text(&self) -> &str {
        &self.0
    }

    fn arm(sys: &Path, cpu: u32) -> Option<Self> {
        let path = format!("devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        Some(Self(host::read_text(&sys.join(path)).ok()?.trim().to_owned()))
    }

    /// Returns the identity of the first CPU in `/proc/cpuinfo`; all CPUs of an x86 machine have the same.
    fn x86(cpuinfo: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim())
        };
        let number = |key: &str| value(key)?.parse::<u32>().ok();
        let (vendor, family, model) = (value("vendor_id")?, number("cpu family")?, number("model")?);
        Some(Self(format!("{vendor}-{family}-{model:X}-{:X}", number("stepping").unwrap_or(0))))
    }
}

/// Reports whether a pattern of `mapfile.csv` is that of a CPU. A pattern for x86 is a regular expression, with or without the stepping. One
/// for Arm is MIDR_EL1, in which variant and revision do not count.
pub(in crate::event) fn matches(pattern: &str, CpuId(cpu): &CpuId) -> bool {
    let midr = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    match (midr(pattern), midr(cpu)) {
        (Some(pattern), Some(cpu)) => pattern & MIDR_MODEL == cpu & MIDR_MODEL,
        // Most patterns begin with another model, so that few are compiled.
        (None, None) if !cpu.starts_with(literal(pattern)) => false,
        (None, None) => Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|pattern| {
            pattern.is_match(cpu) || cpu.rsplit_once('-').is_some_and(|(model, _)| pattern.is_match(model))
        }),
        _ => false,
    }
}

/// Returns the part of a pattern before its first special character.
fn literal(pattern: &str) -> &str {
    pattern.split(['[', '(', '.', '\\', '?', '*', '+']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_of_x86_is_its_vendor_family_model_and_stepping() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: X\nstepping\t: 7\n";
        assert_eq!(CpuId::x86(text), Some(CpuId::from("GenuineIntel-6-55-7")));
        assert_eq!(CpuId::x86("Processor\t: ARMv8\n"), None);
    }

    #[test]
    fn steppings_and_revisions_count_only_where_the_pattern_names_them() {
        let cascade = "GenuineIntel-6-55-[56789ABCDEF]";
        for (pattern, cpu, expected) in [
            (cascade, "GenuineIntel-6-55-7", true),
            (cascade, "GenuineIntel-6-55-4", false),
            ("GenuineIntel-6-8F", "GenuineIntel-6-8F-8", true),
            ("GenuineIntel-6-8F", "GenuineIntel-6-8F8-1", false),
            ("AuthenticAMD-25-([245][[:xdigit:]]|[[:xdigit:]])", "AuthenticAMD-25-21-0", true),
            ("AuthenticAMD-25-([245][[:xdigit:]]|[[:xdigit:]])", "AuthenticAMD-25-11-1", false),
            ("0x00000000410fd400", "0x00000000411fd401", true),
            ("0x00000000410fd400", "0x00000000411fd411", false),
            ("0x00000000410fd400", "GenuineIntel-6-55-7", false),
        ] {
            assert_eq!(matches(pattern, &cpu.into()), expected, "{pattern} {cpu}");
        }
    }
}

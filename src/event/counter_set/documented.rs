//! Numbers of counters by CPU model, as far as documents and files of the kernel determine them.
//!
//! | PMU | general counters | fixed counters |
//! |---|---|---|
//! | Intel cores | highest number in the vendor's event list; doubled without SMT from Sandy Bridge to Cascade Lake | Intel SDM volume 3, chapter 20 |
//! | AMD cores | 6 with the flag `perfctr_core` (APM volume 2, 13.2.1), otherwise 4 | none |
//! | `amd_l3` | 6 with the flag `perfctr_llc` | none |
//! | `amd_df` | 4 with the flag `perfctr_nb`, unless `perfmon_v2` says that CPUID has the number | none |
//! | Arm cores | `PMCR_EL0.N` of the core's technical reference manual | cycles |
//! | Intel uncore | highest number in the vendor's event list | not counted |

use std::collections::BTreeMap;

use super::features::CpuFeatures;
use super::{Basis, Capacity, CounterMask, CounterSet, Rules};
use crate::event::Catalog;
use crate::event::pmu::Pmu;
use crate::event::stem;
use crate::event::vendor::ModelTable;

/// Models of Intel in which a core divides eight counters among its two threads (SDM volume 3, 20.3.4 and following).
const DIVIDED_BY_SMT: [&str; 12] = [
    "sandybridge",
    "jaketown",
    "ivybridge",
    "ivytown",
    "haswell",
    "haswellx",
    "broadwell",
    "broadwellde",
    "broadwellx",
    "skylake",
    "skylakex",
    "cascadelakex",
];

/// Events of these models that can use only the first four of eight counters, by event select (`intel_skl_event_constraints` in the kernel).
const FIRST_FOUR: [u32; 6] = [0xc6, 0xcd, 0xd0, 0xd1, 0xd2, 0xd3];

/// Models of Arm with `PMCR_EL0.N` = 6 in their technical reference manuals. Other cores have a configurable number.
const ARM_SIX: [&str; 15] = [
    "arm/cortex-a34",
    "arm/cortex-a35",
    "arm/cortex-a53",
    "arm/cortex-a55",
    "arm/cortex-a57-a72",
    "arm/cortex-a65-e1",
    "arm/cortex-a73",
    "arm/cortex-a75",
    "arm/cortex-a76",
    "arm/cortex-a77",
    "arm/cortex-a78",
    "arm/cortex-x1",
    "arm/neoverse-n1",
    "arm/neoverse-v1",
    "arm/neoverse-n2-v2",
];

/// PMUs with events that need no counter.
const UNLIMITED: [&str; 7] =
    ["msr", "power", "cstate_core", "cstate_pkg", "cstate_module", "i915", "software"];

impl Catalog {
    /// Returns how many events of a PMU can be counted at the same time, as documented for this machine. `None` = the PMU of the cores.
    /// Decompresses the table of the CPU's model.
    pub fn capacity(&self, pmu: Option<&str>) -> Capacity {
        let is_meant = |found: &&Pmu| pmu.map_or(found.core, |name| *found.name == *name);
        match self.pmus.iter().find(is_meant) {
            None => Capacity::unknown("sysfs does not describe the PMU", Rules::Any),
            Some(pmu) if pmu.core => self.core_capacity(pmu),
            Some(pmu) => self.uncore_capacity(pmu),
        }
    }

    fn core_capacity(&self, pmu: &Pmu) -> Capacity {
        let Some(table) = self.vendor(pmu) else {
            let rules = if pmu.name.starts_with("armv") { Rules::Arm } else { Rules::Any };
            return Capacity::unknown("the number of counters of this CPU model is not known", rules);
        };
        let name = table.model.name;
        if name.starts_with("amdzen") {
            return self.amd_cores(name);
        }
        if name.contains('/') {
            return arm_cores(name);
        }
        let (general, mut restricted) = constraints(table, pmu);
        let doubles = DIVIDED_BY_SMT.contains(&name);
        let all = if doubles && self.features.without_smt { 2 * general } else { general };
        // The list is for threads with SMT. Most events that can use all counters there can use all eight.
        let first_four = |code: u32| all > general && FIRST_FOUR.contains(&(code & 0xff));
        restricted.retain(|&code, mask| first_four(code) || *mask != CounterMask::general(general));
        let has_slots = restricted.contains_key(&0x0400);
        let rules = Rules::Intel { restricted, cache: CounterMask::general(4) };
        if self.facts.virtual_machine {
            return Capacity::unknown("the hypervisor determines the number of counters", rules);
        }
        let generic: &[&str] = match has_slots {
            true => &["instructions", "cycles", "ref-cycles", "slots"],
            false => &["instructions", "cycles", "ref-cycles"],
        };
        let fixed = generic.iter().filter_map(|event| rules.fixed(event)).collect();
        let smt = match (doubles, self.features.without_smt) {
            (false, _) => "",
            (true, true) => ", without SMT",
            (true, false) => ", with SMT",
        };
        let basis = Basis::Documented(format!("event list {name} of Intel{smt}"));
        Capacity::Limited(CounterSet { general: all, fixed, basis, rules })
    }

    fn amd_cores(&self, model: &str) -> Capacity {
        let limited = |general, what: &str| {
            let basis = Basis::Documented(what.into());
            Capacity::Limited(CounterSet { general, fixed: Vec::new(), basis, rules: Rules::Amd })
        };
        match self.features {
            // PPRs of Zen to Zen 5. A later model may have more.
            _ if model > "amdzen5" => {
                Capacity::unknown("the number of counters of this CPU model is not known", Rules::Amd)
            }
            CpuFeatures { perfctr_core: true, .. } => limited(6, "CPU flag perfctr_core"),
            _ => limited(4, "no CPU flag perfctr_core"),
        }
    }

    fn uncore_capacity(&self, pmu: &Pmu) -> Capacity {
        let limited = |general, what: String, rules| {
            let basis = Basis::Documented(what);
            Capacity::Limited(CounterSet { general, fixed: Vec::new(), basis, rules })
        };
        let family = stem::without_instance(&pmu.name);
        match (family, self.features) {
            (family, _) if UNLIMITED.contains(&family) || family.contains("free_running") => {
                Capacity::Unlimited
            }
            ("amd_l3", CpuFeatures { perfctr_llc: true, .. }) => {
                limited(6, "CPU flag perfctr_llc".into(), Rules::Any)
            }
            ("amd_df", CpuFeatures { perfctr_nb: true, perfmon_v2: false, .. }) => {
                limited(4, "CPU flag perfctr_nb".into(), Rules::Any)
            }
            (family, _) if family.starts_with("uncore_") => match self.vendor(pmu) {
                Some(table) => match constraints(table, pmu) {
                    (0, _) => Capacity::unknown("the event list of Intel has no counters for it", Rules::Any),
                    (general, restricted) => {
                        let rules = Rules::Intel { restricted, cache: CounterMask::general(general) };
                        limited(general, format!("event list {} of Intel", table.model.name), rules)
                    }
                },
                None => Capacity::unknown("no event list for this CPU model", Rules::Any),
            },
            _ => Capacity::unknown("the number of its counters is not documented", Rules::Any),
        }
    }
}

fn arm_cores(model: &str) -> Capacity {
    if !ARM_SIX.contains(&model) {
        return Capacity::unknown("the number of counters is a choice of the maker of the chip", Rules::Arm);
    }
    let rules = Rules::Arm;
    let fixed = rules.fixed("cycles").into_iter().collect();
    let basis = Basis::Documented(format!("technical reference manual of {model}"));
    Capacity::Limited(CounterSet { general: 6, fixed, basis, rules })
}

/// Returns the number of general counters in the event list, and the counters of each event, by event code and unit mask.
fn constraints(table: &ModelTable, pmu: &Pmu) -> (u32, BTreeMap<u32, CounterMask>) {
    let mut by_code: BTreeMap<u32, CounterMask> = BTreeMap::new();
    let mut general = 0;
    for event in table.events_of(&pmu.name, pmu.core) {
        let Some(code) = event.code() else { continue };
        let mask = match event.counters.strip_prefix("fixed") {
            // Pseudo-encodings: no general counter has these events.
            Some(number) if code & 0xff == 0 => number.parse().ok().map(CounterMask::fixed),
            Some(_) => None,
            None => CounterMask::parse(event.counters),
        };
        let Some(mask) = mask else { continue };
        if !event.counters.starts_with("fixed") {
            general = general.max(mask.iter().last().map_or(0, |highest| highest + 1));
        }
        // Variants of an event have the restriction of the narrowest.
        by_code.entry(code).and_modify(|known| *known = narrower(*known, mask)).or_insert(mask);
    }
    (general, by_code)
}

fn narrower(one: CounterMask, other: CounterMask) -> CounterMask {
    Some(one.and(other)).filter(|both| !both.is_empty()).unwrap_or(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::parse;
    use crate::host::{Facts, Roots};

    /// Returns the catalog of an x86 machine with this model, CPU flags, and content of `smt/control`.
    fn x86(vendor: &str, family: u32, model: u32, flags: &str, smt: &str) -> Catalog {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/bus/event_source/devices/cpu/type", "4\n");
        write("sys/bus/event_source/devices/cpu/format/event", "config:0-7\n");
        write("sys/bus/event_source/devices/cpu/format/umask", "config:8-15\n");
        write("sys/devices/system/cpu/smt/control", smt);
        let cpuinfo = format!(
            "vendor_id : {vendor}\ncpu family : {family}\nmodel : {model}\nstepping : 4\nflags : {flags}\n"
        );
        write("proc/cpuinfo", &cpuinfo);
        let roots = Roots::under(dir.path());
        Catalog::load(&roots, &Facts::read(&roots))
    }

    fn counters(catalog: &Catalog) -> (u32, Vec<String>) {
        match catalog.capacity(None) {
            Capacity::Limited(set) => {
                (set.general, set.fixed.iter().map(|fixed| fixed.event.to_string()).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Intel SDM volume 3, chapter 20; AMD APM volume 2, 13.2.1.
    #[test]
    fn models_have_the_counters_of_their_documents() {
        let (three, four) = (
            &["instructions", "cycles", "ref-cycles"][..],
            &["instructions", "cycles", "ref-cycles", "slots"][..],
        );
        for (catalog, general, fixed) in [
            (x86("GenuineIntel", 6, 0x55, "", "on"), 4, three),
            (x86("GenuineIntel", 6, 0x55, "", "off"), 4, three),
            (x86("GenuineIntel", 6, 0x55, "", "notsupported"), 8, three),
            (x86("GenuineIntel", 6, 0x6a, "", "notsupported"), 8, four),
            (x86("GenuineIntel", 6, 0x8f, "", "on"), 8, four),
            (x86("GenuineIntel", 6, 0xaf, "", "on"), 8, three),
            (x86("AuthenticAMD", 25, 0x11, "perfctr_core perfmon_v2", "on"), 6, &[]),
            (x86("AuthenticAMD", 23, 0x31, "", "on"), 4, &[]),
        ] {
            assert_eq!(counters(&catalog), (general, fixed.iter().map(ToString::to_string).collect()));
        }
    }

    #[test]
    fn an_event_of_the_vendors_list_uses_the_counters_of_the_list() {
        let masks = |catalog: &Catalog, event: &str| {
            let Capacity::Limited(set) = catalog.capacity(None) else { panic!("limited") };
            let event = catalog.resolve(&parse(event).unwrap()[0].events[0]).unwrap().remove(0);
            set.needed_by(&event)[0].iter().collect::<Vec<_>>()
        };
        let ice_lake = x86("GenuineIntel", 6, 0x6a, "", "on");
        assert_eq!(masks(&ice_lake, "mem_load_retired.l3_miss"), [0, 1, 2, 3]);
        assert_eq!(masks(&ice_lake, "br_misp_retired.all_branches"), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(masks(&ice_lake, "topdown.slots"), [35]);
        let skylake = x86("GenuineIntel", 6, 0x55, "", "notsupported");
        assert_eq!(masks(&skylake, "mem_load_retired.l3_miss"), [0, 1, 2, 3]);
        assert_eq!(masks(&skylake, "br_misp_retired.all_branches"), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_counters_of_a_virtual_machine_and_of_an_unknown_model_are_unknown() {
        for catalog in
            [x86("GenuineIntel", 6, 0x6a, "hypervisor", "on"), x86("GenuineIntel", 6, 0x01, "", "on")]
        {
            let Capacity::Unknown(unknown) = catalog.capacity(None) else { panic!("unknown") };
            assert!(!unknown.reason.is_empty());
            let measured = catalog.capacity(None).measured(3, &["cycles"]);
            let Capacity::Limited(set) = measured else { panic!("limited") };
            assert_eq!((set.general, set.len(), set.basis), (3, 4, Basis::Measured));
        }
    }
}

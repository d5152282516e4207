//! Hosts with the CPU models of the built-in metrics.

use std::fs;
use std::path::Path;

use crate::event::Catalog;
use crate::host::{Facts, Roots};

/// A host: its CPU, and its PMUs with the events of sysfs.
pub(super) struct Machine {
    /// Name of the model in the vendors' tables.
    pub(super) name: &'static str,
    cpu: &'static str,
    pmus: &'static [(&'static str, &'static str)],
}

const SLOTS: &str = "slots topdown-retiring topdown-bad-spec topdown-fe-bound topdown-be-bound";
const SLOTS_2: &str = "slots topdown-retiring topdown-bad-spec topdown-fe-bound topdown-be-bound topdown-heavy-ops \
     topdown-br-mispredict topdown-fetch-lat topdown-mem-bound cycles-t cycles-ct tx-start el-start";
const ATOM: &str = "topdown-retiring topdown-bad-spec topdown-fe-bound topdown-be-bound";

const fn machine(
    name: &'static str,
    cpu: &'static str,
    pmus: &'static [(&'static str, &'static str)],
) -> Machine {
    Machine { name, cpu, pmus }
}

/// PMUs of an Intel server outside of its cores.
macro_rules! server {
    ($core:expr) => {
        &[
            ("cpu", $core),
            ("uncore_imc_0", "cas_count_read cas_count_write"),
            ("power", "energy-pkg energy-ram"),
            ("msr", "tsc"),
            ("cstate_core", "c1-residency c6-residency"),
            ("cstate_pkg", "c2-residency c6-residency"),
        ]
    };
}

/// Hosts with every CPU model that a metric depends on. Names of PMUs and of their events in sysfs: `arch/x86/events/intel/core.c`, `uncore*.c`,
/// `rapl.c`, `cstate.c`, `arch/x86/events/amd/uncore.c`, `drivers/perf/arm_pmuv3.c` of the kernel.
pub(super) const MACHINES: &[Machine] = &[
    machine(
        "sandybridge",
        "GenuineIntel-6-2A-7",
        &[("cpu", ""), ("power", "energy-pkg energy-cores"), ("msr", "tsc"), ("cstate_core", "c7-residency")],
    ),
    machine("jaketown", "GenuineIntel-6-2D-7", &[("cpu", "")]),
    machine("ivybridge", "GenuineIntel-6-3A-9", &[("cpu", "")]),
    machine("ivytown", "GenuineIntel-6-3E-4", &[("cpu", ""), ("uncore_imc_0", "")]),
    machine(
        "haswell",
        "GenuineIntel-6-3C-3",
        &[("cpu", "cycles-t cycles-ct tx-start el-start"), ("uncore_imc", "data_reads data_writes")],
    ),
    machine("haswellx", "GenuineIntel-6-3F-2", server!("")),
    machine("broadwell", "GenuineIntel-6-3D-4", &[("cpu", "")]),
    machine("broadwellx", "GenuineIntel-6-4F-1", server!("")),
    machine(
        "skylake",
        "GenuineIntel-6-5E-3",
        &[("cpu", ""), ("power", "energy-pkg energy-cores energy-psys")],
    ),
    machine("skylakex", "GenuineIntel-6-55-4", server!("")),
    machine("cascadelakex", "GenuineIntel-6-55-7", server!("")),
    machine("icelake", "GenuineIntel-6-7E-5", &[("cpu", SLOTS)]),
    machine("icelakex", "GenuineIntel-6-6A-6", server!(SLOTS)),
    machine("rocketlake", "GenuineIntel-6-A7-1", &[("cpu", SLOTS)]),
    machine(
        "tigerlake",
        "GenuineIntel-6-8C-1",
        &[("cpu", SLOTS), ("uncore_imc_free_running_0", "data_read data_write")],
    ),
    machine("sapphirerapids", "GenuineIntel-6-8F-8", server!(SLOTS_2)),
    machine("emeraldrapids", "GenuineIntel-6-CF-2", server!(SLOTS_2)),
    machine("graniterapids", "GenuineIntel-6-AD-1", &[("cpu", SLOTS_2), ("uncore_imc_0", "")]),
    machine("alderlake", "GenuineIntel-6-97-2", &[("cpu_core", SLOTS_2), ("cpu_atom", ATOM)]),
    machine("meteorlake", "GenuineIntel-6-AA-4", &[("cpu_core", SLOTS_2), ("cpu_atom", ATOM)]),
    machine("lunarlake", "GenuineIntel-6-BD-1", &[("cpu_core", SLOTS_2), ("cpu_atom", ATOM)]),
    machine("arrowlake", "GenuineIntel-6-C6-2", &[("cpu_core", SLOTS_2), ("cpu_atom", ATOM)]),
    machine("pantherlake", "GenuineIntel-6-CC-2", &[("cpu_core", SLOTS_2), ("cpu_atom", ATOM)]),
    machine("alderlaken", "GenuineIntel-6-BE-0", &[("cpu", ATOM)]),
    machine("sierraforest", "GenuineIntel-6-AF-3", &[("cpu", ATOM), ("uncore_imc_0", "")]),
    machine("grandridge", "GenuineIntel-6-B6-0", &[("cpu", ATOM)]),
    machine("clearwaterforest", "GenuineIntel-6-DD-0", &[("cpu", ATOM)]),
    machine("snowridgex", "GenuineIntel-6-86-4", &[("cpu", "")]),
    machine("elkhartlake", "GenuineIntel-6-96-1", &[("cpu", ATOM)]),
    machine("goldmont", "GenuineIntel-6-5C-9", &[("cpu", "")]),
    machine("amdzen1", "AuthenticAMD-23-1-2", &[("cpu", ""), ("amd_df", "")]),
    machine("amdzen2", "AuthenticAMD-23-31-0", &[("cpu", ""), ("amd_df", ""), ("power", "energy-pkg")]),
    machine("amdzen3", "AuthenticAMD-25-1-1", &[("cpu", ""), ("amd_df", ""), ("power", "energy-pkg")]),
    machine("amdzen4", "AuthenticAMD-25-11-1", &[("cpu", ""), ("amd_umc_0", ""), ("power", "energy-pkg")]),
    machine("amdzen5", "AuthenticAMD-26-2-1", &[("cpu", ""), ("amd_umc_0", "")]),
    machine("amdzen6", "AuthenticAMD-26-50-0", &[("cpu", ""), ("amd_umc_0", "")]),
    machine("arm/neoverse-n1", "0x00000000413fd0c1", &[("armv8_pmuv3_0", "")]),
    machine("arm/neoverse-v1", "0x00000000411fd401", &[("armv8_pmuv3_0", "")]),
    machine("arm/neoverse-n2-v2", "0x00000000410fd490", &[("armv8_pmuv3_0", "")]),
    machine("arm/neoverse-n2-v2", "0x00000000410fd493", &[("armv8_pmuv3_0", "")]),
    machine("arm/neoverse-n2-v2", "0x00000000410fd4f0", &[("armv8_pmuv3_0", "")]),
    machine("arm/neoverse-n3", "0x00000000410fd8e0", &[("armv8_pmuv3_0", "")]),
    machine("arm/neoverse-v3", "0x00000000410fd830", &[("armv8_pmuv3_0", "")]),
    machine("arm/cortex-a78", "0x00000000410fd410", &[("armv8_pmuv3_0", "")]),
    machine("arm/cortex-a57-a72", "0x00000000410fd080", &[("armv8_pmuv3_0", "")]),
    machine("ampere/ampereone", "0x00000000c00fac30", &[("armv8_pmuv3_0", "")]),
];

/// Fields that the events of these hosts need.
const FIELDS: &[(&str, &str)] = &[
    ("event", "config:0-15"),
    ("umask", "config:16-55"),
    ("edge", "config:56"),
    ("inv", "config:57"),
    ("any", "config:58"),
    ("cmask", "config1:0-7"),
    ("rdwrmask", "config1:36-37"),
    ("offcore_rsp", "config2:0-63"),
];

pub(super) fn write(machine: &Machine, threads: u32, dir: &Path) -> Catalog {
    let put = |path: String, text: &str| {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    match machine.cpu.split('-').collect::<Vec<_>>()[..] {
        [vendor, family, model, stepping] => {
            let number = |hex: &str| u32::from_str_radix(hex, 16).unwrap();
            let (model, stepping) = (number(model), number(stepping));
            put(
                "proc/cpuinfo".into(),
                &format!(
                    "vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nstepping\t: {stepping}\n"
                ),
            );
        }
        _ => {
            let midr = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";
            put(midr.into(), &format!("{}\n", machine.cpu));
        }
    }
    put("sys/devices/system/cpu/online".into(), "0-3\n");
    for cpu in 0..4 {
        let base = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        put(format!("{base}/physical_package_id"), "0\n");
        put(format!("{base}/core_id"), &format!("{}\n", cpu / threads));
    }
    for (number, (pmu, events)) in (20..).zip(machine.pmus) {
        let base = format!("sys/bus/event_source/devices/{pmu}");
        put(format!("{base}/type"), &format!("{number}\n"));
        match *pmu {
            "cpu" => {}
            "cpu_core" => put(format!("{base}/cpus"), "0-1\n"),
            "cpu_atom" => put(format!("{base}/cpus"), "2-3\n"),
            "armv8_pmuv3_0" => put(format!("{base}/cpus"), "0-3\n"),
            _ => put(format!("{base}/cpumask"), "0\n"),
        }
        let has_slots = !matches!(machine.name, "arm/neoverse-n1" | "arm/cortex-a57-a72");
        if pmu.starts_with("armv8") {
            put(format!("{base}/caps/slots"), if has_slots { "0x00000008\n" } else { "0x00000000\n" });
        }
        for (field, bits) in FIELDS {
            put(format!("{base}/format/{field}"), &format!("{bits}\n"));
        }
        for (code, event) in (1..).zip(events.split_ascii_whitespace()) {
            put(format!("{base}/events/{event}"), &format!("event={code:#x}\n"));
        }
    }
    let roots = Roots::under(dir);
    Catalog::load(&roots, &Facts::read(&roots))
}

pub(super) fn catalog(name: &str, threads: u32) -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let machine = MACHINES.iter().find(|machine| machine.cpu == name || machine.name == name).unwrap();
    let catalog = write(machine, threads, dir.path());
    (dir, catalog)
}

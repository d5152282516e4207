#!/usr/bin/env python3
"""Generates src/event/vendor/tables.bin from the event files of a Linux source tree.

    python3 tools/vendor-events/generate.py LINUX_SOURCE

The input is tools/perf/pmu-events/arch/{x86,arm64}: JSON files of Intel, AMD, Arm and others, and mapfile.csv. Only facts are kept: names,
codes, counters, units and errata, no descriptions. The same tree yields the same bytes.

The output is an index and one zlib stream for each CPU model, so that a host reads only its own table. All numbers are little-endian.

    magic "PEVT" | u32 length of the index | index | streams

The index is text: `# linux VERSION`, then for each model `pattern <tab> name <tab> version <tab> offset <tab> length <tab> uncompressed
length`. A stream is text, too: `[PMU]` begins the events of a PMU, then for each event
`name <tab> terms <tab> counters <tab> scale <tab> flags <tab> errata`, without the empty fields at the end, sorted by name.
"""

import collections
import json
import pathlib
import re
import struct
import sys
import zlib

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "src/event/vendor/tables.bin"

# PMUs of the kernel by the units of the JSON files; other units are uncore_ and the unit in lower case.
PMUS = {
    "CBO": "uncore_cbox", "QPI LL": "uncore_qpi", "SBO": "uncore_sbox", "iMPH-U": "uncore_arb", "UPI LL": "uncore_upi",
    "L3PMC": "amd_l3", "DFPMC": "amd_df", "UMCPMC": "amd_umc",
}
# Units that are the names of PMUs.
KEPT = re.compile(r"hisi_|imx\d_|cpu_core$|cpu_atom$|cpu_lowpower$|ali_drw$|arm_cmn$|software$|tool$")

# Fields of the JSON files, and the terms of the PMU that they are.
FIELDS = [
    ("AnyThread", "any"), ("PortMask", "ch_mask"), ("CounterMask", "cmask"), ("EdgeDetect", "edge"), ("FCMask", "fc_mask"),
    ("Invert", "inv"), ("UMask", "umask"), ("NodeType", "type"), ("RdWrMask", "rdwrmask"), ("EnAllCores", "enallcores"),
    ("EnAllSlices", "enallslices"), ("SliceId", "sliceid"), ("ThreadMask", "threadmask"),
]
# Model-specific registers, and the terms through which the kernel sets them.
REGISTERS = {0x3F6: "ldlat", 0x3F7: "frontend", **dict.fromkeys([0x1A6, 0x1A7, 0x3E0, 0x3E1, 0x3E2, 0x3E3], "offcore_rsp")}
# Fixed counters of Intel, which the kernel selects by these codes.
FIXED = {
    "inst_retired.any": "event=0xc0",
    "inst_retired.any_p": "event=0xc0",
    "cpu_clk_unhalted.ref": "event=0x0,umask=0x3",
    "cpu_clk_unhalted.thread": "event=0x3c",
    "cpu_clk_unhalted.core": "event=0x3c",
    "cpu_clk_unhalted.thread_any": "event=0x3c,any=1",
}


def number(text):
    return int(text.strip(), 0)


def shown(value):
    return str(value) if value < 10 else hex(value)


def pmu_of(unit):
    if not unit:
        return "core"
    if unit in PMUS:
        return PMUS[unit]
    return unit if KEPT.match(unit) else "uncore_" + unit.lower()


def terms_of(event):
    """Returns the terms of an event, as a user writes them."""
    name = event["EventName"].lower()
    if name in FIXED and pmu_of(event.get("Unit")) in ("core", "cpu_core", "cpu_atom", "cpu_lowpower"):
        return FIXED[name]
    if "ConfigCode" in event:
        terms = ["config=" + shown(number(event["ConfigCode"]))]
    elif "EventidCode" in event:
        terms = ["eventid=" + shown(number(event["EventidCode"]))]
    else:
        code = number(event.get("EventCode", "0").split(",")[0]) | number(event.get("ExtSel", "0")) << 8
        terms = ["event=" + shown(code)]
    for field, term in FIELDS:
        value = number(event.get(field, "0"))
        if value:
            terms.append(f"{term}={shown(value)}")
    if event.get("Filter"):
        terms.append(event["Filter"].strip())
    if event.get("MSRValue") and event.get("MSRIndex") and number(event["MSRIndex"].split(",")[0]):
        register = REGISTERS[number(event["MSRIndex"].split(",")[0])]
        terms.append(f"{register}={shown(number(event['MSRValue']))}")
    return ",".join(terms)


def row(event):
    flags = [word for word, field in (("deprecated", "Deprecated"), ("package", "PerPkg"), ("alone", "TakenAlone"))
             if event.get(field) not in (None, "", "0")]
    errata = (event.get("Errata") or "").replace(" ", "")
    errata = "" if errata in ("0", "null", "None") else errata
    counters = (event.get("Counter") or "").replace(" ", "").replace("Fixedcounter", "fixed")
    scale = event.get("ScaleUnit") or ""
    fields = [event["EventName"].lower(), terms_of(event), counters, scale, "+".join(flags), errata]
    return "\t".join(fields).rstrip("\t")


def standard_events(arch):
    """Returns the events that files of Arm refer to by name (ArchStdEvent)."""
    found = {}
    for path in sorted(arch.glob("*.json")):
        for event in json.loads(path.read_text()):
            if "EventName" in event:
                found[event["EventName"].lower()] = event
    return found


def events_of(directory, standard):
    for path in sorted(directory.rglob("*.json")):
        for event in json.loads(path.read_text()):
            if "ArchStdEvent" in event:
                # A name that is no event is that of a metric.
                event = {**standard.get(event["ArchStdEvent"].lower(), {}), **event}
            if "EventName" in event:
                yield event


def table(directory, standard):
    by_pmu = collections.defaultdict(dict)
    for event in events_of(directory, standard):
        line = row(event)
        by_pmu[pmu_of(event.get("Unit"))].setdefault(line.split("\t")[0], line)
    lines = []
    for pmu in sorted(by_pmu):
        lines.append(f"[{pmu}]")
        lines.extend(by_pmu[pmu][name] for name in sorted(by_pmu[pmu]))
    return "\n".join(lines) + "\n", sum(len(events) for events in by_pmu.values())


def main(tree):
    makefile = (tree / "Makefile").read_text() if (tree / "Makefile").exists() else ""
    version = ".".join(re.findall(r"^(?:VERSION|PATCHLEVEL) = (\d+)", makefile, re.M)) or tree.resolve().name.rsplit("-", 1)[-1]
    index, streams, placed, count = [f"# linux {version}"], b"", {}, 0
    for name in ("x86", "arm64"):
        arch = tree / "tools/perf/pmu-events/arch" / name
        standard = standard_events(arch) if name == "arm64" else {}
        for line in (arch / "mapfile.csv").read_text().splitlines():
            pattern, _, rest = line.partition(",")
            if line.startswith("#") or not rest or rest.split(",")[-1] != "core":
                continue
            release, model, _ = rest.split(",")
            if model not in placed:
                text, events = table(arch / model, standard)
                packed = zlib.compress(text.encode(), 9)
                placed[model] = (len(streams), len(packed), len(text))
                streams += packed
                count += events
            place = "\t".join(map(str, placed[model]))
            index.append(f"{pattern}\t{model}\t{release}\t{place}")
    text = ("\n".join(index) + "\n").encode()
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_bytes(b"PEVT" + struct.pack("<I", len(text)) + text + streams)
    print(f"{len(placed)} models, {count} events, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))

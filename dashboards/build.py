#!/usr/bin/env python3
"""build.py [--check]

Generates the dashboards (*.json in this directory) from their sources in src/. With --check it writes nothing, and lists the
outdated files.
Needs only Python 3.9.
Exit code: 0 if all files are current, 1 if a file is outdated.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from src import exporter, node_overview, pods, profiles, scheduler, syscalls_io  # noqa: E402

DASHBOARDS = {
    "node-overview": node_overview,
    "pods": pods,
    "scheduler": scheduler,
    "syscalls-io": syscalls_io,
    "profiles": profiles,
    "exporter": exporter,
}


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__.strip())
    stale = []
    wanted = {f"{name}.json": json.dumps(module.dashboard(), indent=2) + "\n" for name, module in DASHBOARDS.items()}
    for name, text in wanted.items():
        file = HERE / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not arguments:
            file.write_text(text, encoding="utf-8")
    stale += sorted(file.name for file in HERE.glob("*.json") if file.name not in wanted)
    for name in stale:
        if arguments:
            print(f"{name} is outdated: run dashboards/build.py")
        else:
            print(f"{name}: written" if name in wanted else f"{name}: no source in src, remove it")
    return 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

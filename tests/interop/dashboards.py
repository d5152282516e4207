"""Checks of dashboards.sh in Python.

dashboards.py static NAMES: panels are complete, and queries use only existing variables and metrics. NAMES is a file of words that
    include every metric of the exporter
dashboards.py queries PROMETHEUS: every query of every dashboard and every variable has data, with the label names of scrapes and of OTLP
dashboards.py native PROMETHEUS: every query of a histogram has data with native histograms
dashboards.py pages ADDRESS: the exporter at the address serves the pages that the dashboards link to
dashboards.py typescript DIRECTORY: writes the dashboards as a program for tsc, with the types of @grafana/schema in that directory
"""

import json
import pathlib
import re
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
DIRECTORY = HERE.parents[1] / "dashboards"
sys.path[:0] = [str(DIRECTORY), str(HERE)]

import hardware  # noqa: E402
from src import grafana, variables  # noqa: E402

# Metrics that need hardware counters, which a virtual machine may lack.
HARDWARE = re.compile(
    r"perf_(cpu|cgroup)_(cycles|instructions|cache_references|cache_misses|branches|branch_misses)_total|perf_pmu_\w+|perf_event_running_ratio"
)
# Metrics and selectors that have data only in case of a problem.
HEALTHY = {
    "perf_dropped_hits_total",
    "perf_exporter_http_connections_aborted_total",
    "perf_exporter_push_bytes_total",
    "perf_exporter_push_duration_seconds",
    "perf_frames_without_line_total",
    "perf_series_aggregated_total",
    "perf_tracepoint_block_errors_total",
    # Selectors that keep only problems.
    'by="throttled"',
    "perf_exporter_config_last_reload_successful",
    "perf_exporter_detail_reduced",
    'state=~"never_ran|stalled|implausible|full"',
}
# Metrics of presets that the exporter of this test does not have.
PRESETS = re.compile(
    r"perf_(tracepoint|cgroup)_(lock_waits?|kmalloc|kmalloc_bytes|pages_allocated|pages_fragmented|direct_reclaim|memcg_reclaim|compaction"
    r"|kswapd_wakes|oom_kills|ext4_fsync|jbd2_commit|xfs_\w+|tcp_\w+|kvm_exit)_(seconds|total)"
)
METRIC = re.compile(r"\bperf_[a-z0-9_]+|\bprocess_[a-z_]+")
# Suffixes of a histogram's series.
SERIES = re.compile(r"_(bucket|sum|count)$")
# Variables of Grafana itself. Variables in links to other dashboards and pages are not part of queries.
BUILT_IN = {"__rate_interval", "__interval", "__range"}
# Messages that are printed in any case.
said = []
# Seconds of the rate window, and of the displayed range.
RATE, SHOWN = 20, 40


def dashboards():
    for file in sorted(DIRECTORY.glob("*.json")):
        yield file.name, json.loads(file.read_text(encoding="utf-8"))


def queries_of(dashboard):
    """Yields (position, query, whether it is an instant query)."""
    for panel in grafana.panels(dashboard):
        for target in panel.get("targets", []):
            if grafana.is_prometheus(target):
                yield f"{panel['title']}, {target['refId']}", target["expr"], target["instant"]
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"], False


def metrics_of(query):
    """Returns the metrics in a query, without label names and label values."""
    labels = set(variables.OTLP_LABELS.values())
    bare = re.sub(r'=~?"[^"]*"', "", query)
    return {name for name in METRIC.findall(bare) if name not in labels}


def overlaps(panels):
    taken = {}
    for panel in panels:
        at = panel["gridPos"]
        if at["x"] + at["w"] > 24:
            yield f"{panel['title']} is wider than the dashboard"
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in taken:
                    yield f"{panel['title']} covers {taken[x, y]}"
                    return
                taken[x, y] = panel["title"]


def wrong_in(dashboard, known):
    every = list(grafana.panels(dashboard))
    ids = [panel["id"] for panel in every]
    if len(set(ids)) != len(ids):
        yield "two panels have the same id"
    yield from overlaps(dashboard["panels"])
    for panel in every:
        title = panel.get("title")
        if not title:
            yield f"panel {panel['id']} has no title"
        yield from overlaps(panel.get("panels", []))
        if panel["type"] == "row":
            continue
        if len(panel.get("description", "")) < 10:
            yield f"{title} has no description"
        defaults = panel["fieldConfig"]["defaults"]
        if not defaults.get("unit"):
            yield f"{title} has no unit"
        if not defaults.get("thresholds", {}).get("steps"):
            yield f"{title} has no thresholds"
        limits = [step["value"] for step in defaults["thresholds"]["steps"][1:]]
        if limits != sorted(limits):
            yield f"{title} has thresholds out of order"
        if len({target["refId"] for target in panel["targets"]}) != len(panel["targets"]):
            yield f"{title} has two queries of the same name"
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    if len(set(names)) != len(names):
        yield "two variables have the same name"
    # The order matters for a variable that uses another one.
    for at, variable in enumerate(dashboard["templating"]["list"]):
        if not variable.get("description"):
            yield f"variable {variable['name']} has no description"
        if variable["type"] == "query":
            for first, second in grafana.VARIABLE.findall(variable["query"]["query"]):
                if (first or second) not in names[:at] and not (first or second).isdigit():
                    yield f"variable {variable['name']} uses {first or second}, which is not defined before it"
    used = json.dumps(dashboard)
    for name in names:
        # Links pass the first two variables on to the other dashboards.
        if name not in ("datasource", "names") and not re.search(rf"\$\{{?{name}\b", used):
            yield f"nothing uses the variable {name}"
    for where, query, _ in queries_of(dashboard):
        for first, second in grafana.VARIABLE.findall(query):
            name = first or second
            if name not in names and name not in BUILT_IN and not name.isdigit():
                yield f"{where}: there is no variable {name}"
        if "@node" in query or "@cgroups" in query:
            yield f"{where}: an unexpanded short form"
        for metric in metrics_of(query):
            if metric not in known and SERIES.sub("", metric) not in known:
                yield f"{where}: the exporter has no metric {metric}"


def static(names):
    known = set(METRIC.findall(pathlib.Path(names).read_text(encoding="utf-8", errors="replace")))
    wrong = [f"{file}: {what}" for file, dashboard in dashboards() for what in wrong_in(dashboard, known)]
    uids = [dashboard["uid"] for _, dashboard in dashboards()]
    if len(set(uids)) != len(uids):
        wrong.append("two dashboards have the same uid")
    # Links between the dashboards must lead to existing dashboards.
    for file, dashboard in dashboards():
        wrong += [
            f"{file}: there is no dashboard {uid}"
            for uid in re.findall(r"/d/([\w-]+)", json.dumps(dashboard))
            if uid not in uids
        ]
    renamed = hardware.otlp_labels()
    wrong += [
        f"docs/otlp.md calls the label {label} {renamed.get(label)}, the dashboards {name}"
        for label, name in variables.OTLP_LABELS.items()
        if renamed.get(label) != name
    ]
    return wrong


def has_data(prometheus, query, instant, values, now):
    # `or vector(0)` always has data, so only the expression before it is evaluated.
    query = grafana.replaced(query.replace(" or vector(0)", ""), values)
    series = prometheus.now(query, now) if instant else prometheus.over(query, now - SHOWN, now, 5)
    return any(grafana.is_number(value) for _, points in series for _, value in points)


def may_be_absent(query):
    named = {SERIES.sub("", metric) for metric in metrics_of(query)}
    return any(HARDWARE.fullmatch(metric) or PRESETS.fullmatch(metric) or metric in HEALTHY for metric in named) or any(
        selector in query for selector in HEALTHY if "=" in selector
    )


def is_native(query):
    """Reports whether it is the second query of a heat map, which has data only with native histograms."""
    return query.startswith("sum(increase(")


def asked(prometheus, wanted, chosen, now, told):
    """Runs the queries of the dashboards that `wanted` selects. Yields those without data or with an error."""
    for file, dashboard in dashboards():
        empty = []
        values = grafana.values_of(dashboard, chosen, prometheus, now, SHOWN, RATE, empty)
        yield from ((file, f"variable {name}", "", None) for name in empty if wanted(None))
        for where, query, instant in queries_of(dashboard):
            if not wanted(query):
                continue
            told.append(query)
            try:
                if not has_data(prometheus, query, instant, values, now):
                    yield file, where, query, "no data"
            except ValueError as error:
                yield file, where, query, str(error)


def queries(url):
    """Runs queries on the real exporter. Those that a machine without a PMU cannot answer use the recorded series."""
    prometheus, now, wrong = grafana.Prometheus(url), time.time(), []
    for names, real, recorded in [("prometheus", "node-1", "recorded-.*"), ("otlp", "otlp-1", "otlp-recorded-.*")]:
        told, absent = [], []
        for file, where, query, reason in asked(
            prometheus,
            lambda query: not query or not is_native(query),
            {"names": names, "instance": real, "group": "cgroup"},
            now,
            told,
        ):
            if reason in (None, "no data") and query and may_be_absent(query):
                absent.append(query)
            # Hosts without Kubernetes have no namespaces and pods, and targets have no cluster unless a user adds the label.
            elif query or where not in ("variable cluster", "variable namespace", "variable pod"):
                wrong.append(f"{names}: {file}: {where}: {reason or 'no value'}: {' '.join(query.split())}")
        for group in variables.GROUPS:
            chosen = {"names": names, "instance": recorded, "group": group}
            for file, where, query, reason in asked(prometheus, lambda query: query in absent, chosen, now, []):
                wrong.append(f"{names}, by {group}: {file}: {where}: {reason}: {' '.join(query.split())}")
        said.append(
            f"{names}: {len(told)} queries, {len(told) - len(absent)} with data of this machine, {len(absent)} with recorded series"
        )
        if len(absent) > len(told) / 3:
            wrong.append(f"{names}: {len(absent)} of {len(told)} queries have no data of this machine")
    return wrong


def native(url):
    prometheus, now, told = grafana.Prometheus(url), time.time(), []

    def wanted(query):
        if not query or "push_duration" in query or "http_request" in query:
            return False  # histograms for which the exporter has no native buckets
        if any(PRESETS.fullmatch(SERIES.sub("", metric)) for metric in metrics_of(query)):
            return False
        if "label_replace" in query and not keeps:
            left_out.append(query)
            return False
        # The first query of a heat map is for classic buckets.
        return is_native(query) or ("_bucket" in query and not query.startswith("sum by (le) (increase("))

    # Prometheus 2.42 converts it to a zero.
    kept = prometheus.now('histogram_count(label_replace(perf_exporter_collect_duration_seconds, "x", "y", "", ""))', now)
    keeps, left_out = bool(kept), []
    chosen = {"instance": "node-1", "group": "cgroup"}
    wrong = [
        f"{file}: {where}: {reason}: {' '.join(query.split())}"
        for file, where, query, reason in asked(prometheus, wanted, chosen, now, told)
    ]
    said.append(f"native histograms: {len(told)} queries")
    if left_out:
        said.append("  not asked are those by pod: label_replace of this version of Prometheus loses native histograms")
    if sum(map(is_native, told)) < 4:
        wrong.append("fewer than 4 heat maps were tested")
    return wrong


def pages(address):
    """Requests the pages of the exporter that the dashboards link to."""
    every = {
        url
        for _, dashboard in dashboards()
        for url in re.findall(r'"\$\{exporters\}\$\{__data.fields.Address\}([^"]+)"', json.dumps(dashboard))
    }
    values = {"profile": "cpu", "__value": "%2F"}
    wrong = [] if len(every) >= 8 else ["there are fewer links to the exporter than there were"]
    for url in sorted(every):
        path = re.sub(r"\$\{(\w+)[^}]*\}", lambda found: values[found[1]], url).replace("seconds=10", "seconds=1")
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=30):
                pass
        except OSError as error:
            wrong.append(f"{path}: {error}")
    said.append(f"{len(every)} links to pages of the exporter")
    return wrong


ENUM = re.compile(r"(export )?declare (?:const )?enum (\w+) \{(.*?)\}", re.S)
# Kinds of panels that have their own types.
KINDS = ("bargauge", "heatmap", "stat", "table", "timeseries")
# Fields that the Prometheus data source adds to an annotation.
OF_PROMETHEUS = {"expr", "step", "titleFormat", "textFormat", "useValueForTime"}


def literals(declaration):
    """Replaces an enum by a union of strings, because TypeScript does not accept a string as an enum member."""
    members = re.sub(r"/\*.*?\*/", "", declaration[3], flags=re.S)
    values = re.findall(r"= *([^,\s]+)", members)
    return f"{declaration[1] or ''}type {declaration[2]} = {' | '.join(values)};"


def typescript(directory):
    """Writes check.ts into the directory, with a copy of the types in schema/."""
    directory = pathlib.Path(directory)
    types = directory / "schema"
    for file in (directory / "node_modules/@grafana/schema/dist/esm").rglob("*.d.*ts"):
        copy = types / file.relative_to(directory / "node_modules/@grafana/schema/dist/esm")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(ENUM.sub(literals, file.read_text(encoding="utf-8")), encoding="utf-8")
    if not list(types.glob("raw/dashboard/x/dashboard_types.gen.d.ts")):
        return ["@grafana/schema has no types of dashboards where they were"]
    program = ['import { Dashboard } from "./schema/raw/dashboard/x/dashboard_types.gen";']
    for kind in KINDS:
        (file,) = types.glob(f"raw/composable/{kind}/panelcfg/x/*_types.gen.d.ts")
        program.append(f'import * as {kind} from "./{file.relative_to(directory).as_posix().removesuffix(".d.ts")}";')
    # A kind without its own field options gets an empty type.
    program.append("namespace stat_ { export type FieldConfig = {}; }\nnamespace bargauge_ { export type FieldConfig = {}; }")
    checked = 0
    for at, (file, dashboard) in enumerate(dashboards()):
        for panel in grafana.panels(dashboard):
            if panel["type"] not in KINDS:
                continue
            name, kind = f"_{at}_{panel['id']}", panel["type"]
            fields = f"{kind}_" if kind in ("stat", "bargauge") else kind
            custom = panel["fieldConfig"]["defaults"].get("custom", {})
            program.append(f"// {file}: {panel['title']}")
            program.append(f"export const options{name}: Partial<{kind}.Options> = {json.dumps(panel['options'])};")
            program.append(f"export const fields{name}: Partial<{fields}.FieldConfig> = {json.dumps(custom)};")
            checked += 1
        for annotation in dashboard["annotations"]["list"]:
            for key in OF_PROMETHEUS:
                annotation.pop(key)
        program.append(f"export const dashboard_{at}: Dashboard = {json.dumps(dashboard)};")
    (directory / "check.ts").write_text("\n".join(program) + "\n", encoding="utf-8")
    settings = {
        "compilerOptions": {
            "strict": True,
            "noEmit": True,
            "skipLibCheck": True,
            "types": [],
            "lib": ["es2022", "dom"],
            "module": "esnext",
            "moduleResolution": "bundler",
            "paths": {"@grafana/schema": ["./schema/index.d.mts"]},
        },
        "files": ["check.ts"],
    }
    (directory / "tsconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    said.append(f"types of {checked} panels")
    return []


def main(arguments):
    commands = {"static": static, "queries": queries, "native": native, "typescript": typescript, "pages": pages}
    if len(arguments) != 2 or arguments[0] not in commands:
        sys.exit(__doc__.strip())
    # A shared machine may miss scrapes, so the check is repeated. Data that the exporter does not have is missing later as well.
    for pause in [10, 15, None] if arguments[0] in ("queries", "native") else [None]:
        said.clear()
        wrong = commands[arguments[0]](arguments[1])
        if not wrong or not pause:
            break
        time.sleep(pause)
    for one in said:
        print(one)
    for one in wrong:
        print(one)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""panel_data.py PROMETHEUS FILE

Runs the queries of all panels as Grafana does, and writes the results to a file: `selections` (scraped metrics, OTLP), each with the values
of all variables and the results of each panel, and `words`, all words in the exporter's sources that can be label values. The check in the
directory grafana makes data frames of the results.
"""

import json
import pathlib
import re
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
DIRECTORY = TOP / "dashboards"
sys.path.insert(0, str(DIRECTORY))

from src import grafana  # noqa: E402

# Seconds of the rate window, of the displayed range, and between two values.
RATE, SHOWN, STEP = 20, 60, 5
SCRAPED = {"names": "prometheus", "instance": "node-1|recorded-.*"}
# The selections: a name, values of variables, for the running exporter and the recorded series, and the files.
SELECTIONS = [
    ("scraped", SCRAPED, "*"),
    ("otlp", {"names": "otlp", "instance": "otlp-1|otlp-recorded-.*"}, "*"),
    ("waits", {**SCRAPED, "profile": "off_cpu"}, "profiles"),
]


def result(prometheus, target, values, now):
    query = grafana.replaced(target["expr"], values)
    if target["instant"]:
        found = prometheus.get("query", query=query, time=now)
    else:
        found = prometheus.get("query_range", query=query, start=now - SHOWN, end=now, step=STEP)
    series = found["result"] if found["resultType"] in ("matrix", "vector") else [{"metric": {}, "value": found["result"]}]
    for one in series:
        one["legend"] = grafana.legend(target, one["metric"], values)
    return {"refId": target["refId"], "format": target["format"], "instant": target["instant"], "series": series}


def selection(name, chosen, files, prometheus, now):
    dashboards = {}
    for file in sorted(DIRECTORY.glob(f"{files}.json")):
        dashboard = json.loads(file.read_text(encoding="utf-8"))
        values = grafana.values_of(dashboard, chosen, prometheus, now, SHOWN, RATE)
        results = {
            panel["id"]: [
                result(prometheus, target, values, now) for target in panel.get("targets", []) if grafana.is_prometheus(target)
            ]
            for panel in grafana.panels(dashboard)
        }
        dashboards[file.stem] = {"values": values, "results": results}
    return {"name": name, "from": (now - SHOWN) * 1000, "to": now * 1000, "dashboards": dashboards}


def words():
    """Returns all words in quotation marks of the exporter's sources."""
    found = set()
    for file in (TOP / "src").rglob("*.rs"):
        found.update(re.findall(r'"([a-z]\w*)"', file.read_text(encoding="utf-8")))
    return sorted(found)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__.strip())
    prometheus, now = grafana.Prometheus(arguments[0]), time.time()
    data = {"selections": [selection(*one, prometheus, now) for one in SELECTIONS], "words": words()}
    pathlib.Path(arguments[1]).write_text(json.dumps(data), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The parts of Grafana that checks and pictures need: evaluates variables, expands queries, and sends them to Prometheus."""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request

VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)")


class Prometheus:
    def __init__(self, url):
        self.url = url.rstrip("/") + "/api/v1/"

    def get(self, path, **parameters):
        body = urllib.parse.urlencode(parameters, doseq=True).encode()
        request = self.url + path + "?" + body.decode() if path.startswith("label/") else self.url + path
        try:
            with urllib.request.urlopen(request, None if path.startswith("label/") else body, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from None

    def now(self, query, at):
        """Returns (labels, [(time, value)]) for each series, or for a scalar."""
        data = self.get("query", query=query, time=at)
        if data["resultType"] == "scalar":
            return [({}, [tuple(data["result"])])]
        return [(one["metric"], [one["value"]] if "value" in one else [(at, "1")]) for one in data["result"]]

    def over(self, query, begin, end, step):
        data = self.get("query_range", query=query, start=begin, end=end, step=step)
        return [
            (one["metric"], one.get("values") or [(at, one_native["count"]) for at, one_native in one.get("histograms", [])])
            for one in data["result"]
        ]


def panels(dashboard):
    """Yields every panel, including those in collapsed rows."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def is_prometheus(target):
    return target["datasource"]["type"] == "prometheus"


def replaced(text, values):
    """Replaces variables. Like Grafana, it keeps unknown names, such as $1 of label_replace."""
    return VARIABLE.sub(lambda found: str(values.get(found[1] or found[2], found[0])), text)


def answers(variable, values, prometheus, at):
    """Returns the possible values of a query variable."""
    query = replaced(variable["query"]["query"], values)
    if query.startswith("query_result("):
        series = prometheus.now(query[len("query_result(") : -1], at)
        found = ["{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}" for labels, _ in series]
    else:
        metric, label = re.fullmatch(r"label_values\((.+),\s*(\w+)\)", query, re.S).groups()
        found = prometheus.get(f"label/{label}/values", **{"match[]": metric, "start": at - 300, "end": at})
    if variable["regex"]:
        pattern = re.compile(variable["regex"].strip("/"))
        found = [match[1] for match in map(pattern.search, found) if match]
    return found


def values_of(dashboard, chosen, prometheus, at, range_seconds, rate_seconds, empty=None):
    """Returns the values of all variables: from `chosen`, otherwise the defaults of the dashboard. Names of variables without
    a value in Prometheus are added to `empty`."""
    values = {
        "__rate_interval": f"{rate_seconds}s",
        "__interval": f"{max(rate_seconds // 4, 1)}s",
        "__range": f"{range_seconds}s",
    }
    for variable in dashboard["templating"]["list"]:
        name, kind = variable["name"], variable["type"]
        if kind == "query":
            found = answers(variable, values, prometheus, at)
            if not found and empty is not None:
                empty.append(name)
            values[name] = variable["allValue"] if variable["includeAll"] else (found or [""])[0]
        elif kind == "datasource":
            values[name] = "data-source"
        else:
            values[name] = variable["current"]["value"]
        if name in chosen:
            values[name] = chosen[name]
    return values


def is_number(value):
    return not math.isnan(float(value))


def legend(target, labels, values):
    """Returns the legend of a series, as Grafana formats it."""
    text = target.get("legendFormat", "__auto")
    if text == "__auto":
        shown = {name: value for name, value in labels.items() if name != "__name__"}
        return ", ".join(f"{name}={value}" for name, value in shown.items()) or labels.get("__name__", target["expr"])
    text = re.sub(r"\{\{\s*(.+?)\s*\}\}", lambda found: labels.get(found[1], ""), replaced(text, values))
    return " ".join(text.split())

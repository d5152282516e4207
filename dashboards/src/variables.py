"""The variables at the top of the dashboards, and hidden variables for queries.

Metrics have the same names whether Prometheus scrapes them or an OpenTelemetry Collector exports them. Some labels do not
(docs/otlp.md). The visible variable `names` selects the source, and hidden variables contain the name of each label. They query
Prometheus, because Grafana cannot map one value to another.
"""

from . import queries

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Labels whose names differ with OTLP. A test compares this with docs/otlp.md.
OTLP_LABELS = {
    "by_cgroup": "perf_by_cgroup",
    "cgroup": "perf_cgroup",
    "comm": "perf_comm",
    "container": "k8s_container_name",
    "cpu": "cpu_logical_number",
    "errno": "error_type",
    "function": "code_function_name",
    "namespace": "k8s_namespace_name",
    "pod": "k8s_pod_name",
}

# Options of "Group by": the displayed label, and additional labels that distinguish series.
GROUPS = {
    "pod": ("pod", ["instance", "namespace"]),
    "container": ("container", ["instance", "namespace", "pod"]),
    "cgroup": ("cgroup", ["instance"]),
    "namespace": ("namespace", ["cluster"]),
    "service": ("service", ["namespace"]),
}

# Metrics of cgroups of which at least one exists in every configuration, for lists of namespaces, pods and cgroups.
OF_CGROUPS = '__name__=~"perf_cgroup_(task_clock_seconds|context_switches|sched_run_seconds)_total"'


def datasource():
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "description": "Prometheus (or Mimir, Thanos) with the metrics.",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


def chosen(name, label, options, description, default=0):
    """A custom variable with pairs of displayed text and value."""
    every = [{"selected": at == default, "text": text, "value": value} for at, (text, value) in enumerate(options)]
    return {
        "name": name,
        "label": label,
        "type": "custom",
        "query": ", ".join(f"{text} : {value}" for text, value in options),
        "description": description,
        "current": every[default],
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": every,
        "skipUrlSync": False,
    }


def asked(name, label, query, description, regex="", hide=0, several=True, sort=1):
    """A query variable with values from Prometheus."""
    variable = {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": f"variable-{name}"},
        "description": description,
        "hide": hide,
        "includeAll": several,
        "multi": several,
        "options": [],
        "refresh": 2 if several else 1,
        "regex": regex,
        "skipUrlSync": False,
        "sort": sort if several else 0,
    }
    if several:
        variable["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
        # Also matches series without the label: hosts without containers have no pods.
        variable["allValue"] = ".*"
    return variable


def text(name, label, default, description):
    return {
        "name": name,
        "label": label,
        "type": "textbox",
        "query": default,
        "description": description,
        "current": {"selected": True, "text": default, "value": default},
        "hide": 0,
        "options": [{"selected": True, "text": default, "value": default}],
        "skipUrlSync": False,
    }


def looked_up(name, key, table, description):
    """A hidden variable: the value in `table` for the value of `key`."""
    rows = "".join(f"{one}={value};" for one, value in table.items())
    query = (
        f'query_result(label_replace(label_replace(vector(0), "table", "{rows}", "", ""), '
        f'"value", "$2", "table", "(.*;)?{key}=([^;]*);.*"))'
    )
    variable = asked(name, name, query, description, regex='/value="([^"]*)"/', hide=2, several=False)
    first = next(iter(table.values()))
    variable["current"] = {"selected": True, "text": first, "value": first}
    return variable


def names():
    return chosen(
        "names",
        "Labels",
        [("Prometheus", "prometheus"), ("OTLP", "otlp")],
        "Source of the metrics: scraped by Prometheus, or pushed by OTLP. With OTLP, some labels have other names.",
    )


def label(name):
    table = {"prometheus": name, "otlp": OTLP_LABELS[name]}
    return looked_up(f"{name}_label", "$names", table, f"Name of the label {name}.")


def cluster():
    return asked(
        "cluster", "Cluster", "label_values(perf_exporter_build_info, cluster)", "The label cluster, if your targets have it."
    )


def instance():
    return asked(
        "instance",
        "Node",
        'label_values(perf_exporter_build_info{cluster=~"$cluster"}, instance)',
        "The label instance. On Kubernetes, the name of the node.",
    )


def of_cgroups(name, title, description, *narrower):
    within = ",".join([OF_CGROUPS, queries.NODE, *(f'${other}_label=~"${other}"' for other in narrower)])
    return asked(name, title, f"label_values({{{within}}}, ${name}_label)", description)


def group(default="pod"):
    offered = list(GROUPS)
    return chosen(
        "group",
        "Group by",
        [(one.capitalize(), one) for one in offered],
        "Grouping of series. Cgroups without a pod, container, namespace or service are shown by cgroup.",
        offered.index(default),
    )


def group_label():
    table = {
        f"{source}/{key}": OTLP_LABELS.get(shown, shown) if source == "otlp" else shown
        for source in ("prometheus", "otlp")
        for key, (shown, _) in GROUPS.items()
    }
    return looked_up("group_label", "$names/$group", table, "Label shown for Group by.")


def by():
    table = {
        f"{source}/{key}": ",".join(OTLP_LABELS.get(one, one) if source == "otlp" else one for one in kept)
        for source in ("prometheus", "otlp")
        for key, (_, kept) in GROUPS.items()
    }
    return looked_up("by", "$names/$group", table, "Additional labels that distinguish series.")


def shown_at_most():
    return chosen(
        "top",
        "Show",
        [(str(number), str(number)) for number in (5, 10, 20, 50)],
        "Number of series per panel: the largest over the time range.",
        1,
    )


def common(used, with_cgroups, *more):
    """The variables of a dashboard. A variable may only use previous ones, so hidden variables are in between."""
    needed = {name for name in OTLP_LABELS if f"${name}_label" in used}
    if with_cgroups:
        needed |= {"namespace", "pod", "cgroup"}
    variables = [datasource(), names(), *(label(name) for name in sorted(needed)), cluster(), instance()]
    if with_cgroups:
        variables += [
            of_cgroups("namespace", "Namespace", "Kubernetes only. Absent outside of pods."),
            of_cgroups("pod", "Pod", "Kubernetes only. Absent outside of pods.", "namespace"),
            of_cgroups(
                "cgroup", "Cgroup", "Path of the cgroup of a container or of a systemd service.", "namespace", "pod"
            ),
        ]
    if "$by" in used:
        variables += [group(), group_label(), by()]
    if "$top" in used:
        variables.append(shown_at_most())
    return variables + list(more)

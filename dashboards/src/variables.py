"""The variables at the top of the dashboards, and the hidden ones that queries need.

A metric has the same name whether Prometheus scrapes it or an OpenTelemetry Collector hands it on; some labels have not
(docs/otlp.md). The visible variable `names` says which it is, and hidden ones hold the label's name of each: they ask
Prometheus, for Grafana itself cannot look one thing up by another.
"""

from . import queries

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Labels that are called otherwise when they came by OTLP. The test holds this against docs/otlp.md.
OTLP_LABELS = {
    "by_cgroup": "perf_by_cgroup",
    "cgroup": "perf_cgroup",
    "comm": "process_executable_name",
    "container": "k8s_container_name",
    "cpu": "cpu_logical_number",
    "errno": "error_type",
    "function": "code_function_name",
    "namespace": "k8s_namespace_name",
    "pod": "k8s_pod_name",
}

# What "Group by" offers: the label that is shown, and those that keep series apart beside it.
GROUPS = {
    "pod": ("pod", ["instance", "namespace"]),
    "container": ("container", ["instance", "namespace", "pod"]),
    "cgroup": ("cgroup", ["instance"]),
    "namespace": ("namespace", ["cluster"]),
    "service": ("service", ["namespace"]),
}

# A metric of cgroups that is there whatever is counted, for lists of namespaces, pods and cgroups.
OF_CGROUPS = '__name__=~"perf_cgroup_(task_clock_seconds|context_switches|sched_run_seconds)_total"'


def datasource():
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "description": "The Prometheus (or Mimir, Thanos) that has the metrics.",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


def chosen(name, label, options, description, default=0):
    """One of a few: pairs of what is shown and what it stands for."""
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
    """What Prometheus answers."""
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
        # Of every value, also of series that lack the label: hosts without containers have no pods.
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
    """A hidden variable: the value in the table of what the key comes to."""
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
        "How the metrics came: scraped by Prometheus, or pushed by OTLP, where some labels have other names.",
    )


def label(name):
    table = {"prometheus": name, "otlp": OTLP_LABELS[name]}
    return looked_up(f"{name}_label", "$names", table, f"What the label {name} is called.")


def cluster():
    return asked(
        "cluster", "Cluster", "label_values(perf_exporter_build_info, cluster)", "The label cluster, if your targets have one."
    )


def instance():
    return asked(
        "instance",
        "Node",
        'label_values(perf_exporter_build_info{cluster=~"$cluster"}, instance)',
        "The label instance: on Kubernetes the name of the node.",
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
        "What makes a series. What has no pod, container, namespace or service is shown by its cgroup.",
        offered.index(default),
    )


def group_label():
    table = {
        f"{source}/{key}": OTLP_LABELS.get(shown, shown) if source == "otlp" else shown
        for source in ("prometheus", "otlp")
        for key, (shown, _) in GROUPS.items()
    }
    return looked_up("group_label", "$names/$group", table, "The label that is shown for Group by.")


def by():
    table = {
        f"{source}/{key}": ",".join(OTLP_LABELS.get(one, one) if source == "otlp" else one for one in kept)
        for source in ("prometheus", "otlp")
        for key, (_, kept) in GROUPS.items()
    }
    return looked_up("by", "$names/$group", table, "The labels beside it that keep series apart.")


def shown_at_most():
    return chosen(
        "top",
        "Show",
        [(str(number), str(number)) for number in (5, 10, 20, 50)],
        "How many series a panel shows: those that are the largest over the whole time.",
        1,
    )


def common(used, with_cgroups, *more):
    """The variables of a dashboard. A variable may only use those before it, which is why hidden ones stand in between."""
    needed = {name for name in OTLP_LABELS if f"${name}_label" in used}
    if with_cgroups:
        needed |= {"namespace", "pod", "cgroup"}
    variables = [datasource(), names(), *(label(name) for name in sorted(needed)), cluster(), instance()]
    if with_cgroups:
        variables += [
            of_cgroups("namespace", "Namespace", "Of Kubernetes; absent for what runs outside of pods."),
            of_cgroups("pod", "Pod", "Of Kubernetes; absent for what runs outside of pods.", "namespace"),
            of_cgroups(
                "cgroup", "Cgroup", "The path of the cgroup: of a container, or of a service of systemd.", "namespace", "pod"
            ),
        ]
    if "$by" in used:
        variables += [group(), group_label(), by()]
    if "$top" in used:
        variables.append(shown_at_most())
    return variables + list(more)

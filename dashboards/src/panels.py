"""Grafana panels with common properties: a title, a description, a unit and thresholds.

A dashboard is a list of rows, and a row is a list of panels. `dashboard` places panels from left to right.
"""

import json

from . import queries, variables

DATASOURCE = variables.DATASOURCE

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = "green", "yellow", "orange", "red", "blue", "purple", "text"

# Links between these dashboards keep the time range and all variables.
TAG = "perf-exporter"


def steps(*limits, base=GREEN):
    """Thresholds: a base color, and pairs (value, color) for the values from which on the color changes."""
    return {
        "mode": "absolute",
        "steps": [{"color": base, "value": None}, *({"color": color, "value": at} for at, color in limits)],
    }


NEUTRAL = steps(base=BLUE)


def query(expr, legend="", ref="A", instant=False, form="time_series"):
    target = {
        "refId": ref,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": queries.expand(expr),
        "format": form,
        "instant": instant,
        "range": not instant,
        "legendFormat": legend or "__auto",
    }
    return target


def letters():
    return iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def panel(kind, title, description, targets, unit, thresholds, width, height, **options):
    defaults = {
        "color": {"mode": "palette-classic"},
        "mappings": [],
        "thresholds": thresholds or NEUTRAL,
        "unit": unit,
    }
    defaults.update(options.pop("defaults", {}))
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": options.pop("overrides", [])},
        "gridPos": {"w": width, "h": height},
        "targets": targets,
        **options,
    }


def lines(
    title,
    description,
    expr,
    legend="",
    unit="short",
    width=8,
    height=8,
    limits=None,
    stacked=False,
    least=None,
    most=None,
    log=False,
    more=(),
    colors=None,
    points=False,
    links=None,
):
    """A time series panel. `expr` is a query, `more` has further pairs of query and legend. Limits are drawn if given."""
    refs = letters()
    pairs = [(expr, legend), *more]
    custom = {
        "drawStyle": "points" if points else "line",
        "fillOpacity": 35 if stacked else 8,
        "gradientMode": "none",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "pointSize": 5,
        "showPoints": "never" if not points else "always",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
        "axisBorderShow": False,
        "axisCenteredZero": False,
        "axisLabel": "",
        "axisPlacement": "auto",
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
    }
    defaults = {"custom": custom}
    # A linear scale begins at zero, so that sizes can be compared. A logarithmic scale has no zero.
    if least is not None or not log:
        defaults["min"] = 0 if least is None else least
    if most is not None:
        defaults["max"] = most
    if links:
        defaults["links"] = links
    return panel(
        "timeseries",
        title,
        description,
        [query(one, name, next(refs)) for one, name in pairs],
        unit,
        limits,
        width,
        height,
        defaults=defaults,
        overrides=[color_of(name, color) for name, color in (colors or {}).items()],
        options={
            "legend": {"calcs": ["mean", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def color_of(name, color):
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"fixedColor": color, "mode": "fixed"}}],
    }


def number(
    title,
    description,
    expr,
    unit="short",
    limits=None,
    width=4,
    height=4,
    decimals=None,
    graph=True,
    legend="",
    zero=None,
    kept="lastNotNull",
):
    """A stat panel: one number, colored by its limits, with a sparkline."""
    defaults = {"color": {"mode": "thresholds"}}
    if decimals is not None:
        defaults["decimals"] = decimals
    if zero:
        defaults["mappings"] = [{"type": "special", "options": {"match": "null+nan", "result": {"text": zero}}}]
    return panel(
        "stat",
        title,
        description,
        [query(expr, legend)],
        unit,
        limits,
        width,
        height,
        defaults=defaults,
        options={
            "colorMode": "value",
            "graphMode": "area" if graph else "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": [kept], "fields": "", "values": False},
            "textMode": "auto",
            "wideLayout": True,
        },
    )


def bars(title, description, expr, legend="", unit="short", limits=None, width=8, height=8, most=None):
    """A bar gauge of the largest current values."""
    defaults = {"color": {"mode": "thresholds" if limits else "continuous-BlPu"}, "min": 0}
    if most is not None:
        defaults["max"] = most
    return panel(
        "bargauge",
        title,
        description,
        [query(expr, legend, instant=True)],
        unit,
        limits,
        width,
        height,
        defaults=defaults,
        options={
            "displayMode": "gradient",
            "minVizHeight": 10,
            "minVizWidth": 0,
            "namePlacement": "left",
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showUnfilled": True,
            "sizing": "auto",
            "valueMode": "color",
        },
    )


def heat(title, description, metric, unit="s", matchers="@node", width=24, height=9):
    """A heatmap of a histogram over time, from classic buckets, or from native histograms if Prometheus stores them."""
    increase = queries.selector(metric + "_bucket", matchers)
    native = queries.selector(metric, matchers)
    return panel(
        "heatmap",
        title,
        description,
        [
            query(f"sum by (le) (increase({increase}[{queries.RATE}]))", "{{le}}", "A", form="heatmap"),
            query(f"sum(increase({native}[{queries.RATE}]))", "", "B"),
        ],
        unit,
        None,
        width,
        height,
        defaults={
            "color": {"mode": "thresholds"},
            "custom": {
                "hideFrom": {"legend": False, "tooltip": False, "viz": False},
                "scaleDistribution": {"type": "linear"},
            },
        },
        maxDataPoints=120,
        options={
            "calculate": False,
            "cellGap": 0,
            "cellValues": {"unit": "short"},
            # An exponential scale, so that rare slow observations are visible next to many fast ones.
            "color": {
                "mode": "scheme",
                "scheme": "Spectral",
                "reverse": True,
                "exponent": 0.5,
                "fill": "dark-orange",
                "scale": "exponential",
                "steps": 64,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
        },
    )


# Pixels of a column of values. Labels, which are longer, get the remaining width.
VALUE_WIDTH = 110


def column(title, expr, unit="short", limits=None, width=VALUE_WIDTH, decimals=None, links=None):
    return {"title": title, "expr": expr, "unit": unit, "limits": limits, "width": width, "decimals": decimals, "links": links}


def table(title, description, columns, labels, sort, width=24, height=10, links=None, hidden=(), limits=None):
    """A table with one row per label set and one column per query. `labels` maps labels to headings, in order. `links` has
    data links for headings. `hidden` lists labels that are not shown."""
    refs = letters()
    names = {}
    targets, overrides = [], []
    for one in columns:
        ref = next(refs)
        targets.append(query(one["expr"], "", ref, instant=True, form="table"))
        names[f"Value #{ref}" if len(columns) > 1 else "Value"] = one["title"]
        # Only labels are worth a filter. Its icon would take the place of the heading.
        properties = [{"id": "unit", "value": one["unit"]}, {"id": "custom.filterable", "value": False}]
        if one["limits"]:
            properties += [
                {"id": "thresholds", "value": one["limits"]},
                {"id": "custom.cellOptions", "value": {"type": "color-text"}},
                {"id": "color", "value": {"mode": "thresholds"}},
            ]
        properties.append({"id": "custom.width", "value": one["width"]})
        if one["decimals"] is not None:
            properties.append({"id": "decimals", "value": one["decimals"]})
        if one["links"]:
            properties.append({"id": "links", "value": one["links"]})
        overrides.append({"matcher": {"id": "byName", "options": one["title"]}, "properties": properties})
    for name, given in (links or {}).items():
        overrides.append({"matcher": {"id": "byName", "options": name}, "properties": [{"id": "links", "value": given}]})
    renamed = {}
    for label, heading in labels.items():
        renamed[label] = heading
        if label in variables.OTLP_LABELS:
            renamed[variables.OTLP_LABELS[label]] = heading
    order = [*renamed, *names]
    excluded = {"Time": True, **{f"Time {at}": True for at in range(1, len(columns) + 1)}, **{label: True for label in hidden}}
    transformations = []
    if len(columns) > 1:
        transformations.append({"id": "merge", "options": {}})
    transformations.append(
        {
            "id": "organize",
            "options": {
                "excludeByName": excluded,
                "indexByName": {name: at for at, name in enumerate(order)},
                "renameByName": {**renamed, **names},
            },
        }
    )
    return panel(
        "table",
        title,
        description,
        targets,
        # Each column of values has its own unit. With another default, Grafana shows labels that look like numbers or times as such.
        "string",
        limits,
        width,
        height,
        defaults={
            "color": {"mode": "thresholds"},
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True, "inspect": False},
        },
        overrides=overrides,
        options={
            "cellHeight": "sm",
            "footer": {"show": False, "reducer": ["sum"], "countRows": False},
            "showHeader": True,
            "sortBy": [{"displayName": sort, "desc": True}],
        },
        transformations=transformations,
    )


def link(title, url, new_tab=False):
    return {"title": title, "url": url, "targetBlank": new_tab}


def row(title, *panels, collapsed=False):
    return {"title": title, "panels": list(panels), "collapsed": collapsed}


def placed(panels, top):
    """Places panels from left to right and top to bottom. All panels of a line must have the height of the first."""
    x = y = 0
    line = 0
    for one in panels:
        position = one["gridPos"]
        if x + position["w"] > 24:
            x, y = 0, y + line
        if x == 0:
            line = position["h"]
        if position["h"] != line:
            raise ValueError(f"{one['title']}: {position['h']} high, in a line that is {line}")
        one["gridPos"] = {"h": position["h"], "w": position["w"], "x": x, "y": top + y}
        x += position["w"]
    return top + y + line


def dashboard(uid, title, description, rows, with_cgroups=False, more_variables=(), refresh="30s", since="now-1h"):
    panels, number, top = [], 0, 0
    for one in rows:
        number += 1
        head = {
            "id": number,
            "type": "row",
            "title": one["title"],
            "collapsed": one["collapsed"],
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
            "panels": [],
        }
        panels.append(head)
        bottom = placed(one["panels"], top + 1)
        for each in one["panels"]:
            number += 1
            each["id"] = number
        if one["collapsed"]:
            # Grafana keeps the panels in the row, and runs no queries until the row is expanded.
            head["panels"] = one["panels"]
            top += 1
        else:
            panels += one["panels"]
            top = bottom
    used = json.dumps(panels)
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "timezone": "browser",
        "weekStart": "",
        "refresh": refresh,
        "time": {"from": since, "to": "now"},
        "timepicker": {},
        "links": [
            {
                "title": "perf-exporter",
                "type": "dashboards",
                "tags": [TAG],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "annotations": {
            "list": [
                {
                    "name": "Configuration loaded",
                    "datasource": DATASOURCE,
                    "enable": True,
                    "hide": False,
                    "iconColor": PURPLE,
                    # The value is the timestamp.
                    "expr": queries.expand("perf_exporter_config_last_reload_success_timestamp_seconds{@node} * 1000"),
                    "useValueForTime": True,
                    "step": "60s",
                    "titleFormat": "Configuration loaded",
                    "textFormat": "{{instance}}",
                },
                {
                    "name": "Anomalies",
                    "datasource": DATASOURCE,
                    "enable": True,
                    "hide": False,
                    "iconColor": RED,
                    "expr": queries.expand("perf_anomaly_active{@node} == 1"),
                    "useValueForTime": False,
                    "step": "60s",
                    "titleFormat": "Unusual {{kind}}",
                    "textFormat": "{{namespace}} {{pod}} {{container}} {{cgroup}} on {{instance}}",
                },
            ]
        },
        "templating": {"list": variables.common(used, with_cgroups, *more_variables)},
        "panels": panels,
    }

#!/usr/bin/env python3
"""render.py PROMETHEUS DIRECTORY [DASHBOARD...]

Draws a picture of each dashboard, DIRECTORY/NAME.png, with the results of its queries from a Prometheus. It is not Grafana: it
supports only the kinds of panels that these dashboards use.
Needs matplotlib from PyPI.
"""

import json
import math
import pathlib
import sys
import textwrap
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import matplotlib  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import LogNorm  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402
from PIL import Image  # noqa: E402

from src import grafana  # noqa: E402

SHOWN, STEP, RATE = 240, 4, 20
# Bytes of a picture.
LARGEST = 149_000
# Pixels of a column and of a line of the grid.
WIDE, HIGH, HEAD, DPI = 66, 28, 64, 100
PAGE, PANEL, INK, FAINT, GRID = "#111217", "#181b1f", "#d0d3da", "#8e929c", "#2c3036"
COLORS = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "orange": "#ff9830",
    "red": "#f2495c",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "text": "#8e929c",
}
PALETTE = [
    "#7eb26d",
    "#eab839",
    "#6ed0e0",
    "#ef843c",
    "#e24d42",
    "#1f78c1",
    "#ba43a9",
    "#705da0",
    "#508642",
    "#cca300",
    "#447ebc",
    "#c15c17",
]
SUFFIX = {"ops": "/s", "iops": " io/s", "reqps": " req/s", "Bps": "B/s", "hertz": "Hz", "watt": " W", "bytes": "B"}


def thousand(value, names=("", " k", " M", " G", " T"), base=1000.0):
    at = 0
    while abs(value) >= base and at < len(names) - 1:
        value, at = value / base, at + 1
    if 0 < abs(value) < 0.01:
        return f"{value:.1g}" if abs(value) >= 1e-5 else "~0"
    digits = 0 if value == int(value) and abs(value) < 1000 or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}{names[at]}"


def shown(value, unit, decimals=None):
    """A value as a person reads it."""
    value = float(value)
    if math.isnan(value):
        return "–"
    if unit == "percentunit":
        return f"{value * 100:.{1 if decimals is None else decimals}f} %"
    if unit in ("s", "ns"):
        value = value if unit == "s" else value / 1e9
        for limit, factor, name in [
            (1e-6, 1e9, "ns"),
            (1e-3, 1e6, "µs"),
            (1, 1e3, "ms"),
            (120, 1, "s"),
            (7200, 1 / 60, "min"),
            (math.inf, 1 / 3600, "h"),
        ]:
            if abs(value) < limit:
                return "0 s" if value == 0 else f"{value * factor:.3g} {name}"
    if unit == "dateTimeFromNow":
        return f"{max(time.time() - value / 1000, 0):.0f} s ago"
    if unit == "bytes":
        return thousand(value, (" B", " KiB", " MiB", " GiB"), 1024.0)
    if decimals is not None and unit in ("none", "short"):
        return f"{value:.{decimals}f}"
    text = thousand(value)
    suffix = SUFFIX.get(unit, "")
    return (
        text + suffix
        if suffix.startswith((" ", "/"))
        else text.replace(" ", " ") + (suffix if " " in text else " " + suffix)
        if suffix
        else text
    )


def color_at(value, thresholds):
    color = thresholds["steps"][0]["color"]
    for step in thresholds["steps"][1:]:
        if value >= step["value"]:
            color = step["color"]
    return COLORS[color]


class Picture:
    def __init__(self, name, prometheus):
        self.name = name
        self.dashboard = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
        self.prometheus = prometheus
        self.end = int(time.time()) - 4
        self.values = grafana.values_of(self.dashboard, {}, prometheus, self.end, SHOWN, RATE)
        panels = self.dashboard["panels"]
        self.lines = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        self.width, self.height = 24 * WIDE + 12, self.lines * HIGH + HEAD + 8
        self.figure = pyplot.figure(figsize=(self.width / DPI, self.height / DPI), dpi=DPI, facecolor=PAGE)

    def box(self, left, top, width, height):
        """Pixels from the upper left corner, as a part of the figure."""
        return [left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height]

    def write(self, left, top, text, size=9, color=INK, **more):
        self.figure.text(left / self.width, 1 - top / self.height, text, fontsize=size, color=color, va="top", **more)

    def axes(self, left, top, width, height):
        axes = self.figure.add_axes(self.box(left, top, width, height), facecolor=PANEL)
        axes.tick_params(colors=FAINT, labelsize=7, length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        return axes

    def query(self, target):
        text = grafana.replaced(target["expr"], self.values)
        if target["instant"]:
            return self.prometheus.now(text, self.end)
        return self.prometheus.over(text, self.end - SHOWN, self.end, STEP)

    def draw(self):
        self.write(14, 10, self.dashboard["title"], 14, weight="bold")
        hidden = {variable["name"] for variable in self.dashboard["templating"]["list"] if variable.get("hide")}
        chosen = []
        for variable in self.dashboard["templating"]["list"]:
            if variable["name"] in hidden or variable["type"] == "datasource":
                continue
            value = self.values[variable["name"]]
            texts = {option["value"]: option["text"] for option in variable["options"]}
            chosen.append(f"{variable['label']}: {'All' if value == '.*' else texts.get(value, value)}")
        self.write(14, 38, "     ".join(chosen), 8.5, FAINT)
        for panel in self.dashboard["panels"]:
            at = panel["gridPos"]
            left, top = at["x"] * WIDE + 6, at["y"] * HIGH + HEAD
            width, height = at["w"] * WIDE, at["h"] * HIGH
            if panel["type"] == "row":
                self.write(left + 6, top + 7, ("▸ " if panel["collapsed"] else "▾ ") + panel["title"], 10, weight="bold")
                continue
            self.figure.add_artist(
                Rectangle(
                    (0, 0), 1, 1, transform=self.figure.transFigure, facecolor=PANEL, edgecolor=GRID, linewidth=0.8, zorder=-1
                )
            ).set_bounds(*self.box(left + 3, top + 3, width - 6, height - 6))
            room = int((width - 16) / 6.6)
            self.write(left + 11, top + 9, textwrap.shorten(panel["title"], room, placeholder=" …"), 8.5)
            getattr(self, "draw_" + panel["type"])(panel, left, top, width, height)

    def nothing(self, left, top, width, height):
        self.write(left + width / 2, top + height / 2, "no data", 9, FAINT, ha="center")

    def draw_stat(self, panel, left, top, width, height):
        defaults = panel["fieldConfig"]["defaults"]
        series = [points for _, points in self.query(panel["targets"][0]) if points]
        numbers = [float(value) for _, value in series[0]] if series else []
        numbers = [number for number in numbers if not math.isnan(number)]
        if not numbers:
            text = next((one["options"]["result"]["text"] for one in defaults["mappings"]), "no data")
            self.write(left + width / 2, top + height / 2 - 8, text, 13, FAINT, ha="center")
            return
        color = color_at(numbers[-1], defaults["thresholds"])
        self.write(
            left + width / 2,
            top + 34,
            shown(numbers[-1], defaults["unit"], defaults.get("decimals")),
            18,
            color,
            ha="center",
            weight="bold",
        )
        if panel["options"]["graphMode"] == "area" and len(numbers) > 2:
            axes = self.axes(left + 5, top + height - 40, width - 10, 34)
            axes.axis("off")
            axes.fill_between(range(len(numbers)), numbers, min(0, *numbers), color=color, alpha=0.18, linewidth=0)
            axes.plot(numbers, color=color, linewidth=1)
            axes.margins(0, 0.1)

    def draw_timeseries(self, panel, left, top, width, height):
        defaults = panel["fieldConfig"]["defaults"]
        custom, unit = defaults["custom"], defaults["unit"]
        fixed = {
            one["matcher"]["options"]: one["properties"][0]["value"]["fixedColor"] for one in panel["fieldConfig"]["overrides"]
        }
        series = []
        for target in panel["targets"]:
            for labels, points in self.query(target):
                known = [(float(at) - self.end, float(value)) for at, value in points if grafana.is_number(value)]
                if known:
                    series.append((grafana.legend(target, labels, self.values), known))
        if not series:
            return self.nothing(left, top, width, height)
        series.sort(key=lambda one: -sum(value for _, value in one[1]) / len(one[1]))
        entries = min(len(series), 3)
        axes = self.axes(left + 62, top + 30, width - 76, height - 30 - 20 - 15 * entries - 8)
        colors = [COLORS[fixed[name]] if name in fixed else PALETTE[at % len(PALETTE)] for at, (name, _) in enumerate(series)]
        most = 0
        if custom["stacking"]["mode"] == "normal":
            times = sorted({at for _, known in series for at, _ in known})
            rows = [[dict(known).get(at, 0) for at in times] for _, known in series]
            axes.stackplot(times, rows, colors=colors, alpha=0.55, linewidth=0)
            most = max(map(sum, zip(*rows)))
        else:
            for (_, known), color in reversed(list(zip(series, colors))):
                axes.plot(*zip(*known), color=color, linewidth=1.2)
                most = max(most, max(value for _, value in known))
        if custom["scaleDistribution"]["type"] == "log" and min(value for _, known in series for _, value in known) > 0:
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        else:
            highest = defaults.get("max", max(most * 1.08, 1e-9))
            axes.set_ylim(0, highest)
            axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
        for step in defaults["thresholds"]["steps"][1:]:
            low, high = axes.get_ylim()
            if custom["thresholdsStyle"]["mode"] != "off" and low < step["value"] < high:
                axes.axhline(step["value"], color=COLORS[step["color"]], linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.8)
        axes.set_xlim(-SHOWN, 0)
        axes.set_xticks([-SHOWN, -SHOWN / 2, 0], [f"-{SHOWN // 60} min", f"-{SHOWN // 120} min", "now"])
        axes.yaxis.set_major_formatter(
            lambda value, _: shown(value, unit, 0 if unit == "percentunit" and axes.get_ylim()[1] > 0.05 else None)
        )
        for at in range(entries):
            name, known = series[at]
            if at == entries - 1 and len(series) > entries:
                name = f"{name}   and {len(series) - entries} more"
            line = top + height - 15 * (entries - at) - 6
            self.write(left + 14, line + 1, "▬", 7, colors[at])
            value = shown(known[-1][1], unit)
            room = int((width - 60) / 5.6) - len(value)
            self.write(left + 28, line, name if len(name) <= room else "…" + name[-room:], 7.5, INK)
            self.write(left + width - 14, line, value, 7.5, FAINT, ha="right")
        return None

    def draw_heatmap(self, panel, left, top, width, height):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        buckets = {}
        for labels, points in self.query(panel["targets"][0]):
            buckets[float(labels["le"])] = {float(at): float(value) for at, value in points}
        bounds = sorted(bound for bound in buckets if not math.isinf(bound))
        if not bounds:
            return self.nothing(left, top, width, height)
        times = sorted({at for of in buckets.values() for at in of})
        rows, before = [], dict.fromkeys(times, 0.0)
        for bound in bounds:
            row = {at: buckets[bound].get(at, 0.0) for at in times}
            rows.append([max(row[at] - before[at], 0) for at in times])
            before = row
        used = [at for at, row in enumerate(rows) if max(row) > 0.5]
        if not used:
            return self.nothing(left, top, width, height)
        first, last = used[0], used[-1]
        axes = self.axes(left + 62, top + 34, width - 150, height - 62)
        edges = [at - self.end for at in times] + [times[-1] - self.end + STEP]
        below = bounds[first - 1] if first else bounds[0] / 2
        mesh = axes.pcolormesh(
            edges,
            [below, *bounds[first : last + 1]],
            [[value if value > 0.5 else math.nan for value in row] for row in rows[first : last + 1]],
            norm=LogNorm(1, max(max(map(max, rows)), 10)),
            cmap="Spectral_r",
        )
        axes.set_yscale("log")
        axes.grid(False)
        axes.set_xlim(-SHOWN, 0)
        axes.set_xticks([-SHOWN, -SHOWN / 2, 0], [f"-{SHOWN // 60} min", f"-{SHOWN // 120} min", "now"])
        axes.yaxis.set_major_formatter(lambda value, _: shown(value, unit))
        axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        scale = self.figure.add_axes(self.box(left + width - 66, top + 38, 10, height - 72))
        bar = self.figure.colorbar(mesh, cax=scale)
        bar.outline.set_visible(False)
        scale.tick_params(colors=FAINT, labelsize=7, length=0)
        scale.yaxis.set_major_formatter(lambda value, _: thousand(value))
        scale.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        return None

    def draw_bargauge(self, panel, left, top, width, height):
        defaults = panel["fieldConfig"]["defaults"]
        target = panel["targets"][0]
        found = [(float(points[0][1]), grafana.legend(target, labels, self.values)) for labels, points in self.query(target)]
        found = sorted((one for one in found if not math.isnan(one[0])), reverse=True)[: int((height - 40) / 19)]
        if not found:
            return self.nothing(left, top, width, height)
        names = min(max(len(name) for _, name in found) * 6 + 10, width * 0.55)
        for at, (value, name) in enumerate(found):
            line = top + 34 + at * 19
            room = int(names / 5.6)
            self.write(left + 14, line + 2, name if len(name) <= room else "…" + name[-room:], 7.5)
            full = width - names - 100
            for part, color in [(1, GRID), (value / max(found[0][0], 1e-12), "#5794f2")]:
                self.figure.add_artist(
                    Rectangle((0, 0), 1, 1, transform=self.figure.transFigure, facecolor=color, linewidth=0)
                ).set_bounds(*self.box(left + names + 14, line + 1, full * part, 12))
            self.write(left + width - 14, line + 1, shown(value, defaults["unit"]), 7.5, INK, ha="right")
        return None

    def draw_table(self, panel, left, top, width, height):
        organize = panel["transformations"][-1]["options"]
        names, columns = organize["renameByName"], {}
        for one in panel["fieldConfig"]["overrides"]:
            columns.setdefault(one["matcher"]["options"], {}).update({each["id"]: each["value"] for each in one["properties"]})
        rows, labels_seen = {}, []
        for target in panel["targets"]:
            column = names["Value" if len(panel["targets"]) == 1 else f"Value #{target['refId']}"]
            for labels, points in self.query(target):
                kept = {name: value for name, value in labels.items() if name not in organize["excludeByName"]}
                labels_seen += [name for name in kept if name not in labels_seen]
                rows.setdefault(tuple(sorted(kept.items())), {})[column] = float(points[0][1])
        if not rows:
            return self.nothing(left, top, width, height)
        order = sorted(labels_seen, key=lambda name: organize["indexByName"].get(name, 99))
        values = [name for key, name in names.items() if key.startswith("Value")]
        sort = panel["options"]["sortBy"][0]["displayName"]
        table = [({names.get(name, name): value for name, value in key}, row) for key, row in rows.items()]
        table.sort(key=lambda one: -one[1].get(sort, 0) if sort in values else 0)
        heads = [names.get(name, name) for name in order]
        weights = {head: min(max(len(head), *(len(one[0].get(head, "")) for one in table)), 44) + 2 for head in heads}
        weights.update({head: max(len(head), 9) + 2 for head in values})
        unit_of = (width - 28) / sum(weights.values())
        x, starts = left + 14, {}
        for head in [*heads, *values]:
            starts[head] = x
            self.write(x, top + 32, head, 7.5, "#6e9fff", weight="bold")
            x += weights[head] * unit_of
        for at, (labels, row) in enumerate(table[: int((height - 60) / 18)]):
            line = top + 51 + at * 18
            for head in heads:
                text, room = labels.get(head, ""), int(weights[head] * unit_of / 5.6) - 1
                self.write(starts[head], line, text if len(text) <= room else "…" + text[-room:], 7.5)
            for head in values:
                if head in row and not math.isnan(row[head]):
                    limits = columns[head].get("thresholds")
                    color = color_at(row[head], limits) if limits else INK
                    self.write(
                        starts[head], line, shown(row[head], columns[head]["unit"], columns[head].get("decimals")), 7.5, color
                    )
        return None

    def save(self, directory):
        file = directory / f"{self.name}.png"
        self.figure.savefig(file, dpi=DPI, facecolor=PAGE)
        pyplot.close(self.figure)
        # A palette makes it a third of the size, and nobody sees it.
        drawn = Image.open(file).convert("RGB")
        for colors in (128, 96, 80, 64, 48):
            drawn.quantize(colors, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)
            if file.stat().st_size < LARGEST:
                break
        print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__.strip())
    pyplot.rcParams["font.family"] = "DejaVu Sans"
    prometheus, directory = grafana.Prometheus(arguments[0]), pathlib.Path(arguments[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name in arguments[2:] or sorted(file.stem for file in HERE.glob("*.json")):
        picture = Picture(name, prometheus)
        picture.draw()
        picture.save(directory)


if __name__ == "__main__":
    main(sys.argv[1:])

"""overview.py CHROMIUM ADDRESS PROGRAM DIRECTORY [PERF]

Uses the overview page of an exporter as a user does. PROGRAM is tests/data/programs/hot.c, which does what it is told in known functions, so
that each second of the past is known. Writes screenshots into the directory.
Exit code: 0 if all checks pass, else 1.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from browser import Browser
from checks import expect, finish
from page import Page

PHASE = 12  # seconds of each phase


class Phased:
    """A program that does what it is told, and when it did."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()  # its greeting
        self.phases = {}

    def order(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def cpu(self):
        """Returns the CPU time of the program in seconds."""
        with open(f"/proc/{self.process.pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9

    def phase(self, name, order):
        begin = time.time()
        while time.time() - begin < PHASE:
            self.order(order)
        self.phases[name] = (begin, time.time())
        print(f"-- {name} from {begin:.1f} for {time.time() - begin:.1f} s", flush=True)

    def bursts(self, offset, milliseconds):
        """Burns in each second from this offset on."""
        begin = time.time()
        while time.time() - begin < PHASE:
            time.sleep((offset - time.time()) % 1)
            self.order(f"spins {milliseconds}")
        self.phases["bursts"] = (begin, time.time())
        self.seconds = self.cpu()
        print(f"-- bursts from {begin:.1f}", flush=True)

    def inner(self, name):
        """Returns a range within the phase, in whole seconds."""
        begin, end = self.phases[name]
        return int(begin) + 2, int(end) - 1


def fetch(address, path):
    with urllib.request.urlopen(address + path) as answer:
        return answer.read().decode()


def history(address, begin, end, **parameters):
    """Returns the values of each figure in steps of a second."""
    query = urllib.parse.urlencode({"from": begin, "to": end, "step": "1s", **parameters})
    answer = json.loads(fetch(address, f"/api/v1/history?{query}"))
    subject = answer["subjects"][0]
    return {name: figure["values"] for name, figure in subject["figures"].items()}


def mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / max(len(known), 1)


class Overview(Page):
    def place(self, moment, figure="cpu"):
        """Returns the point of a chart that shows a time in Unix seconds."""
        return self.browser.ask(
            "(() => { const data = document.querySelector('main').dataset, box = document.querySelector("
            f"'.chart[data-figure={figure}] svg').getBoundingClientRect(); "
            f"const step = ({moment} * 1000 - data.from) / data.step / data.count; "
            "return [box.x + box.width * step, box.y + box.height / 2]; })()"
        )

    def mouse(self, kind, place, button="none"):
        x, y = place
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=int(button != "none"))

    def select(self, begin, end):
        """Drags over the CPU chart."""
        self.mouse("mouseMoved", self.place(begin))
        self.mouse("mousePressed", self.place(begin), "left")
        self.mouse("mouseMoved", self.place((begin + end) / 2), "left")
        self.mouse("mouseMoved", self.place(end), "left")
        self.mouse("mouseReleased", self.place(end), "left")

    def key(self, key, shift=False):
        for kind in ("rawKeyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=8 if shift else 0)

    def link(self, to):
        return self.browser.ask(f"document.querySelector('#selected a[data-to={to}]').href")


def functions(address, path):
    """Returns the share of each function in the profile that a flame graph's address shows, in percent of its stacks."""
    query = path.split("?", 1)[1]
    table = json.loads(fetch(address, f"/top?{query}&format=json&limit=1000"))
    return {row["function"]: row["total_percent"] for row in table["functions"]}


def differences(address, path):
    """Returns the change of the share of each function, in points."""
    query = path.split("?", 1)[1]
    table = json.loads(fetch(address, f"/top?{query}&format=json&limit=1000"))
    return {row["function"]: row["total_points"] for row in table["functions"]}


def heat_map(page, phased):
    """Bursts of 300 ms in each second are at their offset."""
    browser, (begin, end) = page.browser, phased.inner("bursts")
    query = f"type=cpu&comm=phased&from={begin}&to={end}"
    answer = json.loads(fetch(page.address, f"/api/v1/heatmap?{query}&rows=20"))
    sums = [sum(second[row] for second in answer["counts"]) for row in range(20)]
    # From 400 to 700 ms; a machine with other load moves the end.
    inside = sum(sums[8:15])
    expect(f"{inside} of {sum(sums)} samples are at the offset of the bursts: {sums}", inside > 0.7 * sum(sums) and sums[8] and not sums[3])
    page.open("the heat map", f"/heatmap?{query}")
    page.show("heatmap")
    box = browser.ask("(() => { const box = document.getElementById('heat').getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; })()")
    cell = lambda second, offset: (box[0] + box[2] * (second + 0.5) / (end - begin), box[1] + box[3] * (1 - offset))
    page.mouse("mouseMoved", cell(2, 0.41))
    page.mouse("mousePressed", cell(2, 0.41), "left")
    page.mouse("mouseMoved", cell(2, 0.69), "left")
    page.mouse("mouseReleased", cell(2, 0.69), "left")
    browser.until("cells are selected", lambda: browser.ask("!document.getElementById('to').classList.contains('hide')"))
    page.show("heatmap-selected")
    link = browser.ask("document.querySelector('#to a').href")
    shares = functions(page.address, link)
    expect(f"the selected burst has its functions: {shares.get('spins', 0):.0f} %", shares.get("spins", 0) > 80, (link, shares))


def charts(page, phased):
    address = page.address
    used = {}
    for name in ("idle", "spinning", "parts"):
        begin, end = phased.inner(name)
        used[name] = mean(history(address, begin, end, scope="program", name="phased", figure="cpu")["cpu"])
    # On a busy machine the program does not get a whole CPU.
    expect(
        f"the load begins at its second: {used['idle']:.3f} CPUs before, then {used['spinning']:.2f}, {used['parts']:.2f}",
        used["idle"] < 0.05 * used["spinning"] and used["parts"] > 0.5 * used["spinning"],
    )
    begin, end = int(phased.phases["idle"][0]) - 1, int(phased.phases["bursts"][1]) + 2
    ours = sum(filter(None, history(address, begin, end, scope="program", name="phased", figure="cpu")["cpu"]))
    expect(
        f"its CPU time is {ours:.2f} s, the kernel says {phased.seconds:.2f} s", abs(ours / phased.seconds - 1) < 0.01
    )
    page.open("the overview", "/")
    page.show("overview")
    browser = page.browser
    begin, end = phased.inner("spinning")
    middle = (begin + end) / 2
    page.mouse("mouseMoved", page.place(middle))
    at = browser.ask("document.querySelector('.chart[data-figure=cpu] output').textContent")
    moments = [time.strftime("%H:%M:%S", time.gmtime(middle + offset)) for offset in (-2, -1, 0, 1)]
    expect(f"the chart under the pointer shows its moment: {at}", any(moment in at for moment in moments), moments)
    others = browser.ask("Array.from(document.querySelectorAll('.chart output')).filter(e => e.textContent).length")
    expect(f"all {others} charts show the same moment", others > 4)


def selection(page, phased):
    browser, address = page.browser, page.address
    page.open("the page of the program", "/program?name=phased")
    page.show("program")
    begin, end = phased.inner("parts")
    page.select(begin, end)
    browser.until("a range is selected", lambda: browser.ask("!document.getElementById('selected').hidden"))
    page.show("selected")
    flame, compare, zoom = page.link("flame"), page.link("compare"), page.link("zoom")
    shares = functions(address, flame)
    expect(f"the selected range has its functions: odd {shares.get('odd', 0):.0f} %", shares.get("odd", 0) > 30, shares)
    expect("and not those of the minute before", shares.get("three_quarters", 0) < 5, shares)
    page.key("Escape")
    expect("Escape ends the selection", browser.ask("document.getElementById('selected').hidden"))
    page.open("the flame graph of the selection", flame.removeprefix(address))
    page.show("selected-flamegraph")
    frames = browser.ask("Array.from(document.querySelectorAll('#flamegraph svg.f title')).map(e => e.textContent).join('\\n')")
    expect("its flame graph has the function", "odd\n" in frames and "three_quarters" not in frames, frames[:500])
    page.open("the comparison", compare.removeprefix(address))
    page.show("compared")
    changed = differences(address, compare)
    expect(
        f"compared with the seconds before, odd grew by {changed.get('odd', 0):.0f} points, three_quarters shrank by "
        f"{-changed.get('three_quarters', 0):.0f}",
        changed.get("odd", 0) > 30 and changed.get("three_quarters", 0) < -30,
        changed,
    )
    page.open("the enlarged range", zoom.removeprefix(address))
    page.show("zoomed")
    data = browser.ask("document.querySelector('main').dataset.from + ' ' + document.querySelector('main').dataset.count")
    start, count = map(int, data.split())
    expect("zooming shows the selected seconds", abs(start / 1000 - begin) <= 2 and abs(count - (end - begin)) <= 3, data)


def baseline(page, phased, directory):
    """Compares a range with a file: a profile of the phase before."""
    browser, address = page.browser, page.address
    (begin, end), (first, last) = phased.inner("spinning"), phased.inner("parts")
    file = os.path.join(directory, "spinning.pb.gz")
    with urllib.request.urlopen(f"{address}/debug/pprof/profile?type=cpu&comm=phased&from={begin}&to={end}") as answer:
        profile = answer.read()
    with open(file, "wb") as out:
        out.write(profile)
    page.open("the flame graph of a phase", f"/flamegraph?type=cpu&comm=phased&from={first}&to={last}")
    browser.ask("document.querySelector('details.compare').open = true")
    page.show("baseline-choose")
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    field = browser.call("DOM.querySelector", nodeId=root, selector="#baseline")["nodeId"]
    browser.call("DOM.setFileInputFiles", nodeId=field, files=[file])
    browser.until("the uploaded file is the base", lambda: browser.ask("location.search.includes('base=') && !!document.getElementById('flamegraph')"))
    page.show("baseline")
    changed = differences(address, browser.ask("location.href"))
    expect(
        f"compared with the file, odd grew by {changed.get('odd', 0):.0f} points, spins shrank by {-changed.get('spins', 0):.0f}",
        changed.get("odd", 0) > 30 and changed.get("spins", 0) < -30,
        changed,
    )
    expect("the comparison has no errors", not browser.errors, browser.errors)
    with open(file, "wb") as out:
        out.write(b"no profile")
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    field = browser.call("DOM.querySelector", nodeId=root, selector="#baseline")["nodeId"]
    browser.call("DOM.setFileInputFiles", nodeId=field, files=[file])
    browser.until("the page says why a file is refused", lambda: "not a folded stack" in browser.ask("document.getElementById('upload').textContent"))


def keyboard(page):
    browser = page.browser
    page.open("the overview", "/")
    browser.ask("document.querySelector('.chart').focus()")
    page.key("ArrowLeft")
    browser.until("a key shows values", lambda: browser.ask("document.querySelector('.chart output').textContent"))
    page.key("ArrowLeft", shift=True)
    page.key("ArrowLeft", shift=True)
    expect("keys select a range", not browser.ask("document.getElementById('selected').hidden"))
    page.key("Escape")
    path = browser.ask("Array.from(document.querySelectorAll('.busiest th a')).find(e => e.textContent === 'Switches').href")
    page.open("the sorted overview", path.removeprefix(page.address))
    column = (
        "(() => { const table = document.querySelector('.busiest:last-of-type table'); "
        "const at = Array.from(table.tHead.rows[0].cells).findIndex(e => e.hasAttribute('aria-sort')); "
        "return Array.from(table.tBodies[0].rows).map(e => e.cells[at].textContent); })()"
    )
    scale = {"k": 1e3, "M": 1e6}
    rates = []
    for text in browser.ask(column):
        number, _, unit = text.removesuffix("/s").partition("\u00a0")
        rates.append(float(number) * scale.get(unit, 1))
    expect("a click on a heading sorts the table", len(rates) > 1 and rates == sorted(rates, reverse=True), rates)


def refresh(page):
    browser = page.browser
    page.open("the overview", "/")
    shown = "document.querySelector('.health .quiet').textContent"
    since = browser.ask(shown)
    browser.until("the page refreshes itself", lambda: browser.ask(shown) != since)
    expect("the refresh has no errors", not browser.errors, browser.errors)
    busy = lambda: {metric["name"]: metric["value"] for metric in browser.call("Performance.getMetrics")["metrics"]}
    browser.call("Performance.enable")
    before = busy()
    time.sleep(20)
    after = busy()
    used, passed = after["TaskDuration"] - before["TaskDuration"], after["Timestamp"] - before["Timestamp"]
    print(f"-- an idle tab uses {100 * used / passed:.2f} % of a CPU")


def looks(page):
    browser = page.browser
    for name, look in [("dark", {"dark": True}), ("narrow", {"width": 380}), ("wide", {"width": 3840, "height": 2160})]:
        browser.look(**look)
        for what, path in [("overview", "/"), ("program", "/program?name=phased"), ("heatmap", "/heatmap?comm=phased")]:
            page.open(f"{path} in a {name} window", path)
            page.show(f"{name}-{what}")
            wide = browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            expect(f"{path} fits into a {name} window", wide <= 0, f"{wide} pixels too wide")
    browser.look()


def size_and_speed(page):
    length = len(fetch(page.address, "/?last=1h").encode())
    expect(f"the page has {length / 1000:.0f} kB, at most 150", length <= 150_000)
    policy = urllib.request.urlopen(page.address + "/").headers["Content-Security-Policy"]
    expect("its policy allows only its own script", "script-src 'nonce-" in policy and "unsafe-eval" not in policy, policy)
    page.open("the overview", "/")
    paint = page.browser.ask("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    print(f"-- first paint after {paint:.0f} ms")


def hostile(page, path, directory):
    """A program with markup, an escape and invalid UTF-8 in its name is shown as text."""
    name = b"<b>x\x1b[31m\xff"
    copy = os.path.join(os.fsencode(directory), name)
    shutil.copy(path, copy)
    with subprocess.Popen([copy], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        process.stdin.write(b"spins 8000\n")
        process.stdin.flush()
        time.sleep(6)
        text = fetch(page.address, "/")
        process.kill()
    os.remove(copy)
    expect("a hostile name is in the table as text", "&lt;b&gt;x" in text, text[:300])
    expect("and nothing of it is markup or a control character", "<b>x" not in text and "\x1b" not in text)


def agrees(page, perf):
    """Compares sums over the same seconds with those of perf stat."""
    events = {"context-switches": "context_switches", "page-faults": "page_faults"}
    # Something to count: processes that start and fault, and switch.
    load = subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"])
    time.sleep(3)
    time.sleep(-time.time() % 1)
    begin = round(time.time())
    command = [perf, "stat", "-a", "-x,", "-e", ",".join(events), "--", "sleep", "30"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    time.sleep(3)
    load.kill()
    load.wait()
    for event, figure in events.items():
        theirs = next(int(line.split(",")[0]) for line in lines if event in line)
        ours = sum(history(page.address, begin, begin + 30, figure=figure)[figure])
        share = ours / theirs - 1
        expect(f"{figure} of 30 seconds: {ours:.0f}, perf stat {theirs}: {100 * share:+.2f} %", abs(share) < 0.01)


def incident(page, directory):
    """The report of an incident is shown by the exporter, and from a file without it."""
    body = json.dumps({"reason": "<b>a test"}).encode()
    with urllib.request.urlopen(urllib.request.Request(page.address + "/api/v1/incidents", body), timeout=60) as answer:
        path = json.load(answer)[0]["incident"]
    deadline = time.time() + 60
    while not json.loads(fetch(page.address, "/api/v1/incidents"))["total"] and time.time() < deadline:
        time.sleep(0.2)
    page.open("the list of incidents", "/incidents")
    listed = page.browser.ask("document.querySelector('td a').getAttribute('href')")
    expect("the list has a link to the incident", listed == path, listed)
    page.open("a report", path)
    page.show("incident")
    frames = "document.querySelectorAll('#flamegraph svg.f').length"
    count = page.browser.ask(frames)
    expect(f"the report has a flame graph: {count} frames", count > 20)
    file = os.path.join(directory, "report.html")
    with open(file, "wb") as out:
        out.write(fetch(page.address, f"{path}/report.html").encode())
    page.browser.open(f"file://{file}")
    browser = page.browser
    others = [url for url in browser.requests if not url.startswith((f"file://{file}", "data:"))]
    expect("the report in a file makes no requests", not others, others)
    expect("the report in a file has no errors", not browser.errors, browser.errors)
    expect("the report in a file has the same flame graph", browser.ask(frames) == count)
    browser.ask("(() => { const field = document.getElementById('search'); field.value = 'spins'; field.dispatchEvent(new Event('input', {bubbles: true})); })()")
    browser.until("the search in the file works", lambda: browser.ask("document.getElementById('matched').textContent.includes('%')"))


def main():
    chromium, address, program, directory, *perf = sys.argv[1:]
    phased = Phased(program)
    time.sleep(3)
    phased.phase("idle", "naps 10 100")
    phased.phase("spinning", "spins 1000")
    phased.phase("parts", "parts 1000")
    phased.bursts(0.4, 300)
    time.sleep(3)
    with Browser(chromium) as browser:
        page = Overview(browser, address, directory)
        browser.look()
        charts(page, phased)
        selection(page, phased)
        heat_map(page, phased)
        baseline(page, phased, directory)
        keyboard(page)
        refresh(page)
        size_and_speed(page)
        looks(page)
        incident(page, directory)
    hostile(page, program, directory)
    if perf and perf[0]:
        agrees(page, perf[0])
    phased.process.kill()
    finish()


main()

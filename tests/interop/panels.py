"""panels.py CHROMIUM SITE DATA [PICTURES]

Checks the dashboards by Grafana's own packages, in a browser. SITE is the directory that grafana/build.mjs has written, DATA the file that
panel_data.py has written. PICTURES is a directory for a picture of each dashboard. BLESS=1 rewrites the golden file grafana/panels.txt.
"""

import difflib
import functools
import http.server
import json
import os
import pathlib
import sys
import threading

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from browser import Browser  # noqa: E402
from checks import expect, finish  # noqa: E402

DASHBOARDS = HERE.parents[1] / "dashboards"
GOLDEN = HERE / "grafana" / "panels.txt"
# The checks and their sentences.
SENTENCES = {
    "units": "Grafana has every unit",
    "options": "Grafana has every option and every calculation of the panels",
    "data": "Grafana's transformations of the results leave data in every panel",
    "tables": "tables have exactly the columns that they name",
    "labels": "tables show labels as they are, even if they look like numbers or times",
    "names": "every series has its own name",
    "numbers": "every panel with numbers shows some",
    "values": "all values are short texts",
    "thresholds": "each threshold has its color",
    "overrides": "every override applies to a field",
    "links": "links lead to dashboards and variables that exist, with the value of the row",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(site):
    """Serves the page on a free port, and returns its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/index.html"


def write_input(site, data):
    dashboards = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(DASHBOARDS.glob("*.json"))}
    results = json.loads(pathlib.Path(data).read_text(encoding="utf-8"))
    text = f"window.input = {json.dumps({'dashboards': dashboards, 'data': results})};\n"
    pathlib.Path(site, "input.js").write_text(text, encoding="utf-8")


def compare(lines):
    text = "\n".join(lines) + "\n"
    if os.environ.get("BLESS"):
        GOLDEN.write_text(text, encoding="utf-8")
    golden = GOLDEN.read_text(encoding="utf-8")
    changed = "\n".join(difflib.unified_diff(golden.splitlines(), text.splitlines(), GOLDEN.name, "now", lineterm="", n=0))
    expect(f"values and columns look like those in {GOLDEN.name}", not changed, "\n" + changed)


def listed(problems):
    """Returns the first problems, one per line. Most defects are found with each selection and in each row."""
    rest = [f"{len(problems) - 20} more"] if len(problems) > 20 else []
    return "".join(f"\n  {problem}" for problem in problems[:20] + rest)


def check(browser):
    result = browser.ask("window.check()")
    for name, sentence in SENTENCES.items():
        problems = result["problems"].pop(name, [])
        expect(sentence, not problems, listed(problems))
    expect("there are no other problems", not result["problems"], result["problems"])
    compare(result["lines"])
    print(", ".join(f"{number} {what}" for what, number in result["figures"].items()))


def draw(browser, name, pictures):
    """Draws a dashboard in the browser, and writes its picture if there is a directory for it."""
    browser.errors.clear()
    result = browser.ask(f"window.draw({json.dumps(name)})")
    browser.look(width=result["width"], height=result["height"])
    browser.ask("new Promise(done => setTimeout(() => requestAnimationFrame(() => done(0)), 300))")
    problems = result["problems"] + browser.errors
    expect(f"{name}: Grafana's components draw {result['panels']} panels", not problems, listed(problems))
    if pictures:
        browser.picture(os.path.join(pictures[0], f"{name}.png"))
    if result["truncated"]:
        print(f"  at a width of {result['width']} pixels, these titles do not fit: {', '.join(result['truncated'])}")


def main(arguments):
    if len(arguments) not in (3, 4):
        sys.exit(__doc__.strip())
    chromium, site, data, *pictures = arguments
    write_input(site, data)
    with Browser(chromium) as browser:
        browser.open(serve(site))
        check(browser)
        for file in sorted(DASHBOARDS.glob("*.json")):
            draw(browser, file.stem, pictures)
    finish()


if __name__ == "__main__":
    main(sys.argv[1:])

"""flamegraph.py CHROMIUM ADDRESS COMM DIRECTORY

Uses the pages of an exporter as a user does: searches the flame graph, enlarges a frame, sorts the table. COMM is a program that
only runs the order `spins` of tests/data/programs/hot.c. Writes screenshots into the directory.
Exit code: 0 if all checks pass, else 1.
"""

import json
import sys
import urllib.request

from browser import Browser
from checks import expect, finish
from page import Page

# A key: its name, its code, its number, and its modifiers.
CONTROL_F = ("f", "KeyF", ord("F"), 2)
SLASH = ("/", "Slash", 191, 0)
ESCAPE = ("Escape", "Escape", 27, 0)


def share(address, comm, function):
    """Returns the percentage of stacks that contain a function, from the table."""
    with urllib.request.urlopen(f"{address}/top?type=cpu&comm={comm}&format=json&limit=1000") as answer:
        functions = json.load(answer)["functions"]
    return next((row["total_percent"] for row in functions if row["function"] == function), -1)


def frame(function):
    """Returns an expression for the widest frame of a function."""
    return (
        "Array.from(document.querySelectorAll('#flamegraph svg.f'))"
        f".filter(e => e.querySelector('title').textContent.startsWith('{function}\\n'))"
        ".sort((a, b) => b.getBoundingClientRect().width - a.getBoundingClientRect().width)[0]"
    )


def width(browser, function):
    """Returns the width of a function's frame, in percent of the picture; 0 if it is hidden."""
    return browser.ask(
        f"(() => {{ const e = {frame(function)}; const all = document.getElementById('flamegraph').getBoundingClientRect(); "
        "return 100 * e.querySelector('rect').getBoundingClientRect().width / all.width; })()"
    )


def is_shown(browser, element):
    return browser.ask(f"getComputedStyle(document.getElementById('{element}')).display != 'none'")


def matched(browser):
    """Returns the percentage that the search found; None without a search."""
    text = browser.ask("document.getElementById('matched').textContent").strip()
    return float(text.removeprefix("Matched:").strip().rstrip("%")) if text else None


class FlameGraphs(Page):
    def search(self, text, key=None):
        """Searches in the field of a page, or in the dialog of a picture alone."""
        browser = self.browser
        has_field = browser.ask("document.getElementById('search').tagName == 'INPUT'")
        if key:
            browser.press(*key)
        else:
            browser.click("document.getElementById('search')")
        if has_field:
            browser.until("the field has the focus", lambda: browser.ask("document.activeElement.id") == "search")
            browser.type(text)
        else:
            browser.answer(text)
        browser.until("the search is done", lambda: matched(browser) is not None)
        return matched(browser)

    def ends_search(self):
        self.browser.ask("(() => { const e = document.getElementById('search'); e.value = ''; e.dispatchEvent(new Event('input')); })()")
        self.browser.until("the search is over", lambda: matched(self.browser) is None)


def flame_graph(pages, comm):
    browser = pages.browser
    pages.open("the flame graph", f"/flamegraph?type=cpu&comm={comm}")
    pages.show("flamegraph")
    root, other = (browser.ask(f"{frame(name)}.getBoundingClientRect().y") for name in ("all", "three_quarters"))
    expect("the outermost functions are at the top", root < other, (root, other))
    part, known = pages.search("^three_quarters", key=CONTROL_F), share(pages.address, comm, "three_quarters")
    expect(f"Ctrl-F finds the hot function's caller in {part} %, of {known:.1f} %", abs(part - known) < 8)
    expect("the address contains the search", "s=%5Ethree_quarters" in browser.ask("location.href"))
    pages.show("flamegraph-searched")
    pages.ends_search()
    expect("the search can be cleared", "s=" not in browser.ask("location.href"))
    browser.ask("document.activeElement.blur()")
    part = pages.search("burns", key=SLASH)
    expect(f"/ begins a search: {part} %", part > 90)
    pages.ends_search()
    part = pages.search("spins|(", key=None)
    expect(f"an invalid regular expression is searched literally: {part} %", part == 0)
    pages.ends_search()

    before = width(browser, "one_quarter")
    expect(f"a quarter of the time is {before:.1f} % of the picture", 10 < before < 40)
    browser.click(frame("one_quarter"))
    browser.until("the frame is enlarged", lambda: width(browser, "one_quarter") > 99)
    expect("a click enlarges a frame, and hides its siblings", width(browser, "three_quarters") == 0)
    expect("the zoom can be reset", is_shown(browser, "unzoom"))
    pages.show("flamegraph-enlarged")
    address = browser.ask("location.href")
    browser.click("document.getElementById('unzoom')")
    browser.until("the frame is as it was", lambda: abs(width(browser, "one_quarter") - before) < 0.5)
    expect("the zoom is reset", width(browser, "three_quarters") > 50 and not is_shown(browser, "unzoom"))
    browser.click(frame("one_quarter"))
    browser.until("the frame is enlarged again", lambda: width(browser, "one_quarter") > 99)
    browser.press(*ESCAPE)
    browser.until("Esc resets the zoom", lambda: width(browser, "three_quarters") > 50)
    pages.is_quiet("all of that")
    # The profile has changed by then, but frames have about the same positions. Either the frame is opened, or nothing is enlarged.
    pages.open("the address of an enlarged frame", address.removeprefix(pages.address))


def without_scripts(pages, comm):
    """Uses the links of the page, whose targets are what the server draws."""
    browser = pages.browser
    pages.open("a search by the server", f"/flamegraph?type=cpu&comm={comm}&s=%5Eburns")
    expect("the server highlights what a search finds", matched(browser) > 90, matched(browser))
    pages.open("the function page", f"/flamegraph?type=cpu&comm={comm}&focus=spins")
    caller, own, callee = (browser.ask(f"{frame(name)}.getBoundingClientRect().y") for name in ("main", "spins", "burns"))
    expect("a function is between its callers and callees", caller < own < callee, (caller, own, callee))
    pages.show("flamegraph-function")
    pages.open("the inverted page", f"/flamegraph?type=cpu&comm={comm}&invert=true")
    pages.show("flamegraph-inverted")
    pages.open("a comparison", f"/flamegraph?type=cpu&comm={comm}&mode=user&base_mode=kernel")
    expect("frames show the change of their share", "points)" in browser.ask(f"{frame('burns')}.querySelector('title').textContent"))
    expect("there is a table of changes", browser.ask("document.querySelectorAll('#functions td.change').length") > 2)
    pages.show("flamegraph-compared")


def picture_alone(pages, comm):
    pages.open("the picture alone", f"/flamegraph?type=cpu&comm={comm}&format=svg")
    part = pages.search("^burns")
    expect(f"the picture alone can be searched: {part} %", part > 90)
    pages.show("picture")
    pages.is_quiet("its search")


def table(pages, comm):
    browser = pages.browser
    pages.open("the table", f"/top?type=cpu&comm={comm}")
    pages.show("top")
    first = "document.querySelector('#functions tbody tr:not([hidden]) .function code').textContent"
    expect("the hot function is the first row", browser.ask(first).strip() == "burns", browser.ask(first))
    browser.click("document.querySelector('#functions th.function button')")
    names = "Array.from(document.querySelectorAll('#functions tbody .function code')).map(e => e.textContent)"
    browser.until("rows are sorted", lambda: browser.ask(first).strip() != "burns")
    given = browser.ask(names)
    expect("a click on a column header sorts by the column", given == browser.ask(f"{names}.sort((a, b) => a.localeCompare(b))"), given)
    browser.click("document.getElementById('find')")
    browser.type("quarter")
    shown = "Array.from(document.querySelectorAll('#functions tbody tr')).filter(e => !e.hidden).length"
    browser.until("rows are found", lambda: browser.ask(shown) == 2)
    expect("the filter field shows the matching rows", browser.ask(shown) == 2)
    pages.is_quiet("all of that")


def others(pages):
    for what, path in [
        ("the start page", "/"),
        ("/status", "/status"),
        ("the index of profiles", "/debug/pprof/"),
        ("the flame graph of everybody", "/flamegraph"),
        ("a flame graph of nothing", "/flamegraph?comm=nobody"),
        ("a refusal", "/flamegraph?seconds=0"),
        ("a kind that is not recorded", "/flamegraph?type=off_cpu"),
    ]:
        pages.browser.open(pages.address + path)
        # Requests that the server rejects are logged, as expected.
        pages.browser.errors = [error for error in pages.browser.errors if "status of 40" not in error]
        pages.is_quiet(what)
        pages.show("page" + path.split("=")[0].replace("/", "-").replace("?", "-"))


def main():
    chromium, address, comm, directory = sys.argv[1:]
    with Browser(chromium) as browser:
        pages = FlameGraphs(browser, address, directory)
        browser.look()
        flame_graph(pages, comm)
        without_scripts(pages, comm)
        picture_alone(pages, comm)
        table(pages, comm)
        others(pages)
        for name, look in [("dark", {"dark": True}), ("narrow", {"width": 380}), ("wide", {"width": 3840, "height": 2160})]:
            browser.look(**look)
            compared = f"/flamegraph?comm={comm}&base_mode=kernel"
            shown = [("status", "/"), ("top", "/top"), ("flamegraph", f"/flamegraph?comm={comm}"), ("compared", compared)]
            for page, path in shown:
                browser.open(address + path)
                pages.show(f"{name}-{page}")
                wide = browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                expect(f"{path} fits into a {name} window", wide <= 0, f"{wide} pixels too wide")
    finish()


main()

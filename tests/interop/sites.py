"""sites.py CHROMIUM PORT

Opens pages of the site hostile.example in a browser. The name resolves to this machine, where PORT is that of the exporter. The pages try to
read pages of the exporter and to reload it.
Exit code: 0 if all checks pass, else 1.
"""

import http.server
import sys
import threading

from browser import Browser
from checks import expect, finish

class Hostile(http.server.BaseHTTPRequestHandler):
    """A site with one page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>hostile</title>")

    def log_message(self, *_):
        pass


def status(browser, address, options="{}"):
    """Returns the status code of a request of the page; the name of the error if the page cannot read the response."""
    return browser.ask(f"fetch('{address}', {options}).then(answer => answer.status, error => error.name)")


def text(browser):
    return browser.ask("document.documentElement.textContent")


def main():
    chromium, port = sys.argv[1:]
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    exporter, rebound = f"http://127.0.0.1:{port}", f"http://hostile.example:{port}"
    rules = "MAP *.example 127.0.0.1"
    with Browser(chromium, f"--host-resolver-rules={rules}") as browser:
        browser.open(f"{rebound}/status")
        expect("a page by a name of another site is rejected", "is not a name of this server" in text(browser), text(browser))
        for path in ["/", "/api/v1/status", "/top", "/folded", "/flamegraph", "/debug/pprof/profile?seconds=1"]:
            code = status(browser, path)
            expect(f"its script cannot read {path}", code == 403, code)
        code = status(browser, "/-/reload", "{method: 'POST'}")
        expect("its script cannot reload", code == 403, code)

        for name in ["localhost", "127.0.0.1", "a.perf.example"]:
            browser.open(f"http://{name}:{port}/status")
            expect(f"the page opens by {name}", "is not a name" not in text(browser) and "perf-exporter" in text(browser))

        browser.open(f"http://hostile.example:{site.server_port}/")
        for address in [exporter, f"http://localhost:{port}"]:
            code = status(browser, f"{address}/-/reload", "{method: 'POST'}")
            expect(f"another site's script cannot read a reload of {address}", code == "TypeError", code)
            status(browser, f"{address}/-/reload", "{method: 'POST', mode: 'no-cors'}")
        picture = f"new Promise(done => {{ const i = new Image(); i.onload = () => done('loaded'); i.onerror = () => done('failed'); i.src = '{exporter}/flamegraph?format=svg'; }})"
        expect("another site cannot show the flame graph", browser.ask(picture) == "failed")
        browser.forget()
        form = "const f = document.createElement('form'); f.method = 'post'; f.action = '%s/-/reload'; document.body.append(f); f.submit();"
        browser.ask(f"(() => {{ {form % exporter} }})()")
        while not browser.loaded:
            browser.receive()
        expect("another site's form cannot reload", "request of another site rejected" in text(browser), text(browser))
    finish()


main()

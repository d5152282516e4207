"""A page of the exporter in a browser, with checks that hold for every page."""

import os

from checks import expect


class Page:
    """The pages of the exporter at an address. Pictures are written to a directory."""

    def __init__(self, browser, address, directory):
        self.browser, self.address, self.directory = browser, address, directory

    def open(self, what, path):
        self.browser.open(self.address + path)
        self.is_quiet(what)

    def is_quiet(self, what):
        """Checks that there are no errors and no requests to other servers. Data URLs of the page count as requests, too."""
        browser = self.browser
        others = [url for url in browser.requests if not url.startswith((self.address + "/", "data:"))]
        expect(f"{what} makes no requests to other servers", not others and browser.requests, others)
        expect(f"{what} has no errors", not browser.errors, browser.errors)

    def show(self, name):
        self.browser.picture(os.path.join(self.directory, f"{name}.png"))

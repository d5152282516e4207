"""viewers.py CHROMIUM SPEEDSCOPE DIRECTORY

Opens DIRECTORY/speedscope.json in a local copy of speedscope (the directory of its page) and checks that it is read without an error. The
page loads a file by a script next to it, as the command line of speedscope does.
Exit code: 0 if all checks pass, else 1.
"""

import base64
import json
import pathlib
import sys

from browser import Browser
from checks import expect, finish


def main():
    chromium, page, directory = sys.argv[1:]
    directory = pathlib.Path(directory)
    file = (directory / "speedscope.json").read_bytes()
    name = json.loads(file)["profiles"][0]["name"]
    script = directory / "speedscope.js"
    script.write_text(f'speedscope.loadFileFromBase64("speedscope.json", "{base64.b64encode(file).decode()}")')
    flags = ["--allow-file-access-from-files", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with Browser(chromium, *flags) as browser:
        index = pathlib.Path(page).resolve() / "index.html"
        browser.open(f"{index.as_uri()}#localProfilePath={script}")
        shown = "document.body.innerText"
        try:
            browser.until("the thread is shown", lambda: name in browser.ask(shown))
        except RuntimeError:
            pass
        text = browser.ask(shown)
        expect(f"speedscope shows the thread {name}", name in text, text[:300])
        # The driver that draws without a graphics card reports that it is slow.
        errors = [error for error in browser.errors if "GL Driver Message" not in error]
        expect("speedscope reports no error", not errors, errors)
    finish()


if __name__ == "__main__":
    main()

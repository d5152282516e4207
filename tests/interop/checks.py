"""Checks of a script: each is printed, and failures are counted."""

import sys

failures = 0


def expect(sentence, holds, otherwise=""):
    global failures
    print(f"ok: {sentence}" if holds else f"FAILED: {sentence}: {otherwise}", flush=True)
    failures += not holds


def finish():
    """Ends the script with exit code 1 if a check failed, else 0."""
    sys.exit(failures > 0)

#!/usr/bin/env python3
"""Prints docs/reference/commands.md: what `tamp --help` and `tamp COMMAND --help` say.

    commands.py TAMP > docs/reference/commands.md
"""
import re
import subprocess
import sys

HEAD = """# Commands

<!-- Written by docs/site/commands.py; test/e2e/docs_test.py says if it is out of date. -->

This is what `tamp --help` and `tamp COMMAND --help` print. [Models and options](models.md) explains the options that need more than a line.
"""


def help_of(tamp, *command):
    return subprocess.run([tamp, *command, "--help"], check=True, capture_output=True, text=True).stdout.rstrip()


def commands(text):
    """The names below "Subcommands:"."""
    block = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\w+)", block, re.M)


def page(tamp):
    top = help_of(tamp)
    parts = [HEAD, f"```text\n{top}\n```\n"]
    for name in commands(top):
        parts.append(f"## tamp {name}\n\n```text\n{help_of(tamp, name)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(sys.argv[1]), end="")

#!/usr/bin/env python3
"""Prints docs/reference/commands.md: what `tamp --help` and `tamp COMMAND --help` say, with lists as tables.

    commands.py TAMP > docs/reference/commands.md
"""
import html
import itertools
import re
import subprocess
import sys

HEAD = """# Commands

<!-- Written by docs/site/commands.py; test/e2e/docs_test.py says if it is out of date. -->

This is what `tamp --help` and `tamp COMMAND --help` say. [Models and options](models.md) explains the options that need more than a line.
"""
LISTS = {"Subcommands": "command", "Positionals": "argument", "Options": "option"}


def help_of(tamp, *command):
    return subprocess.run([tamp, *command, "--help"], check=True, capture_output=True, text=True).stdout.rstrip()


def entries(block):
    """(name, text) of the lines of a list; a text may stand below its name."""
    found = []
    for line in block.splitlines():
        if re.match(r"  \S", line):
            name, _, text = line.strip().partition("  ")
            found.append([name, text.strip()])
        else:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return found


def code(text):
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"  # a bar would end the cell


def prose(text):
    return html.escape(text, quote=False).replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")


def table(title, rows):
    lines = [f"| {code(name)} | {prose(text)} |" for name, text in rows]
    return "\n".join([f"| {LISTS[title]} | what |", "|---|---|", *lines])


def text_and_commands(block):
    """Sentences as a paragraph, commands as they stand."""
    parts = []
    for is_command, lines in itertools.groupby(block.splitlines(), lambda line: line.startswith(("  ", "Usage: "))):
        text = "\n".join(line.removeprefix("  ").removeprefix("Usage: ") for line in lines)
        parts.append(f"```text\n{text}\n```" if is_command else prose(text))
    return parts


def sections(text):
    """The help's parts as Markdown, lists as tables."""
    parts = []
    for block in text.split("\n\n"):
        title, _, lines = block.partition(":\n")
        if title in LISTS:
            parts.append(table(title, entries(lines)))
        else:
            parts += text_and_commands(block)
    return "\n\n".join(parts)


def page(tamp):
    top = help_of(tamp)
    parts = [HEAD, f"{sections(top)}\n"]
    block = top.partition("Subcommands:\n")[2].partition("\n\n")[0]
    for name, _ in entries(block):
        parts.append(f"## tamp {name}\n\n{sections(help_of(tamp, name))}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(sys.argv[1]), end="")

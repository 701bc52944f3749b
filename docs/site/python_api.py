#!/usr/bin/env python3
"""Prints docs/reference/python-api.md: signatures and docstrings of what the package `tamp` exports. Needs the package to be installed.

    python_api.py > docs/reference/python-api.md
"""
import ast
import inspect
import re

import tamp

HEAD = """# Python

<!-- Written by docs/site/python_api.py from the package's docstrings; test/e2e/docs_test.py says if it is out of date. -->

What the package `tamp` has. [Getting started](../getting-started.md#a-python-model) shows it in use.
"""


def signature(name, function):
    """As a program would write it, one parameter a line where it is long."""
    text = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r"""(: |-> )(['"])(.*?)\2""", r"\1\3", text).replace("'", '"')  # annotations are strings
    text = re.sub(r"\b(_?[a-z]+\.)+([A-Z])", r"\2", text).replace(" -> None", "")
    line = f"{name}{text}"
    if len(line) <= 100:
        return line
    inner, _, result = text[1:].rpartition(")")
    parameters = re.split(r", (?=[\w*]+(?::|,|$))", inner)
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f"){result}"


def attributes(cls):
    """(name, text) of attributes whose assignment is followed by a string, in the class or its __init__."""
    tree = ast.parse(inspect.getsource(cls)).body[0]
    bodies = [tree.body] + [node.body for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for body in bodies:
        for statement, behind in zip(body, body[1:]):
            if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant) and isinstance(behind.value.value, str):
                target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
                yield target.attr if isinstance(target, ast.Attribute) else target.id, behind.value.value


def paragraphs(text):
    """A docstring as Markdown: lines "name: what" of a parameter become a list."""
    out, in_list = [], False
    for line in inspect.cleandoc(text).splitlines():
        if found := re.match(r'((?:\w+(?:, \w+)*): |\w+: "\w+" or |[\w, ]+: as )', line):
            name, _, rest = line.partition(": ")
            if not in_list:
                out.append("")
            out.append(f"- **{name}**: {rest}")
            in_list = True
        elif in_list and line.startswith(" "):
            out.append("  " + line.strip())
        elif line.startswith("    "):
            out.append(line)
        else:
            if in_list:
                out.append("")
            in_list = False
            out.append(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def function_part(name, function, level, title):
    return f"{level} {title}\n\n```python\n{signature(name, function)}\n```\n\n{paragraphs(function.__doc__)}\n"


def class_part(name, cls):
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    parts = [f"## {name}\n\n```python\nclass tamp.{name}{f'({bases})' if bases else ''}\n```\n\n{paragraphs(cls.__doc__)}\n"]
    rows = [f"- **{attribute}**: {' '.join(text.split())}" for attribute, text in attributes(cls)]
    rows += [f"- **{member}**: {' '.join(value.__doc__.split())}" for member, value in vars(cls).items() if isinstance(value, property)]
    if rows:
        parts.append("\n".join(rows) + "\n")
    for member, value in vars(cls).items():
        if inspect.isfunction(value) and value.__doc__ and (member == "__call__" or not member.startswith("_")) and value.__module__.startswith("tamp"):
            shown, title = ("model", "Calling it") if member == "__call__" else (f"model.{member}", member)
            parts.append(function_part(shown, value, "###", title))
    return "\n".join(parts)


def page():
    order = ["compile", "load", "build", "Model", "Info", "Port", "Length", "Axis", "Error", "CompileError", "RunError", "cache_folder", "cache_limit", "clear_cache"]
    assert sorted(order) == sorted(tamp.__all__), f"{sorted(tamp.__all__)} are exported, this script knows {sorted(order)}"
    parts = [HEAD, f"{paragraphs(tamp.__doc__)}\n"]
    for name in order:
        what = getattr(tamp, name)
        parts.append(class_part(name, what) if inspect.isclass(what) else function_part(f"tamp.{name}", what, "##", name))
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")

#!/usr/bin/env python3
"""Prints docs/reference/rprogram.md from docs/reference/rprogram.schema.json.

    rprogram.py > docs/reference/rprogram.md
"""
import json
import pathlib

SCHEMA = pathlib.Path(__file__).resolve().parents[1] / "reference" / "rprogram.schema.json"
HEAD = """# NAME.rprogram.json

<!-- Written by docs/site/rprogram.py from rprogram.schema.json; test/e2e/docs_test.py says if it is out of date. -->

`tamp compile` writes the rProgram (the network's operators, their implementations, and who runs what when) beside the source, for tools. `tamp inspect` and
its page read nothing else. It is not needed to build or to run. [rprogram.schema.json](rprogram.schema.json) is the same as this page as a JSON Schema, and a
test holds compiled models against it. The [glossary](../glossary.md) explains the words. Times are estimates of the cost model, in microseconds where a name ends in `_us`; sizes are in bytes.

`schedule` is a saved schedule as a whole; [Schedules](schedules.md) has the meaning of its keys.

Before version 1.0 the format may change with any version; `tamp` in the file says which one wrote it.
"""
TITLES = {"model": "model", "vdevice": "vdevice", "port": "A port, in inputs", "output": "A port, in outputs", "rop": "An rOperator, in rops",
          "phase": "A phase, in phases", "instruction": "An instruction, in lanes", "arena": "A part of the arena, in arena", "launch": "A launch, in launches",
          "schedule": "schedule", "length": "A length, in lengths", "axis": "An axis, in axes", "range": "A range, in model", "generation": "generation"}


def type_of(kind):
    if "$ref" in kind:
        return "file" if kind["$ref"] == "#" else kind["$ref"].rpartition("/")[2]
    if "oneOf" in kind:
        return " or ".join(map(type_of, kind["oneOf"]))
    if "enum" in kind:
        return ", ".join(f'"{value}"' for value in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {type_of(kind['items'])}"
    if kind.get("type") == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"object of {type_of(kind['additionalProperties'])}"
    return kind.get("type", "object")


def table(kind):
    rows = [f"| `{name}` | {type_of(value)} | {value.get('description', '')} |" for name, value in kind["properties"].items()]
    return "\n".join(["| key | type | what |", "|---|---|---|", *rows]) + "\n"


def page():
    schema = json.loads(SCHEMA.read_text())
    assert list(TITLES) == list(schema["$defs"]), "every part needs a title here"
    parts = [HEAD, "## The file\n", table(schema)]
    for name, title in TITLES.items():
        parts += [f"## {title}\n", table(schema["$defs"][name])]
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")

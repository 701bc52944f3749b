"""Files of records, as `tamp tune` writes them (docs/tuning.md): JSON lines, one measurement each.

Two files may hold the same key: the same rKernel for the same rOperator under the same conditions. `merge` keeps one of them: what was
measured more often, and of equally often the lesser time. That is the maximum of a total order, so files may be merged in any order, in any
groups, and more than once, with the same result. (A mean would count a file twice that is merged twice.)
"""
from __future__ import annotations

import json
from collections.abc import Iterable

MEASURED = ("us", "runs")  # all other fields are the key
Key = tuple[tuple[str, object], ...]
Records = dict[Key, tuple[float, int]]  # what was measured: microseconds, and medians in them


def parse(text: str) -> Records:
    """ValueError names the line."""
    found: Records = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            time = float(record["us"]), int(record["runs"])
            key = tuple((name, value) for name, value in record.items() if name not in MEASURED)
        except (ValueError, TypeError, KeyError, AttributeError) as wrong:
            raise ValueError(f"line {number} is no record: {wrong}") from None
        found[key] = better(found[key], time) if key in found else time
    return found


def better(a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    return max(a, b, key=lambda time: (time[1], -time[0]))


def merge(all_of_them: Iterable[Records]) -> Records:
    merged: Records = {}
    for records in all_of_them:
        for key, time in records.items():
            merged[key] = better(merged[key], time) if key in merged else time
    return merged


def text(records: Records) -> str:
    """In one order, whatever the order of merging was."""
    lines = (json.dumps({**dict(key), "us": us, "runs": runs}, separators=(",", ":")) for key, (us, runs) in records.items())
    return "".join(line + "\n" for line in sorted(lines))

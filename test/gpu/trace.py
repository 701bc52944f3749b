#!/usr/bin/env python3
"""Sums up a trace: python3 test/gpu/trace.py NAME.rprogram.json TRACE.bin

TRACE.bin comes from a runner built with -DTAMP_TRACE (`--trace FILE`): u64 nanoseconds [instruction][waiting, inputs ready,
started, computed, signalled]. Prints a line per rOperator, times in us from the start of the kernel, then how the time of
all vEUs divides, then the chain of rOperators that decides the end."""
import json, sys

import numpy as np

WAITING, READY, STARTED, COMPUTED, SIGNALLED = range(5)


def rows_of(plan):
    """(vEU, lane entry) of every row of the instruction table, None for rows that only wait."""
    for veu, lane in enumerate(plan["lanes"]):
        for entry in lane:
            for _ in range(max(0, -(-(len(entry["waits"]) - 3) // 3))):
                yield veu, None
            yield veu, entry


def main():
    plan = json.load(open(sys.argv[1]))
    stamps = np.fromfile(sys.argv[2], np.uint64).reshape(-1, 5).astype(np.float64) / 1e3
    rows = list(rows_of(plan))
    assert len(rows) == len(stamps), (len(rows), len(stamps))
    runs = [i for i, (_, entry) in enumerate(rows) if entry and entry["rop"] >= 0]
    zero = stamps[runs][:, WAITING].min()
    stamps = np.where(stamps > 0, stamps - zero, np.nan)
    signalled = {}
    for i in runs:
        if rows[i][1]["signal"] >= 0:
            event = rows[i][1]["signal"]
            signalled[event] = max(signalled.get(event, 0), stamps[i, SIGNALLED])
    print(f"{'rOperator':34} {'rKernel':40} {'tasks':>5} {'begin':>7} {'end':>7} {'level':>6} {'comp':>6} {'max':>6} {'edge':>5} {'start':>5} {'sig':>5}")
    phases = sorted({(rows[i][1]["rop"], rows[i][1]["phase"]) for i in runs})
    ends = {}
    order = []
    for rop, phase in phases:
        mine = [i for i in runs if rows[i][1]["rop"] == rop and rows[i][1]["phase"] == phase]
        t = stamps[mine]
        edge = [stamps[i, READY] - max(signalled[e] for e in rows[i][1]["waits"]) for i in mine if rows[i][1]["waits"] and all(e in signalled for e in rows[i][1]["waits"])
                and stamps[i, WAITING] < max(signalled[e] for e in rows[i][1]["waits"])]
        order.append((t[:, STARTED].min(), rop, phase, mine, t, edge))
    last = 0.0
    for begin, rop, phase, mine, t, edge in order:
        r = plan["rops"][rop]
        end = t[:, COMPUTED].max()
        t[:, STARTED] = np.fmax(t[:, STARTED], t[:, READY])  # bodies with boxes start before their inputs are there
        comp = t[:, COMPUTED] - t[:, STARTED]
        name = r["name"][-30:] + (f".{phase}" if phase else "")
        print(f"{name:34} {r['rkernel'][:40]:40} {len(mine):5} {begin:7.1f} {end:7.1f} {end - last:6.1f} {np.median(comp):6.2f} {comp.max():6.2f} "
              f"{np.median(edge) if edge else float('nan'):5.2f} {np.median(t[:, STARTED] - t[:, READY]):5.2f} {np.nanmedian(t[:, SIGNALLED] - t[:, COMPUTED]):5.2f}")
        last = max(last, end)
    span = np.nanmax(stamps[runs])
    busy = np.nansum(stamps[runs][:, COMPUTED] - np.fmax(stamps[runs][:, STARTED], stamps[runs][:, READY]))
    veus = len(plan["lanes"])
    print(f"span {span:.1f} us; computing {100 * busy / (span * veus):.1f} % of {veus} vEUs' time, the rest waits or is idle")


main()

#!/usr/bin/env python3
"""Sums up a trace of one inference.

    python3 test/gpu/trace.py NAME.rprogram.json TRACE.bin [--chrome FILE] [--brief]

TRACE.bin comes from a runner built with -DTAMP_TRACE (`--trace FILE`): u64 nanoseconds [instruction][waiting, inputs ready,
started, computed, signalled]. Prints a line per rOperator, times in us from the start of the kernel; then how the time of all
vEUs divides; then the critical path. The path goes back from the rTask that ends last, each time to what the rTask waited for
last: a signal of its inputs, or the rTask before it on its vEU. --chrome writes a file for chrome://tracing or Perfetto with
one track per vEU.

A rTask computes from the later of `started` and `inputs ready`, since bodies with boxes of inputs start before their inputs
are there. Waiting for weights and for boxes on their way happens inside of bodies and counts as computing."""
import argparse, json, pathlib
from dataclasses import dataclass

import numpy as np

WAITING, READY, STARTED, COMPUTED, SIGNALLED = range(5)
WAITS_OF_ROW = 3  # kWaits of kernels/vdevice/numbers.cuh


@dataclass
class Task:
    """One rTask that ran; times in us from the start of the first."""

    veu: int
    rop: int
    phase: int
    index: int
    waits: list
    signal: int
    waiting: float
    ready: float
    started: float
    computed: float
    signalled: float  # nan: signals nothing
    before: "Task | None"  # on the same vEU

    @property
    def begin(self):
        return max(self.started, self.ready)

    @property
    def free(self):
        return self.before.computed if self.before else self.waiting


def rows_of(plan):
    """(vEU, lane entry) of every row of the instruction table, None for rows that only wait."""
    for veu, lane in enumerate(plan["lanes"]):
        for entry in lane:
            for _ in range(max(0, -(-(len(entry["waits"]) - WAITS_OF_ROW) // WAITS_OF_ROW))):
                yield veu, None
            yield veu, entry


def tasks_of(plan, stamps):
    """stamps: u64 nanoseconds [row * 5] -> Tasks in the order of the lanes."""
    rows = list(rows_of(plan))
    stamps = np.asarray(stamps, np.uint64).reshape(-1, 5)
    if len(rows) != len(stamps):
        raise ValueError(f"the trace has {len(stamps)} rows, the rProgram has {len(rows)}")
    runs = [i for i, (_, entry) in enumerate(rows) if entry and entry["rop"] >= 0]
    if not stamps[runs, WAITING].all():
        raise ValueError("the trace has no times (the stand-in has no clock)")
    # Subtract as whole nanoseconds: since 1970 they are too large for a double. Signed: a body that starts early may do so before any waits.
    zero = stamps[runs, WAITING].min()
    times = np.where(stamps > 0, (stamps.astype(np.int64) - np.int64(zero)).astype(np.float64) / 1e3, np.nan)
    tasks, before = [], {}
    for i in runs:
        veu, entry = rows[i]
        task = Task(veu, entry["rop"], entry["phase"], entry["index"], entry["waits"], entry["signal"], *times[i].tolist(), before.get(veu))
        before[veu] = task
        tasks.append(task)
    return tasks


def last_producers(tasks):
    """event -> the task whose signal came last."""
    last = {}
    for task in tasks:
        if task.signal >= 0 and task.signalled == task.signalled and (task.signal not in last or task.signalled > last[task.signal].signalled):
            last[task.signal] = task
    return last


def producer_of(task, producers):
    """The rTask whose signal `task` waited for last, or None."""
    known = [producers[event] for event in task.waits if event in producers]
    return max(known, key=lambda producer: producer.signalled, default=None)


def label(plan, rop, phase):
    return plan["rops"][rop]["name"] + (f".{phase}" if phase else "")


# --- the three summaries ---------------------------------------------------------------------------------------------------


def division(plan, tasks):
    """How the time of all vEUs divides, in us of one vEU: computing; starting (inputs ready, body not yet begun); edges (the last
    producer has computed, its signal is on its way); producers (they still compute); idle (nothing left to run)."""
    span = max(task.computed for task in tasks)
    veus = len(plan["lanes"])
    producers = last_producers(tasks)
    parts = dict.fromkeys(("computing", "starting", "edges", "producers", "idle"), 0.0)
    for task in tasks:
        free = max(task.free, 0.0) if task.before else 0.0
        parts["computing"] += task.computed - task.begin
        gap = task.begin - free
        # The gap before a task is divided from its end backwards: starting, then the edge; in the rest, producers still compute.
        starting = min(gap, max(0.0, task.begin - max(task.ready, free)))
        producer = producer_of(task, producers)
        edge = min(gap - starting, max(0.0, task.ready - producer.computed)) if producer else 0.0
        parts["starting"] += starting
        parts["edges"] += edge
        parts["producers" if producer else "starting"] += gap - starting - edge
    parts["idle"] = span * veus - sum(parts.values())
    return {"span_us": span, "veus": veus, "us_of_a_veu": {key: value / veus for key, value in parts.items()}}


def critical_path(plan, tasks):
    """Steps from the first to the last rTask: {name, computing us, gap us before it, by: 'signal' | 'vEU' | 'begin'}."""
    producers = last_producers(tasks)
    task = max(tasks, key=lambda t: t.computed)
    steps = []
    while task is not None:
        producer = producer_of(task, producers)
        waited = producer is not None and (task.before is None or producer.signalled > task.before.computed)
        previous = producer if waited else task.before
        steps.append({"name": label(plan, task.rop, task.phase), "rkernel": plan["rops"][task.rop]["rkernel"], "veu": task.veu, "computing_us": task.computed - task.begin,
                      "gap_us": task.begin - (previous.computed if previous else 0.0), "by": "begin" if previous is None else "signal" if waited else "vEU"})
        task = previous
    return steps[::-1]


def family_of(rkernel):
    return rkernel.split("<")[0].split(",")[0]


def summary(plan, tasks):
    """The numbers of a trace, for a report."""
    steps = critical_path(plan, tasks)
    families = {}
    for step in steps:
        entry = families.setdefault(family_of(step["rkernel"]), [0, 0.0])
        entry[0] += 1
        entry[1] += step["computing_us"]
    largest = sorted(steps, key=lambda step: -step["computing_us"])[:5]
    return {**division(plan, tasks), "path": {
        "steps": len(steps), "computing_us": sum(step["computing_us"] for step in steps), "gaps_us": sum(step["gap_us"] for step in steps),
        "families": {name: {"steps": n, "computing_us": us} for name, (n, us) in sorted(families.items(), key=lambda item: -item[1][1])},
        "largest": [{key: step[key] for key in ("name", "rkernel", "computing_us")} for step in largest]}}


# --- printing --------------------------------------------------------------------------------------------------------------


def edge_of(task, producers):
    """Time from the last signal to inputs ready, if the task waited for that signal."""
    if not task.waits or not all(event in producers for event in task.waits):
        return None
    came = producer_of(task, producers).signalled
    return task.ready - came if task.waiting < came else None


def median(values):
    values = [value for value in values if value is not None and value == value]
    return float(np.median(values)) if values else float("nan")


def print_rops(plan, tasks):
    producers = last_producers(tasks)
    groups = {}
    for task in tasks:
        groups.setdefault((task.rop, task.phase), []).append(task)
    print(f"{'rOperator':34} {'rKernel':40} {'tasks':>5} {'begin':>7} {'end':>7} {'level':>6} {'comp':>6} {'max':>6} {'edge':>5} {'start':>5} {'sig':>5}")
    last = 0.0
    for (rop, phase), mine in sorted(groups.items()):
        end = max(task.computed for task in mine)
        comp = [task.computed - task.begin for task in mine]
        name = plan["rops"][rop]["name"][-30:] + (f".{phase}" if phase else "")
        print(f"{name:34} {plan['rops'][rop]['rkernel'][:40]:40} {len(mine):5} {min(task.started for task in mine):7.1f} {end:7.1f} {end - last:6.1f} {median(comp):6.2f} {max(comp):6.2f} "
              f"{median([edge_of(task, producers) for task in mine]):5.2f} {median([task.begin - task.ready for task in mine]):5.2f} {median([task.signalled - task.computed for task in mine]):5.2f}")
        last = max(last, end)


def print_path(steps):
    print(f"\ncritical path, {len(steps)} rTasks, back from the last to end; gap: from the rTask before it to its own begin")
    print(f"{'rOperator':44} {'rKernel':40} {'vEU':>4} {'gap':>6} {'comp':>6} after")
    for step in steps:
        print(f"{step['name'][-44:]:44} {step['rkernel'][:40]:40} {step['veu']:4} {step['gap_us']:6.2f} {step['computing_us']:6.2f} {step['by']}")


def print_summary(numbers):
    parts, span, path = numbers["us_of_a_veu"], numbers["span_us"], numbers["path"]
    says = {"computing": "in bodies (waiting for weights and for boxes of inputs is inside, it has no stamp of its own)", "starting": "inputs are there, the body has not begun",
            "edges": "the last producer has computed, its signal is on its way", "producers": "waiting for inputs whose producers still compute", "idle": "nothing left to run"}
    print(f"\ntime of {numbers['veus']} vEUs")
    for key, value in parts.items():
        print(f"  {key:10} {100 * value / span:5.1f} %  {value:7.1f} us of a vEU   {says[key]}")
    print(f"critical path: {path['steps']} rTasks, {path['computing_us']:.1f} us computing, {path['gaps_us']:.1f} us between them")
    for name, family in path["families"].items():
        print(f"  {name:28} {family['steps']:4} rTasks {family['computing_us']:7.1f} us")
    print(f"span {span:.1f} us; computing {100 * parts['computing'] / span:.1f} % of {numbers['veus']} vEUs' time, the rest waits or is idle")


def chrome_events(plan, tasks):
    """Chrome's trace format: one track a vEU, one slice a rTask."""
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": plan["name"]}}
    for veu in range(len(plan["lanes"])):
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": veu, "args": {"name": f"vEU {veu}"}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": veu, "args": {"sort_index": veu}}
    for task in tasks:
        rkernel = plan["rops"][task.rop]["rkernel"]
        yield {"ph": "X", "name": label(plan, task.rop, task.phase), "cat": family_of(rkernel), "pid": 0, "tid": task.veu, "ts": round(task.begin, 3),
               "dur": round(task.computed - task.begin, 3),
               "args": {"rKernel": rkernel, "rTask": task.index, "inputs ready": round(task.ready, 3), "waited from": round(task.free, 3)}}


def load(plan_path, trace_path):
    """-> plan, tasks"""
    plan = json.loads(pathlib.Path(plan_path).read_text())
    return plan, tasks_of(plan, np.fromfile(trace_path, np.uint64))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=pathlib.Path, help="NAME.rprogram.json")
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--chrome", type=pathlib.Path, help="write a file for chrome://tracing or ui.perfetto.dev")
    parser.add_argument("--brief", action="store_true", help="only how the time divides")
    args = parser.parse_args()
    plan, tasks = load(args.plan, args.trace)
    if not args.brief:
        print_rops(plan, tasks)
        print_path(critical_path(plan, tasks))
    if args.chrome:
        args.chrome.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": list(chrome_events(plan, tasks))}))
    print_summary(summary(plan, tasks))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Fits the costs of products: "staged_conv" and "implicit_gemm" of "costs" in compiler/ir/vdevices/h200.json (docs/vdevices.md).

    python3 test/bench/calibrate.py --tamp build/release/bin/tamp --models FOLDER NAME...     trace on a GPU, write records, fit
    python3 test/bench/calibrate.py --fit                                                     fit the records that are there

Traces the networks (FOLDER as test/gpu/measure.py says), and writes for each kind of rTask one JSON line: {device, precision, body, template
arguments, steps, input_bytes, tasks, cycles, ...}. `cycles` is the time from the later of the stamps `inputs ready` and `started` to `computed`: the
median over the rTasks of a rOperator, the mean over traces, in cycles of the vDevice's clock, by which select/cost.cpp divides. A kind that several
rOperators share has one line (`rops` counts them, `cycles` is their median). Then, for each body and its template arguments, the program fits by
least squares of the relative error

    cycles = fixed + step * steps + input_byte * input_bytes        (no coefficient below zero)

and prints the 5, 50 and 95 % points of fit / measured. Only kernels that were chosen are traced: a shape without records keeps its costs.
rOperators with more than one rTask per vEU are left out of the fit, since all but the first find their code in the caches."""
import argparse, collections, concurrent.futures, json, os, pathlib, statistics, subprocess, sys, tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "gpu"), str(HERE)]
import measure
import report
import trace as traces

RECORDS = HERE / "records"

# How many steps a body repeats, from its numbers and template arguments; bodies that are not here are recorded without steps and not fitted.
STEPS = {
    "rk::staged_conv": lambda numbers, _: numbers["steps"],
    "rk::implicit_gemm": lambda numbers, template: numbers["steps_per_split"] * (2 if template.get("GATHER") == "1" else 1),
}
# Template arguments that follow from the tile, or do not change the amount of work: a fit ignores them.
SAME_COST = {"rk::implicit_gemm": ("A_STAGES", "CHUNK_STEPS", "GATHER")}
KIND = ("device", "precision", "body", "template", "steps", "input_bytes", "tasks")


# --- records ---------------------------------------------------------------------------------------------------------------


def records_of(plan, tasks, device, ghz):
    """One record for each phase of each rOperator."""
    groups = collections.defaultdict(list)
    for task in tasks:
        groups[task.rop, task.phase].append(task.computed - task.begin)
    for (rop, number), times in sorted(groups.items()):
        phase = plan["rops"][rop]["phases"][number]
        count = STEPS.get(phase["body"])
        yield {"device": device, "precision": plan["precision"], "body": phase["body"], "template": phase["template"],
               "steps": count(phase["numbers"], phase["template"]) if count else None, "input_bytes": phase["input_bytes"], "tasks": phase["rtasks"],
               "cycles": statistics.median(times) * ghz * 1e3, "estimated_cycles": round(phase["estimated_cycles"]), "veus": len(plan["lanes"])}


def mean_of_traces(runs):
    """Lists of the same records from several traces -> one list, with the mean of the cycles."""
    return [{**same[0], "cycles": statistics.fmean(record["cycles"] for record in same)} for same in zip(*runs)]


def merged(records):
    """One record for all records of a kind, with the number of rOperators."""
    kinds = collections.defaultdict(list)
    for record in records:
        kinds[json.dumps([record[key] for key in KIND])].append(record)
    out = [{**same[0], "cycles": round(statistics.median(record["cycles"] for record in same)), "rops": len(same)} for same in kinds.values()]
    return sorted(out, key=lambda record: json.dumps([record["body"], record["template"], record["steps"], record["input_bytes"], record["tasks"]]))


# --- the fit ---------------------------------------------------------------------------------------------------------------


def fit(columns, measured):
    """Least squares of the relative error, no coefficient below zero -> coefficients (0 where a column does not help)."""
    columns, measured = np.asarray(columns, float), np.asarray(measured, float)
    used = [i for i in range(columns.shape[1]) if i == 0 or np.ptp(columns[:, i]) > 0]
    while True:
        found, *_ = np.linalg.lstsq(columns[:, used] / measured[:, None], np.ones(len(measured)), rcond=None)
        if len(used) == 1 or found.min() >= 0:
            break
        used.pop(int(np.argmin(found)))
    out = np.zeros(columns.shape[1])
    out[used] = found
    return out


def fit_kinds(records):
    """(precision, body, template arguments that change the cost) -> records that can be fitted."""
    kinds = collections.defaultdict(list)
    for record in records:
        if record["steps"] is None or record["tasks"] > record["veus"]:
            continue
        same = SAME_COST.get(record["body"], ())
        template = ", ".join(f"{key} {value}" for key, value in record["template"].items() if key not in same)
        kinds[record["precision"], record["body"], template].append(record)
    return kinds


def print_fits(records, least):
    print(f"{'precision':9} {'body':20} {'template':56} {'kinds':>5} {'fixed':>7} {'step':>7} {'byte':>7}   fit / measured 5 50 95 %    estimate / measured 5 50 95 %")
    for (precision, body, template), rows in sorted(fit_kinds(records).items()):
        head = f"{precision:9} {body:20} {template:56} {len(rows):5}"
        if len(rows) < least:
            print(f"{head}   too few")
            continue
        columns = np.array([[1, row["steps"], row["input_bytes"]] for row in rows], float)
        cycles = np.array([row["cycles"] for row in rows], float)
        found = fit(columns, cycles)
        estimates = np.array([row["estimated_cycles"] for row in rows], float)
        points = lambda ratios: "  ".join(f"{point:.2f}" for point in np.percentile(ratios, [5, 50, 95]))
        print(f"{head} {found[0]:7.0f} {found[1]:7.1f} {found[2]:7.4f}   {points(columns @ found / cycles):24}    {points(estimates / cycles) if estimates.all() else 'none'}")


# --- tracing ---------------------------------------------------------------------------------------------------------------


def build(args, work, name):
    out = work / f"{name}-{args.precision}"
    measure.timed([args.tamp, "compile", args.models / f"{name}.onnx", "-o", out, "--vdevice", args.vdevice, "--precision", args.precision, "--policy", args.policy, "-q"])
    measure.build_runner(out, name, args.arch, ["-DTAMP_TRACE"])
    return out


def trace_network(args, out, name, meta, ghz):
    arguments, _, _ = measure.arguments_of(out, args.models, name, meta)
    runs = []
    for _ in range(args.traces):
        done, _ = measure.timed([out / "runner", *arguments, "--repeat", "20", "--trace", out / "trace.bin"])
        device = next(line.split(None, 1)[1] for line in done.stdout.splitlines() if line.startswith("device "))
        runs.append(list(records_of(*traces.load(out / f"{name}.rprogram.json", out / "trace.bin"), device, ghz)))
    return mean_of_traces(runs)


def trace_all(args):
    metas = {name: json.loads((args.models / f"{name}.weights.json").read_text()) for name in args.names}
    ghz = report.vdevice(args.vdevice)["clock_ghz"]
    records, failed = [], 0
    with tempfile.TemporaryDirectory(prefix="tamp-calibrate-") as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda name: measure.make_weights(args.models, name, metas[name]), args.names))
        jobs = {name: pool.submit(build, args, pathlib.Path(folder), name) for name in args.names}
        concurrent.futures.wait(jobs.values())
        for name, job in jobs.items():
            try:
                found = trace_network(args, job.result(), name, metas[name], ghz)
                records += found
                print(f"{name}: {len(found)} records", flush=True)
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as problem:  # the others' records are still good
                failed += 1
                print(f"{name}: failed: {str(problem)[-500:]}", flush=True)
    return merged(records), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", type=pathlib.Path)
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--fit", action="store_true", help="only fit the records that are there")
    parser.add_argument("--records", type=pathlib.Path, help="default: test/bench/records/VDEVICE.jsonl")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--policy", default="wavefront")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--traces", type=int, default=3)
    parser.add_argument("--least", type=int, default=5, help="kinds that a fit needs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    path, failed = args.records or RECORDS / f"{args.vdevice}.jsonl", 0
    if not args.fit:
        if not (args.tamp and args.models and args.names):
            parser.error("--tamp, --models and names of networks are needed to trace; --fit fits what is there")
        args.tamp = args.tamp.resolve()
        records, failed = trace_all(args)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    print_fits([json.loads(row) for row in path.read_text().splitlines()], args.least)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

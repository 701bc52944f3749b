#!/usr/bin/env python3
"""Runs NVIDIA's compute-sanitizer over generated programs, on a GPU: every tool over every model in both executions.

    python3 test/gpu/sanitize.py --tamp build/release/bin/tamp --vdevice h200 [--precisions tf32,fp16] [--tools synccheck] [--work DIR] MODEL.onnx...

Prints a table with the number of reports, and every distinct report with its places in the sources: a line of NAME.cu is shown as the file of
kernels/ that it came from, with its text. The tools' own output stays in DIR. The exit code is 1 if there was any report, or a run failed.
racecheck-each is racecheck over the same program built so that each thread arrives at barriers for itself. docs/sanitizers.md says which reports to
expect, and why. Inputs are random; the answers are not checked.

Under a tool a program takes 10 to 1000 times as long, so the budget of its waits is an hour."""
import argparse, collections, json, os, pathlib, re, shutil, subprocess, sys, tempfile

import numpy as np

import measure

TOOLS = ("memcheck", "racecheck", "racecheck-each", "synccheck", "initcheck")
EACH = ["-DTAMP_EACH_THREAD_ARRIVES"]  # how the program of racecheck-each is built
EXECUTIONS = ("persistent", "graph")
ELEMENTS = {"f16": "e", "bf16": "u2", "f32": "f4", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "bool": "?"}
PLACE = re.compile(r"([^\s:]+\.(?:cu|cuh|cpp|h)):(\d+)")


def source_places(text, name):
    """For each line of a generated .cu (from 1): the file that the line came from, and its text."""
    places, file = [None], name
    for line in text.splitlines():
        if line.startswith("// >>> "):
            file = line.removeprefix("// >>> ")
        places.append((file, line.strip()))
        if line.startswith("// <<< "):
            file = name
    return places


def reports_of(log, places):
    """What a tool printed -> {(kind, ((file, text), ...)): how many}. A report is a line after "========= " and the indented ones that follow."""
    found = collections.Counter()
    entries = []
    for line in log.splitlines():
        if not line.startswith("========="):
            continue
        text = line.removeprefix("=========")
        if text.startswith("     ") and entries:
            entries[-1].append(text.strip())
        elif text.strip():
            entries.append([text.strip()])
    for entry in entries:
        head = re.sub(r"^(Error|ERROR|Warning|WARNING): ", "", entry[0])
        if head == "COMPUTE-SANITIZER" or " SUMMARY" in head:
            continue
        body = [line for line in entry[1:] if line.startswith(("at ", "and ", "in "))]
        kinds = [head, *(line for line in body if line.startswith("and "))]
        kind = ", ".join(re.split(r" at | \[", words)[0] for words in kinds)
        where = []
        for path, number in (match for line in (head, *body) for match in PLACE.findall(line)):
            known = path.endswith(".cu") and int(number) < len(places)
            where.append(places[int(number)] if known else (f"{pathlib.Path(path).name}:{number}", ""))
        hazards = sum(int(count) for line in entry for count in re.findall(r"\[(\d+) hazards?\]", line))
        found[kind, tuple(where)] += max(hazards, 1)
    return found


def random_inputs(plan, folder):
    """A file of raw bytes for each input of an rprogram.json -> arguments of the runner."""
    generator, arguments = np.random.default_rng(1), []
    for i, port in enumerate(plan["inputs"]):
        kind = ELEMENTS[port["dtype"]]
        values = generator.standard_normal(port["shape"]) if kind in ("e", "f4", "f8") else generator.integers(0, 2, port["shape"])
        values.astype(kind).tofile(folder / f"in{i}.bin")
        arguments += ["--input", folder / f"in{i}.bin"]
    return arguments + [word for i in range(len(plan["outputs"])) for word in ("--output", folder / f"out{i}.bin")]


def sanitized(tool, folder, name, arguments, limit):
    """-> reports, and why the run failed (or None). The tool's output stays in folder/TOOL.log."""
    log = folder / f"{tool}.log"
    command = ["compute-sanitizer", "--tool", tool.removesuffix("-each"), "--show-backtrace", "no", "--print-limit", "0", "--log-file", log, "--error-exitcode", "99",
               folder / ("runner-each" if tool.endswith("-each") else "runner"), *arguments, "--wait-budget", "3600"]
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit)
        failure = None if done.returncode in (0, 99) else f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
    except subprocess.TimeoutExpired:
        failure = f"took longer than {limit} s"
    text = log.read_text(errors="replace") if log.exists() else ""
    if failure is None and "SUMMARY" not in text:
        failure = "the tool wrote no summary"
    return reports_of(text, source_places((folder / f"{name}.cu").read_text(), f"{name}.cu")), failure


def table(rows):
    """Rows of {model, precision, execution, tool, reports, failure} -> Markdown."""
    lines = ["| tool | model | precision | execution | reports | distinct |", "|---|---|---|---|---|---|"]
    for row in rows:
        count = row["failure"] or str(sum(row["reports"].values()))
        lines.append(f"| {row['tool']} | {row['model']} | {row['precision']} | {row['execution']} | {count} | {len(row['reports'])} |")
    for tool in TOOLS:
        total = collections.Counter()
        for row in rows:
            if row["tool"] == tool:
                total.update(row["reports"])
        if total:
            lines += ["", f"{tool}: {len(total)} distinct"]
        for (kind, where), count in total.most_common():
            lines.append(f"- {count} x {kind}")
            lines += [f"  - {file}" + (f": `{text}`" if text else "") for file, text in where]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True)
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--precisions", default="tf32")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--executions", default=",".join(EXECUTIONS))
    parser.add_argument("--limit", type=float, default=900, help="seconds for one tool over one program")
    parser.add_argument("--work", type=pathlib.Path, default=None)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    if shutil.which("compute-sanitizer") is None:
        os.environ["PATH"] += os.pathsep + "/usr/local/cuda/bin"
    if shutil.which("compute-sanitizer") is None:
        sys.exit("compute-sanitizer is not in PATH: it is a part of the CUDA Toolkit")
    work = args.work or pathlib.Path(tempfile.mkdtemp(prefix="tamp-sanitize-"))
    rows = []
    for model in args.models:
        for precision in args.precisions.split(","):
            for execution in args.executions.split(","):
                folder, name = work / f"{model.stem}-{precision}-{execution}", model.stem
                done = subprocess.run([args.tamp, "compile", model, "-o", folder, "--name", name, "--vdevice", args.vdevice, "--precision", precision, "--execution", execution, "-q"],
                                      capture_output=True, text=True)
                if done.returncode != 0:
                    print(f"{name}, {precision}, {execution}: {done.stderr.strip()}", flush=True)  # such as gangs, which have no graph execution
                    continue
                plan = json.loads((folder / f"{name}.rprogram.json").read_text())
                measure.build_runner(folder, name, plan["vdevice"]["arch"], ["-lineinfo"])
                if "racecheck-each" in args.tools.split(","):
                    measure.build_runner(folder, name, plan["vdevice"]["arch"], ["-lineinfo", *EACH], "runner-each")
                arguments = random_inputs(plan, folder)
                for tool in args.tools.split(","):
                    reports, failure = sanitized(tool, folder, name, arguments, args.limit)
                    rows.append({"model": name, "precision": precision, "execution": execution, "tool": tool, "reports": reports, "failure": failure})
                    print(f"{name}, {precision}, {execution}, {tool}: {failure or sum(reports.values())}", flush=True)
    print(table(rows))
    print(f"logs: {work}")
    return 1 if not rows or any(row["reports"] or row["failure"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

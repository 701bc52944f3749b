#!/usr/bin/env python3
"""Compares tamp with what a user would pick instead, on one GPU, by one command:

    python3 test/bench/bench.py --tamp build/release/bin/tamp --models FOLDER --out results.json --table table.md --plot plot.svg NAME...
        [--precisions tf32,fp16] [--peers eager,compile,compile-replay,max-autotune] [--executions persistent,graph] [--traces]

FOLDER is as test/gpu/measure.py says. Answers are checked first: relative L2 error against the expected outputs, 200 runs bitwise equal, two
instances at once, and the same as a CUDA graph. A row whose answer was not right has no time. All programs are timed as replays of a CUDA graph:
the median over 7 rounds of the mean of 50 replays back to back. Peers (test/gpu/peers.py) run in programs of their own, alone on the GPU. If a
peer fails, is not the ONNX file's network, or takes longer than --peer-seconds, the results say so. --peer-jobs N first lets N peers at a time
fill the compilers' caches, untimed. --traces adds a traced run of each network (how vEUs' time divides, the critical path). Results are written
after each network."""
import argparse, concurrent.futures, datetime, json, os, pathlib, signal, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "gpu"), str(HERE)]
import measure
import report
import trace as traces

PEER_NAMES = ("eager", "compile", "compile-replay", "max-autotune")
REPLAYS = 50


# --- the machine and the program -------------------------------------------------------------------------------------------


def says(*command, cwd=None):
    """What a command prints, or None if it cannot be run."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=30, cwd=cwd)
        return done.stdout.strip() if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None


def gpu_state():
    fields = ("name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "temperature.gpu")
    line = says("nvidia-smi", "-i", "0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return dict(zip(fields, (word.strip() for word in line.splitlines()[0].split(",")))) if line else {}


def facts(args):
    version = says("nvcc", "--version") or ""
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "command": sys.argv,
            "tamp": says(args.tamp, "--version"), "commit": args.commit or says("git", "rev-parse", "HEAD", cwd=HERE),
            "changed_files": len((says("git", "status", "--porcelain", cwd=HERE) or "").splitlines()), "nvcc": version.splitlines()[-1] if version else None,
            "gpu": gpu_state(), "repeat": args.repeat, "replays": REPLAYS}


# --- tamp ------------------------------------------------------------------------------------------------------------------


def build(args, work, name, precision, execution):
    more = [] if execution == "persistent" else ["--execution", execution]
    row = measure.build(args.tamp, args.models, name, precision, args.vdevice, args.arch, work / execution, args.policy, more)
    if args.traces and execution == "persistent":
        measure.build_runner(work / execution / f"{name}-{precision}", name, args.arch, ["-DTAMP_TRACE"], "tracer")
    return row


def traced(args, work, name, precision, meta):
    out = work / "persistent" / f"{name}-{precision}"
    arguments, _, _ = measure.arguments_of(out, args.models, name, meta)
    measure.timed([out / "tracer", *arguments, "--repeat", "20", "--trace", out / "trace.bin"])
    return traces.summary(*traces.load(out / f"{name}.rprogram.json", out / "trace.bin"))


def tamp_row(args, work, name, precision, execution, job, meta):
    """Checks, then times; there is a time only if every answer was right."""
    row = {"model": name, "precision": precision, "execution": execution}
    try:
        row.update(job.result())
        checks = measure.run(work / execution, args.models, name, precision, meta, args.repeat)
        row["error"], row["bar"] = max(check["error"] for check in checks.values()), checks["plain"]["bar"]
        if not all(check["good"] for check in checks.values()):
            row["failure"] = f"wrong answer: error {row['error']:.1e}, bar {row['bar']:.1e}"
            return row
        row["us"], row["single_us"] = checks["graph"]["train_us"], checks["plain"]["median_us"]
        row["floor"] = report.floor(measure.work_of(args.models / f"{name}.onnx"), precision, row["waves"], report.vdevice(args.vdevice))
        if args.traces and execution == "persistent":
            row["trace"] = traced(args, work, name, precision, meta)
    except Exception as problem:  # one network's failure must not hide the others' results
        row["failure"] = str(problem)[-1500:]
    return row


# --- peers -----------------------------------------------------------------------------------------------------------------


def run_limited(command, seconds, environment=None):
    """-> (JSON lines that the peer printed, what went wrong or None). Lines printed before the time was up count."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, **(environment or {})})
    problem = None
    try:
        printed, errors = process.communicate(timeout=seconds)
        if process.returncode != 0:
            problem = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1][:300]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the whole session: also compilers that the peer started
        printed, _ = process.communicate()
        problem = f"took longer than {seconds} s"
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")], problem


def peer_row(name, precision, peer, lines, problem, flops):
    """`flops`: of the ONNX file's convolutions and products, None: not compared."""
    row = {"model": name, "precision": precision, "peer": peer, "layouts": {}}
    for line in lines:
        if "flops" in line:
            row["versions"] = {key: line[key] for key in ("torch", "cuda", "cudnn") if key in line}
            if flops and abs(line["flops"] / flops - 1) > 0.01:
                row["failure"] = f"another network: {line['flops'] / 1e9:.3f} GFLOP, the ONNX file has {flops / 1e9:.3f}"
                return row
        elif "us" in line:
            row["layouts"][line["layout"]] = line["us"]
            row["prepare_s"] = row.get("prepare_s", 0) + line.get("prepare_s", 0)
        elif "failure" in line:
            row["failure"] = f"{line['layout']}: {line['failure']}"
    if problem and "failure" not in row:
        row["failure"] = problem
    if row["layouts"]:
        row["us"] = min(row["layouts"].values())
    return row


def peer_command(args, name, precision, peer):
    return [args.python, HERE.parent / "gpu/peers.py", name, "--precision", precision, "--peer", peer]


# --- all of it -------------------------------------------------------------------------------------------------------------


def show(row):
    what = f"{row['model']:20} {row['precision']:5} {row.get('peer') or 'tamp ' + row['execution']:16}"
    print(what, f"{row['us']:9.1f} us" if "us" in row else "   no time  ", row.get("failure", "")[-400:].replace("\n", " "), flush=True)


def write(args, results):
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    if args.table:
        args.table.write_text(report.tables(results))


def measure_all(args, work):
    metas = {name: json.loads((args.models / f"{name}.weights.json").read_text()) for name in args.names}
    for execution in args.executions:
        (work / execution).mkdir()
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(work / "inductor")}
    wanted = [(name, precision, peer) for name in args.names for precision in args.precisions for peer in args.peers if f"{peer}:{name}" not in args.skip]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda name: measure.make_weights(args.models, name, metas[name]), args.names))
        jobs = {key: pool.submit(build, args, work, *key) for key in [(n, p, e) for n in args.names for p in args.precisions for e in args.executions]}
        concurrent.futures.wait(jobs.values())
    if args.peer_jobs > 0:
        with concurrent.futures.ThreadPoolExecutor(args.peer_jobs) as pool:
            compiled = [key for key in wanted if key[2] != "eager"]
            list(pool.map(lambda key: run_limited([*peer_command(args, *key), "--prepare"], args.peer_seconds, environment), compiled))
    results = {"facts": facts(args), "rows": [], "peers": []}
    for name in args.names:
        for precision in args.precisions:
            for execution in args.executions:
                results["rows"].append(tamp_row(args, work, name, precision, execution, jobs[name, precision, execution], metas[name]))
                show(results["rows"][-1])
            for peer in [key[2] for key in wanted if key[:2] == (name, precision)]:
                lines, problem = run_limited(peer_command(args, name, precision, peer), args.peer_seconds, environment)
                flops = None if measure.is_recurrent(name) else measure.work_of(args.models / f"{name}.onnx")[0]
                results["peers"].append(peer_row(name, precision, peer, lines, problem, flops))
                show(results["peers"][-1])
        results["facts"]["gpu_at_the_end"] = gpu_state()
        write(args, results)
    return results


def words(text):
    return [word for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True, type=pathlib.Path)
    parser.add_argument("--models", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, help="write Markdown tables")
    parser.add_argument("--plot", type=pathlib.Path, help="draw an SVG (needs matplotlib)")
    parser.add_argument("--precisions", type=words, default=["tf32"])
    parser.add_argument("--peers", type=words, default=["eager", "compile"], help=f"of {', '.join(PEER_NAMES)}; '' for none")
    parser.add_argument("--skip", type=words, default=[], help="PEER:NAME,... that are left out")
    parser.add_argument("--executions", type=words, default=["persistent"])
    parser.add_argument("--traces", action="store_true")
    parser.add_argument("--peer-seconds", type=float, default=120)
    parser.add_argument("--peer-jobs", type=int, default=0)
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--policy", default="best")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--repeat", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    parser.add_argument("--commit", help="tamp's commit, where this is no clone of the repository")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    if unknown := [peer for peer in args.peers if peer not in PEER_NAMES]:
        parser.error(f"unknown peer '{unknown[0]}'; there are {', '.join(PEER_NAMES)}")
    args.tamp = args.tamp.resolve()
    with tempfile.TemporaryDirectory(prefix="tamp-bench-") as work:
        results = measure_all(args, pathlib.Path(work))
    if args.plot:
        import plot_bench
        plot_bench.draw(results, args.plot)
    print(report.summary_line(results))
    failed = sum("failure" in row for row in results["rows"])
    print(f"{len(results['rows']) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

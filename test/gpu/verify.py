#!/usr/bin/env python3
"""Verifies one version of tamp on a GPU, in a given time: all of test/e2e/gpu_test.py, and networks in tf32, fp16 and bf16.

    python3 test/gpu/verify.py --tamp build/release/bin/tamp --commit COMMIT [--seconds 480] [--out test/gpu/verified.json] [--folder FOLDER] [--no-tests] [NAME...]

The networks are those of examples/models, of torchvision and timm (test/gpu/export.py) and of transformers (test/gpu/export_hf.py). In the first part of the
time all processors work: models are exported, compiled and built, and the tests run. Then the machine is quiet, and one program after another runs:
its answer is compared with ONNX Runtime's, all runs must be bitwise equal, and the median of their times is taken. The limit of an error is a multiple
of `noise`, what rounding in that precision makes, as a file of export.py says it, but at least two roundings of the result; of the examples it is FIXED.

What the time does not suffice for is listed as not run, with the reason, and counts neither as passed nor as failed. --out gets the commit, date, device,
driver, nvcc, the tests and a row for each network and precision; test/bench/page.py shows it. The last line is "N passed, N failed, N not run"."""
import argparse, concurrent.futures, datetime, json, os, pathlib, statistics, subprocess, sys, tempfile, threading, time, traceback

import numpy as np
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "test/e2e")]
import measure

PRECISIONS = ["tf32", "fp16", "bf16"]
EXAMPLES = ["mnist_mlp", "squeezenet1_0", "resnet18"]
EXPORTED = ["resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b_16", "seq2seq", "convnext_tiny", "swin_t", "mobilenet_v3_large", "deepspeech2", "resnext29_16x64d", "regnet_y_400mf",
            "shufflenet_v2_x1_0", "poolformer_s12", "densenet121", "inception_v3"]
TRANSFORMERS = ["bert", "gpt2_step", "llama_step", "distilbert", "dinov2", "clip_text"]
FIXED = {"tf32": 5e-3, "fp16": 5e-3, "bf16": 4e-2}
ROUNDED_TWICE = {"tf32": 2.0 ** -10, "fp16": 2.0 ** -10, "bf16": 2.0 ** -7}
# By how much an error may be above the noise of a product's operands. Layers of transformers have few products between the rows that they add up, and
# those are rounded, too.
OF_NOISE = {"export": 2, "transformers": 3}
REPEAT = 100


class NotRun(Exception):
    """The time is over, or what this needs failed before it."""


class Clock:
    def __init__(self, seconds):
        self.begin, self.seconds = time.monotonic(), seconds

    def spent(self):
        return time.monotonic() - self.begin

    def left(self, until):
        """Seconds until that share of the time is over; NotRun if it is."""
        left = until * self.seconds - self.spent()
        if left < 1:
            raise NotRun("the time was over")
        return left


BUILDS_BEGIN, BUILDS_END, RUNS_END = 0.8, 0.86, 0.98  # shares of the time


def within(clock, until, call):
    """What the call returns, whose argument is how many seconds it may take. A command that the time does not suffice for was not run."""
    try:
        return call(clock.left(until))
    except subprocess.TimeoutExpired:
        raise NotRun("the time was over") from None


def started(clock, command, until):
    return within(clock, until, lambda seconds: measure.timed([str(word) for word in command], limit_s=seconds))


# --- networks ----------------------------------------------------------------------------------------------------------


def make_example(clock, folder, name):
    """The files of test/gpu/measure.py for one of examples/models."""
    started(clock, [sys.executable, ROOT / "examples/make_weights.py", ROOT / f"examples/models/{name}.onnx", "--into", folder], BUILDS_BEGIN)
    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    inputs = {entry.name: np.random.default_rng(1).standard_normal(entry.shape, dtype=np.float32) for entry in session.get_inputs()}
    np.savez(folder / f"{name}.inputs.npz", **inputs)
    np.savez(folder / f"{name}.expected.npz", **{entry.name: values for entry, values in zip(session.get_outputs(), session.run(None, inputs))})
    (folder / f"{name}.weights.json").write_text(json.dumps({"inputs": [[n, list(values.shape), "f"] for n, values in inputs.items()]}))


def make_model(clock, folder, source, name):
    if source == "example":
        return make_example(clock, folder, name)
    script = "export.py" if source == "export" else "export_hf.py"
    try:
        started(clock, [sys.executable, HERE / script, folder, name], BUILDS_BEGIN)
    except RuntimeError as failure:  # says nothing about tamp
        raise NotRun(f"{script} did not make the model: {str(failure)[-300:]}") from None


def limit_of(source, meta, precision):
    return FIXED[precision] if source == "example" else max(OF_NOISE[source] * meta["noise"][precision], ROUNDED_TWICE[precision])


def build(clock, tamp, folder, name, precision, vdevice):
    """Compiles and builds the program in FOLDER/NAME-PRECISION -> seconds that nvcc took."""
    out = folder / f"{name}-{precision}"
    started(clock, [tamp, "compile", folder / f"{name}.onnx", "-o", out, "--vdevice", vdevice, "--precision", precision, "-q"], BUILDS_BEGIN)
    arch = json.loads((out / f"{name}.rprogram.json").read_text())["vdevice"]["arch"]
    clock.left(BUILDS_BEGIN)
    return within(clock, BUILDS_END, lambda seconds: measure.build_runner(out, name, arch, limit_s=seconds))[1]


def run(clock, folder, source, name, precision):
    """The row of a program that was built."""
    meta = json.loads((folder / f"{name}.weights.json").read_text())
    out, limit = folder / f"{name}-{precision}", limit_of(source, meta, precision)
    arguments, outputs, expected = measure.arguments_of(out, folder, name, meta)
    done, _ = started(clock, [out / "runner", *arguments, "--repeat", REPEAT, "--graph", "--train", 20], RUNS_END)
    got = np.concatenate([measure.values_of(path, value.size) for path, value in zip(outputs, expected)])
    want = np.concatenate([value.astype(np.float64).ravel() for value in expected])
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    times, trains = ([float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(word)] for word in ("run ", "train "))
    return {"error": float(f"{error:.3g}"), "limit": float(f"{limit:.3g}"), "good": bool(error <= limit), "median_us": round(statistics.median(times), 1),
            "train_us": round(statistics.median(trains), 1), "equal_runs": len(times)}  # the runner ends with an error at the first run that differs


# --- tests -------------------------------------------------------------------------------------------------------------


def run_test(clock, tamp, test):
    """"passed", "failed" or "not run", and why."""
    import harness

    try:
        clock.left(BUILDS_BEGIN)
        with tempfile.TemporaryDirectory(prefix="tamp-test-") as folder:
            test(harness.Tamp(tamp, folder))
        return "passed", ""
    except NotRun as why:
        return "not run", str(why)
    except subprocess.TimeoutExpired:
        return "not run", "the time was over"
    except Exception as failure:
        return "failed", str(failure)[-1500:] or traceback.format_exc()[-1500:]


def limit_tests(clock):
    """Each start of tamp in a test ends with the first part of the time."""
    import harness

    class Limited(harness.Tamp):
        def __call__(self, *args, **kwargs):
            harness.RUN_SECONDS = clock.left(BUILDS_END)
            return super().__call__(*args, **kwargs)

    harness.Tamp = Limited


# --- all ---------------------------------------------------------------------------------------------------------------


def first_line(command, word=""):
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return next((line.strip() for line in lines if word in line), "unknown")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True, type=pathlib.Path)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "verified.json")
    parser.add_argument("--folder", type=pathlib.Path, help="for models and programs; default: a temporary one")
    parser.add_argument("--vdevice", default="auto")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("names", nargs="*", help="of networks; default: all")
    args = parser.parse_args()
    clock = Clock(args.seconds)
    tamp = args.tamp.resolve()
    folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="tamp-verify-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    os.environ.setdefault("OMP_NUM_THREADS", "4")  # of exports, several of which run at a time
    device, driver = (first_line(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]) for field in ("name", "driver_version"))
    networks = [(source, name) for source, names in (("example", EXAMPLES), ("export", EXPORTED), ("transformers", TRANSFORMERS)) for name in names if not args.names or name in args.names]
    result = {"commit": args.commit, "date": datetime.date.today().isoformat(), "device": device, "driver": driver, "nvcc": first_line(["nvcc", "--version"], "release"),
              "seconds": 0, "tests": {"passed": 0, "failed": [], "not_run": []}, "rows": []}

    def save():
        result["seconds"] = round(clock.spent())
        args.out.write_text(json.dumps(result, indent=1) + "\n")

    # Everything that keeps processors busy.
    cores = os.cpu_count() or 1
    tests = []
    if not args.no_tests:
        import gpu_test

        limit_tests(clock)
        tests = gpu_test.TESTS
    with concurrent.futures.ThreadPoolExecutor(max(2, cores * 5 // 8)) as builders, concurrent.futures.ThreadPoolExecutor(max(2, cores * 5 // 8)) as testers:
        answers = [(test.__name__, testers.submit(run_test, clock, tamp, test)) for test in tests]
        made = {name: builders.submit(make_model, clock, folder, source, name) for source, name in networks}

        def after(name, precision):
            """Its model is made by a job that began before, so nobody waits for what cannot begin."""
            made[name].result()
            return build(clock, tamp, folder, name, precision, args.vdevice)

        built = {(name, precision): builders.submit(after, name, precision) for _, name in networks for precision in PRECISIONS}
        for name, answer in answers:
            outcome, why = answer.result()
            print(f"{outcome} {name} {why}", flush=True)
            if outcome == "passed":
                result["tests"]["passed"] += 1
            else:
                result["tests"]["failed" if outcome == "failed" else "not_run"].append({"test": name, "why": why})
        save()
        concurrent.futures.wait(built.values())
    print(f"built after {clock.spent():.0f} s", flush=True)

    # One at a time, on a quiet machine.
    for source, name in networks:
        for precision in PRECISIONS:
            row = {"network": name, "source": source, "precision": precision}
            try:
                row["nvcc_s"] = round(built[name, precision].result(), 1)
                row.update(run(clock, folder, source, name, precision))
            except NotRun as why:
                row["not_run"] = str(why)
            except Exception as failure:  # one network's failure must not hide the others' results
                row.update(good=False, failure=str(failure)[-1500:])
            result["rows"].append(row)
            print(json.dumps(row), flush=True)
    save()
    not_run = len(result["tests"]["not_run"]) + sum("not_run" in row for row in result["rows"])
    failed = len(result["tests"]["failed"]) + sum(row.get("good") is False for row in result["rows"])
    passed = result["tests"]["passed"] + sum(row.get("good") is True for row in result["rows"])
    print(f"{clock.spent():.0f} s, {args.out}")
    print(f"{passed} passed, {failed} failed, {not_run} not run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

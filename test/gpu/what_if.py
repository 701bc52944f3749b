#!/usr/bin/env python3
"""Measures a network's time as if a part of the work took no time. This bounds what can be gained by improving that part.

    python3 test/gpu/what_if.py --tamp build/release/bin/tamp --models FOLDER [--precision tf32] [--batch N] NAME...

FOLDER is as test/gpu/measure.py says. For each variant the lines in VARIANTS are removed from the generated source. The program still waits and
signals as before; its answers are wrong on purpose, so only its time is used. It is an error if the source does not have one of these lines. Times are the median of 3 rounds of 100 replays of a CUDA graph, variants taking turns.

  weights   the loader says that weights are there and copies none
  boxes     the waiter says that boxes of inputs are there and copies none
  copies    both
  steps     staged_conv multiplies nothing
  all       all of these: what is left are waits, sums, stores and signals"""
import argparse, concurrent.futures, json, os, pathlib, statistics, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import measure

WEIGHTS = [("copy_weights(stages + stage * Veu::kWeightStageBytes, from, bytes, control.full[stage], policy);", "arrive(control.full[stage]);")]
BOXES = [
    ('asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");', ""),
    ("copies.copy(input, place);", 'asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(copies.full) : "memory");'),
]
STEPS = [
    (f"product.template steps<{count}>(inputs.stages, inputs.base, weights.stages, weights.base, {rows}args.step_row, step_row);", "{}" if rows == "" else "")
    for count in ("Product::kBatch", "1")
    for rows in ("rows, ", "")
] + [("product.template begin<SET>(inputs.stages, inputs.base + row, weights.stages, weights.base);", "(void)row;")]
VARIANTS = {"as it is": [], "weights": WEIGHTS, "boxes": BOXES, "copies": WEIGHTS + BOXES, "steps": STEPS, "all": WEIGHTS + BOXES + STEPS}


def changed(source, variant):
    for old, new in VARIANTS[variant]:
        if old not in source:
            raise ValueError(f"variant '{variant}': the generated source has no '{old}'")
        source = source.replace(old, new)
    return source


def build(out, name, arch, variant):
    """The variant's program, in a folder of its own beside `out`."""
    folder = out.parent / f"{name}-{variant.replace(' ', '_')}"
    folder.mkdir()
    for path in out.iterdir():
        if path.name != f"{name}.cu":
            os.link(path, folder / path.name)
    (folder / f"{name}.cu").write_text(changed((out / f"{name}.cu").read_text(), variant))
    measure.build_runner(folder, name, arch)
    return folder / "runner"


def train_us(runner, arguments):
    done, _ = measure.timed([runner, *arguments, "--repeat", "1", "--graph", "--train", "100"])
    return statistics.median(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("train "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--batch", type=int, help="first extent of all inputs; default: what the file says")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    print("| model | " + " | ".join(VARIANTS) + " |\n|" + "---|" * (len(VARIANTS) + 1))
    with tempfile.TemporaryDirectory(prefix="tamp-what-if-") as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name in args.names:
            out = pathlib.Path(folder) / name
            meta = json.loads((args.models / f"{name}.weights.json").read_text())
            measure.make_weights(args.models, name, meta)
            measure.timed([args.tamp.resolve(), "compile", args.models / f"{name}.onnx", "-o", out, "--vdevice", args.vdevice, "--precision", args.precision, "-q", *(["--batch", str(args.batch)] if args.batch else [])])
            arguments, _, _ = measure.arguments_of(out, args.models, name, meta, args.batch)
            runners = list(pool.map(lambda variant: build(out, name, args.arch, variant), VARIANTS))
            rounds = [[train_us(runner, arguments) for runner in runners] for _ in range(3)]
            print(f"| {name} | " + " | ".join(f"{statistics.median(times):.1f}" for times in zip(*rounds)) + " |", flush=True)


if __name__ == "__main__":
    main()

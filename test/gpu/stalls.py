#!/usr/bin/env python3
"""Shows which instructions a network's kernel waits at, and what for, as Nsight Compute samples them.

    python3 test/gpu/stalls.py --tamp build/release/bin/tamp --models FOLDER NAME --precision fp16 [--vdevice h200] [--least 20]

Needs nvcc, ncu and a GPU whose counters may be read; FOLDER is as for measure.py. Prints a line per machine instruction with at least
`--least` samples: its number, its samples, the instruction, and the reasons that make up a tenth of them or more (PTX's and SASS's names:
wait: a result of fixed latency; short_scoreboard: shared memory; long_scoreboard: global memory or an mbarrier; no_instructions: code is on
its way; gmma, warpgroup_arrive: wgmma). All warps of all vEUs are sampled, so samples of one instruction compare with those of another one
of the same warps. The kernel takes about 1.3 times as long while it is sampled."""
import argparse, csv, io, json, pathlib, re, subprocess, tempfile

import measure

REASONS = ["no_instructions", "gmma", "wait", "short_scoreboard", "long_scoreboard", "barrier", "branch_resolving", "math_pipe_throttle",
           "mio_throttle", "dispatch_stall", "imc_miss", "membar", "selected", "not_selected", "sleeping", "misc", "warpgroup_arrive",
           "lg_throttle"]
PREFIX, ALL = "smsp__pcsamp_warps_issue_stalled_", "group:smsp__pcsamp_warp_stall_reasons"


def sampled(folder, command):
    """The page of all instructions, as ncu prints it."""
    report = folder / "samples.ncu-rep"
    subprocess.run(["ncu", "--metrics", ",".join([ALL, *(PREFIX + reason for reason in REASONS)]), "--warp-sampling-interval", "0",
                    "--clock-control", "none", "--launch-skip", "2", "--launch-count", "1", "--force-overwrite", "--export", report, *command],
                   check=True, capture_output=True)
    return subprocess.run(["ncu", "--import", report, "--page", "source", "--csv", "--print-source", "sass"], check=True, capture_output=True,
                          text=True).stdout


def instructions(page):
    """(number, text, samples, {reason: samples}) of each instruction; branch targets are numbers, too."""
    names, rows = [], []
    for row in csv.reader(io.StringIO(page)):
        if row and row[0] == "Address":
            names = [name.removeprefix(PREFIX) for name in row]
        elif row and row[0].startswith("0x"):
            rows.append(row)
    first = int(rows[0][0], 16)
    for number, row in enumerate(rows):
        samples = {name: int(count) for name, count in zip(names[2:], row[2:]) if count.isdigit()}
        text = re.sub(r"0x[0-9a-f]{12}", lambda at: f"@{(int(at[0], 16) - first) // 16}", row[1].strip())
        yield number, text, samples.pop(ALL), samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--least", type=int, default=20)
    parser.add_argument("name")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tamp-stalls-") as temporary:
        folder = pathlib.Path(temporary)
        meta = json.loads((args.models / f"{args.name}.weights.json").read_text())
        if not (args.models / f"{args.name}.inputs.npz").exists():
            measure.make_weights(args.models, args.name, meta)
        subprocess.run([args.tamp.resolve(), "compile", args.models / f"{args.name}.onnx", "-o", folder, "--vdevice", args.vdevice, "--precision",
                        args.precision, "-q"], check=True)
        measure.build_runner(folder, args.name, "sm_90a", [])
        arguments, _, _ = measure.arguments_of(folder, args.models, args.name, meta)
        page = sampled(folder, [folder / "runner", *arguments, "--repeat", "5"])
    for number, text, samples, reasons in instructions(page):
        if samples < args.least:
            continue
        most = sorted((reason for reason in reasons.items() if reason[1] * 10 >= samples), key=lambda reason: -reason[1])
        print(f"{number:6} {samples:7}  {text[:80]:80} {' '.join(f'{name}={count}' for name, count in most)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares what `tamp compile` estimates with what was measured. Needs no GPU.

    python3 test/bench/estimates.py --tamp build/release/bin/tamp --models FOLDER [NAME...]

The measured times are those of test/bench/page.json, taken on an H200. Prints a Markdown row for each network, precision and batch whose
model is in FOLDER (NAME.onnx with its weights), the worst first, and how many estimates are more than 15 % off. With NAMEs, these networks alone.
A row compares today's estimate with the time of the commit that was measured, so it says the more, the less the program has changed since."""
import argparse, json, pathlib, re, subprocess, sys, tempfile

DATA = pathlib.Path(__file__).resolve().parent / "page.json"
BAR = 0.15  # of the measured time


def estimate_us(tamp, model, row, folder):
    """-> the estimate, or raises RuntimeError with what tamp said."""
    batch = ["--batch", str(row["batch"])] if row["batch"] != 1 else []
    command = [tamp, "compile", model, "--vdevice", "h200", "--precision", row["precision"], "-o", folder, "--dry-run", *batch]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    found = re.findall(r"estimated ([\d.]+) us", done.stderr)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-500:]}")
    return float(found[-1])


def compared(tamp, models, rows):
    """-> (row, estimate in us, how far off as a part of the measured time) of each row whose model is there, the worst first."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            model = models / f"{row['model']}.onnx"
            if model.exists():
                us = estimate_us(tamp, model, row, pathlib.Path(folder) / "out")
                found.append((row, us, us / row["us"] - 1))
    return sorted(found, key=lambda each: -abs(each[2]))


def table(found):
    lines = ["| network | precision | batch | measured us | estimate us | off |", "|---|---|---|---|---|---|"]
    lines += [f"| {row['model']} | {row['precision']} | {row['batch']} | {row['us']} | {us} | {off:+.0%} |" for row, us, off in found]
    return "\n".join([*lines, "", f"{sum(abs(off) > BAR for _, _, off in found)} of {len(found)} estimates are more than {BAR:.0%} off"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tamp", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    rows = json.loads(DATA.read_text())["rows"]
    print(table(compared(args.tamp, args.models, [row for row in rows if not args.names or row["model"] in args.names])))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures everything on the first page of docs/performance.md, and writes the page's tables and plot.

    python3 test/bench/page.py --tamp build/release/bin/tamp --models FOLDER [NAME...]      measure on a GPU beside PyTorch, then write
    python3 test/bench/page.py                                                              write the page from test/bench/page.json and test/gpu/verified.json

Measurements are in test/bench/page.json, a row for each network, precision and batch: {model, precision, batch, us, error, bar, day, peers}. A
peer is {who, us, run}; run is "same" if the peer was measured in tamp's own run, else it says where the number is from. Measuring a row again
replaces tamp's time and the peers of that run; peers of other runs stay, since the best known peer counts. With NAMEs only these networks are
measured. FOLDER is as test/gpu/measure.py says; networks of torchvision that are missing there are exported first (test/gpu/export.py)."""
import argparse, datetime, json, pathlib, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERIFIED = ROOT / "test/gpu/verified.json"
DATA, PAGE, PLOT = HERE / "page.json", ROOT / "docs/performance.md", ROOT / "docs/images/best_peer.svg"

CNNS = ["squeezenet1_0", "alexnet", "resnet18", "resnet50", "resnext50_32x4d", "resnext29_16x64d", "inception_v3", "mobilenet_v2", "nasnet_a_cifar", "randwire_ws32"]
MORE_CNNS = ["efficientnet_b0", "mobilenet_v3_large", "regnet_y_400mf", "convnext_tiny"]
TRANSFORMERS = ["bert_base_s128", "vit_b_16", "swin_t"]
RECURRENT = ["lstm_l10_h256_t100", "seq2seq", "deepspeech2"]
SMALL = ["mnist_mlp"]
BATCHED = ["squeezenet1_0", "resnet50", "mobilenet_v2", "inception_v3", "bert_base_s128", "vit_b_16"]
EXPORTED = {*MORE_CNNS, "swin_t"}
# (names, precisions, batch) of one run of measure.py.
RUNS = [
    (CNNS + MORE_CNNS + TRANSFORMERS, ["tf32", "fp16"], 1),
    (RECURRENT, ["fp32", "tf32", "fp16"], 1),
    (SMALL, ["fp32", "tf32"], 1),
    (BATCHED, ["tf32", "fp16"], 8),
    (BATCHED, ["tf32", "fp16"], 32),
]
PEER_NAMES = {"pytorch_graph_us": "eager in a CUDA graph", "pytorch_compile_us": "torch.compile"}


def key_of(row):
    return row["model"], row["precision"], row["batch"]


def rows_of(results, batch, day):
    """Rows of what measure.py --out wrote. A network that failed, or whose answer was wrong, has no row."""
    rows = []
    for name, row in results.items():
        model, precision = name.split()
        if "failure" in row or not all(row[part]["good"] for part in ("plain", "two_instances", "graph")):
            continue
        peers = [{"who": who, "us": round(row[field], 1), "run": "same"} for field, who in PEER_NAMES.items() if row.get(field)]
        error, bar = (float(f"{row['plain'][field]:.3g}") for field in ("error", "bar"))
        rows.append({"model": model, "precision": precision, "batch": batch, "us": round(row["graph"]["train_us"], 1), "error": error, "bar": bar, "day": day, "peers": peers})
    return rows


def merged(old, new):
    """The rows of both. If a row is in both, the new one counts, with those of the old one's peers that were faster or are not in the new one."""
    rows = {key_of(row): row for row in old}
    for row in new:
        before = rows.get(key_of(row), {"peers": []})
        kept = [dict(peer, run=before["day"] if peer["run"] == "same" else peer["run"]) for peer in before["peers"]]
        least = {peer["who"]: peer["us"] for peer in row["peers"]}
        older = {}
        for peer in sorted(kept, key=lambda peer: -peer["us"]):  # the fastest of each name is the last
            if peer["who"] not in least or peer["us"] < least[peer["who"]]:
                older[peer["who"]] = peer
        rows[key_of(row)] = dict(row, peers=row["peers"] + list(older.values()))
    order = {name: i for i, name in enumerate(CNNS + MORE_CNNS + TRANSFORMERS + RECURRENT + SMALL)}
    return sorted(rows.values(), key=lambda row: (row["batch"], order.get(row["model"], len(order)), row["model"], row["precision"]))


def best_peer(row):
    return min(row["peers"], key=lambda peer: peer["us"], default=None)


def ratio(row):
    peer = best_peer(row)
    return peer["us"] / row["us"] if peer else None


def cells(row):
    """tamp, the best peer (* where it is of another run), and how many times faster tamp is."""
    if row is None:
        return ["", "", ""]
    peer = best_peer(row)
    if peer is None:
        return [f"{row['us']:.1f}", "", ""]
    times = f"{ratio(row):.2f}"
    return [f"{row['us']:.1f}", f"{peer['us']:.1f}{'' if peer['run'] == 'same' else ' *'} {peer['who']}", f"**{times}**" if ratio(row) >= 1 else times]


def table(rows, names, batch, precisions):
    by_key = {key_of(row): row for row in rows}
    head = ["network"] + [text for precision in precisions for text in (f"{precision}: tamp us", "best peer us", "times faster")]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in names:
        found = [by_key.get((name, precision, batch)) for precision in precisions]
        if any(found):
            lines.append(f"| {name} | " + " | ".join(text for row in found for text in cells(row)) + " |")
    return "\n".join(lines)


def geometric_mean(rows, names, precision, batch=1):
    found = [ratio(row) for row in rows if row["model"] in names and row["precision"] == precision and row["batch"] == batch and ratio(row)]
    product = 1.0
    for value in found:
        product *= value
    return f"{product ** (1 / len(found)):.2f} ({len(found)} networks)" if found else "not measured"


def verified_cell(row):
    if row is None:
        return ""
    if "not_run" in row:
        return "not run"
    return f"{row['median_us']:.1f} us, {row['error']:.1e} of {row['limit']:.1e}" if row["good"] else "**failed**" if "failure" in row else f"**wrong**, {row['error']:.1e} of {row['limit']:.1e}"


def verified(found):
    """What test/gpu/verified.json says, or that there is none."""
    if found is None:
        return "No run is recorded."
    rows, tests = {(row["network"], row["precision"]): row for row in found["rows"]}, found["tests"]
    good, bad, left_out = (sum(check(row) for row in rows.values()) for check in (lambda r: r.get("good") is True, lambda r: r.get("good") is False, lambda r: "not_run" in r))
    lines = [f"Commit {found['commit']} on {found['date']}, {found['device']}, driver {found['driver']}, {found['nvcc']}, in {found['seconds']} s. Tests of test/e2e/gpu_test.py: {tests['passed']} passed, "
             f"{len(tests['failed'])} failed, {len(tests['not_run'])} not run. Programs: {good} right, {bad} wrong or failed, {left_out} not run."]
    for what in ("failed", "not_run"):
        if tests[what]:
            lines.append(f"\nTests {what.replace('_', ' ')}: {', '.join(row['test'] for row in tests[what])}.")
    precisions = list(dict.fromkeys(precision for _, precision in rows))
    lines += ["", f"| network | {' | '.join(precisions)} |", "|---|" + "---|" * len(precisions)]
    lines += [f"| {name} | {' | '.join(verified_cell(rows.get((name, precision))) for precision in precisions)} |" for name in dict.fromkeys(name for name, _ in rows)]
    return "\n".join(lines)


def sections(rows):
    means = ", ".join(f"{geometric_mean(rows, CNNS, precision)} in {precision}" for precision in ("tf32", "fp16"))
    return {
        "cnns": table(rows, CNNS + MORE_CNNS, 1, ["tf32", "fp16"]) + f"\n\nGeometric mean over the first ten: {means}.",
        "transformers": table(rows, TRANSFORMERS, 1, ["tf32", "fp16"]),
        "recurrent": table(rows, RECURRENT + SMALL, 1, ["fp32", "tf32", "fp16"]),
        "batch8": table(rows, BATCHED, 8, ["tf32", "fp16"]),
        "batch32": table(rows, BATCHED, 32, ["tf32", "fp16"]),
        "verified": verified(json.loads(VERIFIED.read_text()) if VERIFIED.exists() else None),
    }


def filled(page, rows):
    for name, text in sections(rows).items():
        begin, end = f"<!-- page:{name} -->\n", f"<!-- page:end -->"
        if begin not in page:
            raise ValueError(f"the page has no '{begin.strip()}'")
        at = page.index(begin) + len(begin)
        page = page[:at] + text + "\n" + page[page.index(end, at):]
    return page


def draw(rows, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tamp"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    shown = [(batch, name) for batch, names in ((1, CNNS + MORE_CNNS + TRANSFORMERS + RECURRENT + SMALL), (8, BATCHED), (32, BATCHED)) for name in names]
    by_key = {key_of(row): row for row in rows}
    shown = [(batch, name) for batch, name in shown if any(row and ratio(row) for row in (by_key.get((name, p, batch)) for p in ("tf32", "fp16")))]
    figure, axis = plt.subplots(figsize=(12, 4.8))
    for precision, shift, color in (("tf32", -0.2, "tab:blue"), ("fp16", 0.2, "tab:orange")):
        points = [(i + shift, ratio(by_key[name, precision, batch])) for i, (batch, name) in enumerate(shown) if (name, precision, batch) in by_key and ratio(by_key[name, precision, batch])]
        axis.bar([x for x, _ in points], [y - 1 for _, y in points], 0.4, bottom=1, label=precision, color=color)  # from 1 up or down
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_yscale("log", base=2)
    axis.set_ylim(0.3, 40)
    axis.set_yticks([0.5, 1, 2, 4, 8, 16, 32], ["1/2", "1", "2", "4", "8", "16", "32"])
    axis.set_ylabel("times faster than the best peer known")
    axis.set_xticks(range(len(shown)), [name + ("" if batch == 1 else f", batch {batch}") for batch, name in shown], rotation=60, ha="right", fontsize=7)
    axis.legend(fontsize=8)
    axis.grid(axis="y", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def measure(args, data):
    missing = [name for name in EXPORTED if (not args.names or name in args.names) and not (args.models / f"{name}.onnx").exists()]
    if missing:
        subprocess.run([sys.executable, ROOT / "test/gpu/export.py", args.models, *missing], check=True)
    day = datetime.date.today().isoformat()
    failed = 0
    for names, precisions, batch in RUNS:
        names = [name for name in names if not args.names or name in args.names]
        if not names:
            continue
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [sys.executable, ROOT / "test/gpu/measure.py", "--tamp", args.tamp, "--models", args.models, "--precisions", ",".join(precisions), "--repeat", "200", "--out", out.name]
            command += (["--batch", str(batch)] if batch > 1 else []) + ([] if args.no_compile else ["--compile-peers"]) + names
            failed += subprocess.run(list(map(str, command))).returncode != 0
            new = rows_of(json.loads(pathlib.Path(out.name).read_text() or "{}"), batch, day)
        data["rows"] = merged(data["rows"], new)
        DATA.write_text(json.dumps(data, indent=1) + "\n")  # after each run: the next one may be cut off
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", type=pathlib.Path, help="without it nothing is measured")
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes a minute a network")
    parser.add_argument("--no-plot", action="store_true", help="for machines without matplotlib")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    data = json.loads(DATA.read_text())
    if (args.tamp is None) != (args.models is None):
        parser.error("--tamp and --models go together")
    failed = measure(args, data) if args.tamp else 0
    PAGE.write_text(filled(PAGE.read_text(), data["rows"]))
    if not args.no_plot:
        draw(data["rows"], PLOT)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

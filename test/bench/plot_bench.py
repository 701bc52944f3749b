#!/usr/bin/env python3
"""Draws what bench.py measured.

    python3 test/bench/plot_bench.py results.json... --out docs/images/cnn_batch1.svg [--precision tf32]      (needs matplotlib)

Each network has a pair of bars, for tamp and its best peer, and the number says how many times faster tamp is."""
import argparse, pathlib, sys, textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import report


def rows_to_draw(results, precision=None):
    """The rows with a time of tamp and of a peer, of one precision, the fastest execution of each network."""
    precision = precision or results["rows"][0]["precision"]
    best = {}
    for row in results["rows"]:
        if row["precision"] == precision and report.ratio(results, row) and ("us" not in best.get(row["model"], {}) or row["us"] < best[row["model"]]["us"]):
            best[row["model"]] = row
    return list(best.values())


def draw(results, path, precision=None):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tamp"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    rows = rows_to_draw(results, precision)
    if not rows:
        print("no network has a time of tamp and of a peer: nothing to draw", file=sys.stderr)
        return
    figure, axis = plt.subplots(figsize=(max(8, 1.2 * len(rows) + 1), 4.6))
    peers = [report.best_peer(results, row) for row in rows]
    places = range(len(rows))
    axis.bar([x - 0.2 for x in places], [row["us"] for row in rows], 0.4, label="tamp", color="tab:blue")
    axis.bar([x + 0.2 for x in places], [us for _, us in peers], 0.4, label="best peer", color="tab:grey")
    for x, row, (name, us) in zip(places, rows, peers):
        axis.annotate(f"{us / row['us']:.2f}x\n{name}", (x + 0.2, us), xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8)
        axis.annotate(f"{row['us']:.0f}", (x - 0.2, row["us"]), xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8)
    axis.margins(y=0.15)
    axis.set_ylabel("us an inference")
    axis.set_xticks(list(places), [row["model"] for row in rows], rotation=25, ha="right", fontsize=8)
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axis.grid(axis="y", alpha=0.3)
    axis.set_title("\n".join(textwrap.wrap(f"Batch 1, {rows[0]['precision']}; {report.versions_line(results)}", 110)), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--precision", help="default: the first")
    args = parser.parse_args()
    draw(report.read(args.results), args.out, args.precision)


if __name__ == "__main__":
    main()

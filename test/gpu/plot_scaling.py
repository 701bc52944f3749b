#!/usr/bin/env python3
"""Draws what recurrent_scaling.py measured: python3 test/gpu/plot_scaling.py scaling.json docs/images/recurrent_scaling.svg (needs matplotlib)"""
import json
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "tamp"  # the same file from the same numbers
import matplotlib.pyplot as plt

BASE = {"hidden": 256, "layers": 4, "steps": 100, "batch": 1}
COLOURS = {"fp32": "tab:blue", "fp16": "tab:orange", "bf16": "tab:green", "tf32": "tab:red"}


def main():
    data = json.load(open(sys.argv[1]))
    rows = [row for row in data["rows"] if row.get("good")]
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.8), sharey=True)
    for axis, dimension in zip(axes, BASE):
        others = {key: value for key, value in BASE.items() if key != dimension}
        for precision in dict.fromkeys(row["precision"] for row in rows):
            points = sorted((row[dimension], row["tamp_us"], row["cudnn_us"]) for row in rows
                            if row["precision"] == precision and all(row[key] == value for key, value in others.items()))
            if not points:
                continue
            x, ours, cudnn = zip(*points)
            axis.plot(x, ours, "o-", color=COLOURS[precision], label=f"tamp {precision}")
            axis.plot(x, cudnn, "s--", color=COLOURS[precision], alpha=0.5, label=f"cuDNN {precision}")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks([row[dimension] for row in rows if all(row[key] == value for key, value in others.items())])
        axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
        axis.minorticks_off()
        axis.set_xlabel(dimension)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("us an inference")
    axes[0].legend(fontsize=8)
    figure.suptitle(f"LSTM, around hidden 256, 4 layers, 100 steps, batch 1; {data['device']}, PyTorch {data['torch']}, cuDNN {data['cudnn']}", fontsize=10)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()

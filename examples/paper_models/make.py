#!/usr/bin/env python3
"""Makes the networks of the two papers behind tamp, for `tamp compare --paper`: python3 make.py ios|rammer|all [NETWORK..] [--into DIR]

    python3 examples/paper_models/make.py ios --into paper_models
    tamp compare --paper ios --models paper_models

Writes PAPER_NETWORK.onnx and its weights, random but equal on every machine: DIR/ios_squeezenet.onnx, DIR/rammer_lstm.onnx, ... Needs the Python package
onnx. With --no-weights only the graphs, which `python3 examples/make_weights.py DIR/*.onnx` completes on a machine that has Python alone.
"""
import argparse
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]

import ios
import rammer
from make_weights import write_weights

PAPERS = {"ios": ios.NETWORKS, "rammer": rammer.NETWORKS}


def chosen(paper, names):
    papers = PAPERS if paper == "all" else {paper: PAPERS[paper]}
    found = [(p, name, make) for p, networks in papers.items() for name, make in networks.items() if not names or name in names]
    missing = sorted(set(names) - {name for _, name, _ in found})
    if missing:
        known = ", ".join(name for networks in papers.values() for name in networks)
        raise SystemExit(f"error: {paper} has no network '{missing[0]}'; it has {known}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paper", choices=[*PAPERS, "all"])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="only these; default: all of the paper's")
    parser.add_argument("--into", type=pathlib.Path, default=pathlib.Path("paper_models"), metavar="DIR", help="folder to write (paper_models)")
    parser.add_argument("--no-weights", action="store_true", help="leave the weights to make_weights.py")
    arguments = parser.parse_intermixed_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    for _, _, make in chosen(arguments.paper, arguments.networks):
        network = make()
        path = network.save(arguments.into)
        if not arguments.no_weights:
            write_weights(path, arguments.into)
        print(f"{path}: {len(network.nodes)} nodes, {network.count('Conv')} convolutions, {network.macs / 1e9:.3f} GMAC, {network.parameters() / 1e6:.2f} M weights",
              flush=True)


if __name__ == "__main__":
    main()

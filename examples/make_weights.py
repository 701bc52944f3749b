#!/usr/bin/env python3
"""Writes the weights of the example models: python3 make_weights.py MODEL.onnx... [--into DIR]

examples/models holds real networks as PyTorch exported them, without their 5 to 47 MB of weights. MODEL.weights.json says
which numbers each tensor needs to keep every activation of order 1: uniform between `low` and `high`, so answers are not
those of a trained network, but every operator has real work. The numbers are the same on every machine. Needs nothing but
Python's standard library; with numpy it is faster. With --into, the model is copied there too, so that its weights lie beside it.
"""
import argparse
import array
import json
import math
import pathlib
import random
import shutil
import sys
import zlib

try:
    import numpy
except ImportError:
    numpy = None


def values(tensor):
    # random.random() of a seeded generator is part of Python's promise: the same on every version and machine. numpy's RandomState is the same
    # generator, frozen like it.
    seed, count = zlib.crc32(tensor["name"].encode()), math.prod(tensor["shape"])
    low, width = tensor["low"], tensor["high"] - tensor["low"]
    if numpy:
        return (low + width * numpy.random.RandomState([seed]).random_sample(count)).astype("<f4")
    uniform = random.Random(seed).random
    numbers = array.array("f", [low + width * uniform() for _ in range(count)])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def write_weights(model, folder):
    description = json.loads(model.with_suffix(".weights.json").read_text())
    path = folder / description["file"]
    size = sum(4 * math.prod(tensor["shape"]) for tensor in description["tensors"])
    if folder != model.parent:
        shutil.copyfile(model, folder / model.name)
    if path.exists() and path.stat().st_size == size:
        return path
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        for tensor in description["tensors"]:
            values(tensor).tofile(file)
    partial.rename(path)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--into", type=pathlib.Path, help="folder for the weights and a copy of the model; default: beside the model")
    arguments = parser.parse_args()
    for model in arguments.models:
        folder = arguments.into or model.parent
        folder.mkdir(parents=True, exist_ok=True)
        path = write_weights(model, folder)
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

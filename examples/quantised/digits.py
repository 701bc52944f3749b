#!/usr/bin/env python3
"""From a float model to a checked program of few bits: trains a small convolutional network on scikit-learn's digits (seconds, in numpy), exports it, lets ONNX
Runtime quantise it in several ways, runs each with tamp, and prints how many digits of the test set each gets right.

    digits.py [FOLDER] [--device cpu|cuda] [--tamp PROGRAM]     writes the models into FOLDER (default: here)

Needs numpy, onnx, onnxruntime, what requirements.txt says, and `tamp` in PATH."""
import argparse
import logging
import pathlib
import subprocess

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from sklearn.datasets import load_digits

CHANNELS, HIDDEN, CLASSES, TESTED = 16, 64, 10, 360
EPOCHS, BATCH, RATE = 12, 32, 2e-3
ALLOWED = 0.005  # of the test set: two digits


# --- a network in numpy ------------------------------------------------------------------------------------------------


def patches(x):
    """The 3x3 surroundings of each pixel: [images, 8, 8, 9]."""
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    return np.stack([wide[:, i:i + 8, j:j + 8] for i in range(3) for j in range(3)], axis=-1)


def pooled(x):
    """The largest of 2x2 pixels, and where it was."""
    blocks = x.reshape(len(x), 4, 2, 4, 2, CHANNELS)
    most = blocks.max(axis=(2, 4), keepdims=True)
    return most[:, :, 0, :, 0], blocks == most


def train(x, labels):
    random = np.random.default_rng(1)
    shapes = {"conv": (9, CHANNELS), "conv_bias": (CHANNELS,), "first": (CHANNELS * 16, HIDDEN), "first_bias": (HIDDEN,), "last": (HIDDEN, CLASSES), "last_bias": (CLASSES,)}
    w = {name: random.standard_normal(shape) * (np.sqrt(2 / shape[0]) if len(shape) == 2 else 0) for name, shape in shapes.items()}
    mean, square = {name: 0 for name in w}, {name: 0 for name in w}
    step = 0
    for _ in range(EPOCHS):
        order = random.permutation(len(x))
        for at in range(0, len(x), BATCH):
            chosen = order[at:at + BATCH]
            near = patches(x[chosen])
            maps = np.maximum(near @ w["conv"] + w["conv_bias"], 0)
            small, where = pooled(maps)
            flat = small.transpose(0, 3, 1, 2).reshape(len(chosen), -1)  # channels first, as ONNX has them
            hidden = np.maximum(flat @ w["first"] + w["first_bias"], 0)
            scores = hidden @ w["last"] + w["last_bias"]
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
            d = share / share.sum(axis=1, keepdims=True)
            d[np.arange(len(chosen)), labels[chosen]] -= 1
            d /= len(chosen)
            slopes = {"last": hidden.T @ d, "last_bias": d.sum(axis=0)}
            d = (d @ w["last"].T) * (hidden > 0)
            slopes |= {"first": flat.T @ d, "first_bias": d.sum(axis=0)}
            d = (d @ w["first"].T).reshape(len(chosen), CHANNELS, 4, 4).transpose(0, 2, 3, 1)
            d = (where * d[:, :, None, :, None]).reshape(maps.shape) * (maps > 0)
            slopes |= {"conv": np.einsum("nhwk,nhwc->kc", near, d), "conv_bias": d.sum(axis=(0, 1, 2))}
            step += 1
            for name, slope in slopes.items():  # Adam
                mean[name] = 0.9 * mean[name] + 0.1 * slope
                square[name] = 0.999 * square[name] + 0.001 * slope ** 2
                w[name] = w[name] - RATE * (mean[name] / (1 - 0.9 ** step)) / (np.sqrt(square[name] / (1 - 0.999 ** step)) + 1e-8)
    return {name: values.astype(np.float32) for name, values in w.items()}


def export(w, path):
    node = helper.make_node
    weights = {**w, "conv": w["conv"].T.reshape(CHANNELS, 1, 3, 3)}
    nodes = [node("Conv", ["images", "conv", "conv_bias"], ["maps"], "conv", kernel_shape=[3, 3], pads=[1] * 4), node("Relu", ["maps"], ["active"], "relu"),
             node("MaxPool", ["active"], ["small"], "pool", kernel_shape=[2, 2], strides=[2, 2]), node("Flatten", ["small"], ["flat"], "flatten"),
             node("MatMul", ["flat", "first"], ["product"], "first"), node("Add", ["product", "first_bias"], ["sum"], "first_sum"), node("Relu", ["sum"], ["hidden"], "relu2"),
             node("MatMul", ["hidden", "last"], ["product2"], "last"), node("Add", ["product2", "last_bias"], ["scores"], "last_sum")]
    graph = helper.make_graph(nodes, "digits", [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 1, 8, 8])],
                              [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", CLASSES])], [numpy_helper.from_array(values, name) for name, values in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, path)


# --- quantised by ONNX Runtime -----------------------------------------------------------------------------------------


class Calibration(quantization.CalibrationDataReader):
    """What static quantisation takes the ranges of activations from: images of the training set."""

    def __init__(self, x):
        self.batches = iter([{"images": x[at:at + 100]} for at in range(0, 500, 100)])

    def get_next(self):
        return next(self.batches, None)


def static(given, made, x):
    quantization.quantize_static(given, made, Calibration(x), quant_format=quantization.QuantFormat.QDQ, activation_type=quantization.QuantType.QUInt8,
                                 weight_type=quantization.QuantType.QInt8, per_channel=True)


def dynamic(given, made, x):
    """Weights of 7 bits: on processors without VNNI, ONNX Runtime's sums of u8 times s8 overflow with 8."""
    quantization.quantize_dynamic(given, made, weight_type=quantization.QuantType.QInt8, reduce_range=True)


def four_bits(given, made, x):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    quantizer = MatMulNBitsQuantizer(onnx.load(given), block_size=32, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(made))


WAYS = {"8 bits, static (QDQ)": static, "8 bits, dynamic": dynamic, "weights of 4 bits": four_bits}


# --- and compared ------------------------------------------------------------------------------------------------------


def onnxruntime_scores(path, x):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"images": x})[0]


def tamp_scores(tamp, device, path, x):
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    np.save(folder / "images.npy", x)
    words = [tamp, "run", path, "--device", device, "--batch", str(len(x)), "--input", f"images={folder}/images.npy", "--output-dir", folder, "--check", "-q"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    print(path.stem, *[line for line in done.stdout.splitlines() if line.startswith("check")], flush=True)
    return np.load(folder / "scores.npy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--tamp", default="tamp")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    logging.getLogger().setLevel(logging.ERROR)

    digits = load_digits()
    x, labels = (digits.images / 16).astype(np.float32), digits.target
    order = np.random.default_rng(0).permutation(len(x))
    taught, asked = order[:-TESTED], order[-TESTED:]
    floats = arguments.folder / "digits.onnx"
    export(train(x[taught], labels[taught]), floats)
    tested = x[asked][:, None]
    right = lambda scores: float((scores.argmax(axis=1) == labels[asked]).mean())
    best = right(onnxruntime_scores(floats, tested))

    rows = [("floats", best, right(tamp_scores(arguments.tamp, arguments.device, floats, tested)))]
    for title, quantise in WAYS.items():
        made = arguments.folder / f"digits_{quantise.__name__}.onnx"
        quantise(floats, made, x[taught][:, None])
        rows.append((title, right(onnxruntime_scores(made, tested)), right(tamp_scores(arguments.tamp, arguments.device, made, tested))))
    print(f"\n{'model':<24}{'ONNX Runtime':>14}{'tamp':>10}")
    for title, theirs, ours in rows:
        print(f"{title:<24}{100 * theirs:>12.2f} %{100 * ours:>8.2f} %")
    for title, theirs, ours in rows:
        assert abs(theirs - ours) <= ALLOWED, f"{title}: tamp gets {100 * ours:.2f} % right, ONNX Runtime {100 * theirs:.2f} %"
        assert best - ours <= 0.02, f"{title}: {100 * ours:.2f} % are right, of the floats {100 * best:.2f} %"


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains a small model that writes character by character, on texts that come with Python (the help on the language's topics), and exports
one step of it: the character's number and the state go in, scores of the next character and the new state come out. About a minute.

    train.py [FOLDER] [--updates N]     writes FOLDER/chars.onnx and FOLDER/chars.json (default: here)

Needs numpy and onnx.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from pydoc_data import topics

HIDDEN, BATCH, STEPS, RATE = 128, 16, 64, 4e-3
TOPICS = ["if", "while", "for", "try", "with", "function", "class", "import", "raise", "return", "break", "continue", "pass", "del", "assert", "yield"]


def text():
    """Plain sentences: lines of code and grammar are left out."""
    known = getattr(topics, "topics")
    lines = [line for name in TOPICS for line in known.get(name, "").splitlines()]
    prose = [line.strip() for line in lines if line and not line.startswith("   ") and "::=" not in line and "***" not in line]
    plain = " ".join(prose).replace("“", '"').replace("”", '"').replace("’", "'")
    return " ".join("".join(c if c.isascii() and c.isprintable() else " " for c in plain).split())


class Network:
    """A GRU as ONNX has it (gates z, r, h; linear_before_reset), between an embedding and a product. Weights are `w`."""

    def __init__(self, words, random):
        matrix = lambda *shape: random.standard_normal(shape).astype(np.float32) / np.sqrt(shape[-1]).astype(np.float32)
        self.w = {"embed": matrix(words, HIDDEN), "w": matrix(3 * HIDDEN, HIDDEN), "r": matrix(3 * HIDDEN, HIDDEN), "b": np.zeros(3 * HIDDEN, np.float32), "head": matrix(HIDDEN, words)}
        self.moments = {name: (np.zeros_like(v), np.zeros_like(v)) for name, v in self.w.items()}
        self.updates = 0

    def gradients(self, ids, targets, h):
        """Loss, gradients, and the last state, of ids [time, batch]."""
        w, sigmoid = self.w, lambda v: 1 / (1 + np.exp(-v))
        x = w["embed"][ids]
        inputs = x @ w["w"].T + w["b"]
        kept, states = [], []
        for t in range(len(ids)):
            zi, ri, ni = np.split(inputs[t], 3, axis=1)
            zh, rh, nh = np.split(h @ w["r"].T, 3, axis=1)
            z, r = sigmoid(zi + zh), sigmoid(ri + rh)
            n = np.tanh(ni + r * nh)
            kept.append((h, z, r, n, nh))
            h = (1 - z) * n + z * h
            states.append(h)
        states = np.stack(states)
        scores = states @ w["head"]
        scores -= scores.max(axis=-1, keepdims=True)
        share = np.exp(scores)
        share /= share.sum(axis=-1, keepdims=True)
        time_index, batch_index = np.indices(ids.shape)
        loss = -np.log(share[time_index, batch_index, targets] + 1e-12).mean()
        share[time_index, batch_index, targets] -= 1
        share /= ids.size
        g = {"head": states.reshape(-1, HIDDEN).T @ share.reshape(ids.size, -1), "r": np.zeros_like(w["r"])}
        of_states, of_inputs, back = share @ w["head"].T, np.empty_like(inputs), np.zeros_like(h)
        for t in reversed(range(len(ids))):
            before, z, r, n, nh = kept[t]
            dh = of_states[t] + back
            dn = dh * (1 - z) * (1 - n * n)
            dz = dh * (before - n) * z * (1 - z)
            dr = dn * nh * r * (1 - r)
            of_inputs[t] = np.concatenate([dz, dr, dn], axis=1)
            of_hidden = np.concatenate([dz, dr, dn * r], axis=1)
            g["r"] += of_hidden.T @ before
            back = dh * z + of_hidden @ w["r"]
        flat = of_inputs.reshape(-1, 3 * HIDDEN)
        g["w"], g["b"], g["embed"] = flat.T @ x.reshape(-1, HIDDEN), flat.sum(axis=0), np.zeros_like(w["embed"])
        np.add.at(g["embed"], ids.ravel(), flat @ w["w"])
        return loss, g, h

    def update(self, g, rate):
        """One step of Adam."""
        self.updates += 1
        norm = np.sqrt(sum(float((v * v).sum()) for v in g.values()))
        for name, v in g.items():
            v *= min(1, 1 / norm)
            m, s = self.moments[name]
            m += 0.1 * (v - m)
            s += 0.01 * (v * v - s)
            self.w[name] -= rate * (m / (1 - 0.9**self.updates)) / (np.sqrt(s / (1 - 0.99**self.updates)) + 1e-8)


def export(network, words):
    w = network.w
    constants = {"embed": w["embed"][:, None], "w": w["w"][None], "r": w["r"][None], "b": np.concatenate([w["b"], np.zeros(3 * HIDDEN, np.float32)])[None], "head": w["head"],
                 "flat": np.array([1, HIDDEN])}
    nodes = [helper.make_node("Gather", ["embed", "token"], ["x"]),
             helper.make_node("GRU", ["x", "w", "r", "b", "", "state_in"], ["", "state_out"], hidden_size=HIDDEN, linear_before_reset=1),
             helper.make_node("Reshape", ["state_out", "flat"], ["last"]), helper.make_node("MatMul", ["last", "head"], ["scores"])]
    port = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "chars", [port("token", TensorProto.INT64, [1]), port("state_in", TensorProto.FLOAT, [1, 1, HIDDEN])],
                              [port("scores", TensorProto.FLOAT, [1, words]), port("state_out", TensorProto.FLOAT, [1, 1, HIDDEN])],
                              [numpy_helper.from_array(v, name) for name, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parent, type=pathlib.Path)
    parser.add_argument("--updates", type=int, default=2000)
    arguments = parser.parse_args()
    plain = text()
    alphabet = sorted(set(plain))
    ids = np.array([alphabet.index(c) for c in plain])
    random = np.random.default_rng(1)
    network = Network(len(alphabet), random)
    streams = ids[:len(ids) // BATCH * BATCH].reshape(BATCH, -1).T  # [time, batch]: each stream goes on where it was
    begin, at, h, loss = time.monotonic(), 0, np.zeros((BATCH, HIDDEN), np.float32), 0
    for update in range(arguments.updates):
        if at + STEPS + 1 > len(streams):
            at, h = 0, np.zeros_like(h)
        now, g, h = network.gradients(streams[at:at + STEPS], streams[at + 1:at + STEPS + 1], h)
        network.update(g, RATE * (1 - update / arguments.updates))
        at += STEPS
        loss = now if update == 0 else 0.95 * loss + 0.05 * now
        if (update + 1) % 200 == 0:
            print(f"{time.monotonic() - begin:5.0f} s  {update + 1} updates, {loss:.2f} nats a character", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(export(network, len(alphabet)), arguments.folder / "chars.onnx")
    (arguments.folder / "chars.json").write_text(json.dumps("".join(alphabet)))
    print(f"wrote {arguments.folder / 'chars.onnx'}: {len(alphabet)} characters, learnt from {len(plain)}; {loss:.2f} nats a character")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains a small decoder that writes English, on the sentences of tamp's docs and of Python's help, with a tokenizer of its own, and exports one step of it:
a token, its position, and the keys and values of those before go in, scores of the next token come out. About a minute and a half on two cores.

    train.py [FOLDER] [--updates N]     writes FOLDER/words.onnx and FOLDER/words.json, the tokenizer (default: here)

The decoder is a small Llama: root mean square norms, rotary positions, gated feed-forward parts. Needs numpy and onnx."""
import argparse
import json
import pathlib
import re
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from pydoc_data import topics

import tokenizer

LAYERS, WIDTH, HEADS, INNER, WORDS, PLACES = 3, 128, 4, 256, 1536, 512
HEAD = WIDTH // HEADS
BATCH, STEPS, RATE, EPSILON = 8, 128, 4e-3, 1e-5
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
SENTENCE = re.compile(r"[A-Z][A-Za-z ,;:'\"()-]{30,}\.")


def text():
    """Sentences of words alone, each once: code, tables and grammar are left out."""
    pages = [path.read_text() for path in sorted(DOCS.rglob("*.md"))] + [topics.topics[topic] for topic in sorted(topics.topics)]
    paragraphs = [" ".join(paragraph.replace("`", "").replace("“", '"').replace("”", '"').replace("’", "'").split()) for page in pages for paragraph in page.split("\n\n")]
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph.replace(". ", ".\n").split("\n")]
    return " ".join(dict.fromkeys(sentence for sentence in sentences if SENTENCE.fullmatch(sentence)))


# --- the network -------------------------------------------------------------------------------------------------------


def angles(count):
    turns = np.outer(np.arange(count), 10000.0 ** -(np.arange(HEAD // 2) / (HEAD // 2)))
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


def turned(x, cos, sin):
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def heads_of(x):
    return x.reshape(*x.shape[:2], HEADS, HEAD).transpose(0, 2, 1, 3)


def rows_of(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], WIDTH)


class Norm:
    """x divided by its root mean square, and the way back."""

    def __init__(self, x):
        self.x, self.factor = x, 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
        self.y = x * self.factor

    def back(self, dy):
        return self.factor * (dy - self.y * (dy * self.y).mean(-1, keepdims=True))


class Network:
    """Weights are `w`. Gradients of a product x @ w are summed over all rows."""

    def __init__(self, random):
        matrix = lambda *shape: random.standard_normal(shape).astype(np.float32) / np.sqrt(shape[0]).astype(np.float32)
        self.w = {"words": matrix(WIDTH, WORDS).T.copy()}
        for layer in range(LAYERS):
            self.w |= {f"{name}{layer}": matrix(WIDTH, WIDTH) for name in "qkvo"}
            self.w |= {f"gate{layer}": matrix(WIDTH, INNER), f"up{layer}": matrix(WIDTH, INNER), f"down{layer}": matrix(INNER, WIDTH)}
        self.moments = {name: (np.zeros_like(v), np.zeros_like(v)) for name, v in self.w.items()}
        self.updates = 0
        self.cos, self.sin = angles(STEPS)
        self.unseen = np.where(np.tri(STEPS, dtype=bool), 0, -np.inf).astype(np.float32)

    def attention(self, layer, y):
        q, k, v = (heads_of(y @ self.w[f"{name}{layer}"]) for name in "qkv")
        q, k = turned(q, self.cos, self.sin), turned(k, self.cos, self.sin)
        share = q @ k.swapaxes(2, 3) * HEAD**-0.5 + self.unseen
        share = np.exp(share - share.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        return q, k, v, share, rows_of(share @ v)

    def attention_back(self, layer, y, kept, dx, g):
        q, k, v, share, mixed = kept
        g[f"o{layer}"] = product_back(mixed, dx)
        dmixed = heads_of(dx @ self.w[f"o{layer}"].T)
        dshare = dmixed @ v.swapaxes(2, 3)
        dscores = share * (dshare - (dshare * share).sum(-1, keepdims=True)) * HEAD**-0.5
        parts = {"q": turned(dscores @ k, self.cos, -self.sin), "k": turned(dscores.swapaxes(2, 3) @ q, self.cos, -self.sin), "v": share.swapaxes(2, 3) @ dmixed}
        dy = 0
        for name, part in parts.items():
            rows = rows_of(part)
            g[f"{name}{layer}"] = product_back(y, rows)
            dy = dy + rows @ self.w[f"{name}{layer}"].T
        return dy

    def gated(self, layer, y):
        gate, up = y @ self.w[f"gate{layer}"], y @ self.w[f"up{layer}"]
        open_ = 1 / (1 + np.exp(-gate))
        return gate, up, open_, gate * open_ * up

    def gated_back(self, layer, y, kept, dx, g):
        gate, up, open_, inner = kept
        g[f"down{layer}"] = product_back(inner, dx)
        dinner = dx @ self.w[f"down{layer}"].T
        dup, dgate = dinner * gate * open_, dinner * up * open_ * (1 + gate * (1 - open_))
        g[f"up{layer}"], g[f"gate{layer}"] = product_back(y, dup), product_back(y, dgate)
        return dup @ self.w[f"up{layer}"].T + dgate @ self.w[f"gate{layer}"].T

    def gradients(self, ids, targets):
        """Loss and gradients of ids [batch, STEPS]."""
        x, kept = self.w["words"][ids] * WIDTH**0.5, []
        for layer in range(LAYERS):
            first = Norm(x)
            attended = self.attention(layer, first.y)
            x = x + attended[-1] @ self.w[f"o{layer}"]
            second = Norm(x)
            gated = self.gated(layer, second.y)
            x = x + gated[-1] @ self.w[f"down{layer}"]
            kept.append((first, attended, second, gated))
        last = Norm(x)
        share = last.y @ self.w["words"].T
        share = np.exp(share - share.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        chosen = np.take_along_axis(share, targets[..., None], -1)
        np.put_along_axis(share, targets[..., None], chosen - 1, -1)
        share /= ids.size
        g = {"words": product_back(share, last.y)}
        dx = last.back(share @ self.w["words"])
        for layer in reversed(range(LAYERS)):
            first, attended, second, gated = kept[layer]
            dx = dx + second.back(self.gated_back(layer, second.y, gated, dx, g))
            dx = dx + first.back(self.attention_back(layer, first.y, attended, dx, g))
        np.add.at(g["words"], ids.ravel(), dx.reshape(-1, WIDTH) * WIDTH**0.5)
        return -np.log(chosen + 1e-12).mean(), g

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


def product_back(x, dy):
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


# --- the step ----------------------------------------------------------------------------------------------------------


def export(network):
    """Caches have PLACES places; the new token's row is put into its own (TensorScatter), and as many count as there are tokens."""
    nodes, inputs, outputs = [], [], []
    cos, sin = angles(PLACES)
    constants = {"cos": cos, "sin": sin, "one": np.ones(WIDTH, np.float32), "large": np.float32(WIDTH**0.5), "heads": np.array([1, 1, HEADS, HEAD]), "row": np.array([1, 1, WIDTH]),
                 "head": network.w["words"].T.copy(), **network.w}  # fmt: skip

    def add(op, *operands, name=None, **attributes):
        name = name or f"{op}{len(nodes)}"
        nodes.append(helper.make_node(op, operands, [name], name, **attributes))
        return name

    def port(ports, name, shape, kind=TensorProto.FLOAT):
        ports.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    norm = lambda x: add("RMSNormalization", x, "one", epsilon=EPSILON)
    token, position = (port(inputs, name, [1, 1], TensorProto.INT64) for name in ("input_ids", "position_ids"))
    place, length = (port(inputs, name, [1], TensorProto.INT64) for name in ("write_indices", "nonpad_kv_seqlen"))
    x = add("Mul", add("Gather", "words", token), "large")
    for layer in range(LAYERS):
        y, parts = norm(x), {}
        for part in "qkv":
            parts[part] = add("Transpose", add("Reshape", add("MatMul", y, f"{part}{layer}"), "heads"), perm=[0, 2, 1, 3])
        caches = []
        for part, name in (("k", "key"), ("v", "value")):
            row = add("RotaryEmbedding", parts[part], "cos", "sin", position) if part == "k" else parts[part]
            past = port(inputs, f"past_key_values.{layer}.{name}", [1, HEADS, PLACES, HEAD])
            caches.append(add("TensorScatter", past, row, place, name=port(outputs, f"present.{layer}.{name}", [1, HEADS, PLACES, HEAD])))
        mixed = add("Attention", add("RotaryEmbedding", parts["q"], "cos", "sin", position), *caches, "", "", "", length)
        x = add("Add", x, add("MatMul", add("Reshape", add("Transpose", mixed, perm=[0, 2, 1, 3]), "row"), f"o{layer}"))
        y = norm(x)
        gate = add("MatMul", y, f"gate{layer}")
        x = add("Add", x, add("MatMul", add("Mul", add("Mul", gate, add("Sigmoid", gate)), add("MatMul", y, f"up{layer}")), f"down{layer}"))
    add("MatMul", norm(x), "head", name=port(outputs, "logits", [1, 1, WORDS]))
    graph = helper.make_graph(nodes, "words", inputs, outputs, [numpy_helper.from_array(v, name) for name, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parent, type=pathlib.Path)
    parser.add_argument("--updates", type=int, default=500)
    arguments = parser.parse_args()
    begin, plain = time.monotonic(), text()
    words = tokenizer.learn(plain, WORDS)
    ids = np.array(tokenizer.Tokenizer(words).encode(plain))
    print(f"{time.monotonic() - begin:5.0f} s  {len(words)} tokens learnt; the text of {len(plain)} characters has {len(ids)}", flush=True)
    random = np.random.default_rng(1)
    network, loss = Network(random), 0
    for update in range(arguments.updates):
        at = random.integers(0, len(ids) - STEPS - 1, (BATCH, 1)) + np.arange(STEPS + 1)
        now, g = network.gradients(ids[at[:, :-1]], ids[at[:, 1:]])
        network.update(g, RATE * min(1, (update + 1) / 20) * (1 - update / arguments.updates))
        loss = now if update == 0 else 0.95 * loss + 0.05 * now
        if (update + 1) % 50 == 0:
            print(f"{time.monotonic() - begin:5.0f} s  {update + 1} updates, {loss:.2f} nats a token", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(export(network), arguments.folder / "words.onnx")
    (arguments.folder / "words.json").write_text(json.dumps(words))
    print(f"wrote {arguments.folder / 'words.onnx'}: {loss:.2f} nats a token")


if __name__ == "__main__":
    main()

"""Decoders of two layers in the shapes that users have, tiny, with weights from seeds: tokens go in, caches of constant size go in and come out. Three forms:

    exported(name)     as torch's dynamo exporter writes transformers' modules with a StaticCache; the graphs are files in decoders/, which its export.py writes
    standard(name)     ONNX 24: TensorScatter, Attention with nonpad_kv_seqlen, RotaryEmbedding, RMSNormalization
    genai(name)        what ONNX Runtime GenAI writes: GroupQueryAttention, SkipSimplifiedLayerNormalization, packed products

All have the dimension `seq`, those of GenAI `total`, too, and opset 24; PLACES is what a cache holds. `feeds` makes what a run takes besides caches.
"""
import dataclasses
import pathlib
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import models as m

PLACES, WORDS, MEMORY, POSITIONS = 160, 40, 10, 256
LAYERS, OPSET = 2, 24
FOLDER = pathlib.Path(__file__).parent / "decoders"


@dataclasses.dataclass
class Form:
    """What a decoder has besides products, gates and sums."""
    hidden: int = 32
    heads: int = 4
    kv: int = 2
    size: int = 16
    wide: int = 48
    norm: str = "rms"           # or layer
    rotary: float = 1           # the part of a head that is turned; 0: positions are learned
    interleaved: int = 0
    head_norms: bool = False    # of queries and keys
    post_norms: bool = False
    cap: float = 0              # of scores
    last_cap: float = 0         # of logits
    windows: tuple = (0, 0)     # of each layer; 0: none
    sinks: bool = False
    packed: bool = False        # one product for q, k, v, and one for gate and up
    bias: bool = False
    gate: str = "silu"          # gelu; none: no gate
    embedded: float = 1         # the factor of embeddings
    cross: bool = False         # attention to a memory, too
    relative: bool = False      # a bias by distance instead of positions
    flat: bool = False          # standard(): caches [1,places,heads * size]


FORMS = {
    "llama": Form(),
    "qwen3": Form(head_norms=True),
    "gemma3": Form(head_norms=True, post_norms=True, cap=20, last_cap=10, windows=(6, 0), gate="gelu", embedded=32**0.5),
    "phi4": Form(size=32, rotary=0.5, packed=True, flat=True),
    "gpt2": Form(norm="layer", rotary=0, kv=4, size=8, bias=True, gate="none"),
    "smollm2": Form(hidden=48, heads=3, kv=1, interleaved=1),
    "gpt_oss": Form(windows=(6, 0), sinks=True, bias=True),
    "whisper": Form(norm="layer", rotary=0, kv=4, size=8, bias=True, gate="none", cross=True, flat=True),
    "t5": Form(rotary=0, kv=4, size=8, gate="gelu", cross=True, relative=True),
}


def drawn(name, shape, scale=1.0):
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32) * np.float32(scale)


def weight_of(name, shape):
    """Activations stay of order 1; a row is a norm's or a bias."""
    if len(shape) == 1:
        return drawn(name, shape, 0.1) + (0 if "bias" in name else 1)
    return drawn(name, shape, min(shape) ** -0.5)


def exported(name):
    made = onnx.load(FOLDER / f"{name}.onnx")
    for tensor in made.graph.initializer:
        if not tensor.raw_data:
            tensor.raw_data = weight_of(f"{name}.{tensor.name}", tuple(tensor.dims)).tobytes()
    made.opset_import[0].version = OPSET  # written with 18, whose operators are the same
    return made


class Maker:
    """A graph in the making. Methods return the names of what they make."""

    def __init__(self, name, is_genai):
        self.form, self.is_genai = FORMS[name], is_genai
        self.nodes, self.constants, self.inputs, self.outputs = [], {}, [], []

    def add(self, op, *operands, outputs=1, **attributes):
        names = [f"{op}{len(self.nodes)}.{k}" for k in range(outputs)]
        self.nodes.append(m.node(op, list(operands), names, names[0], **attributes))
        return names[0] if outputs == 1 else names

    def microsoft(self, op, *operands, **attributes):
        return self.add(op, *operands, domain="com.microsoft", **attributes)

    def constant(self, name, values, dtype=np.float32):
        self.constants.setdefault(name, m.constant(name, values, dtype))
        return name

    def ints(self, *values):
        return self.constant("ints" + "_".join(map(str, values)), values, np.int64)

    def weight(self, name, *shape):
        return self.constant(name, weight_of(name, shape))

    def port(self, name, shape, dtype=TensorProto.FLOAT):
        self.inputs.append(m.value(name, shape, dtype))
        return name

    def give(self, last, name, shape):
        self.nodes.append(m.node("Identity", [last], [name], name))
        self.outputs.append(m.value(name, shape))

    # --- parts ---

    def linear(self, x, name, rows, columns):
        y = self.add("MatMul", x, self.weight(name, rows, columns))
        return self.add("Add", y, self.weight(name + ".bias", columns)) if self.form.bias else y

    def norm(self, x, name, width=None):
        factor = self.weight(name, width or self.form.hidden)
        if self.form.norm == "layer":
            return self.add("LayerNormalization", x, factor, self.weight(name + ".bias", width or self.form.hidden))
        return self.add("SimplifiedLayerNormalization" if self.is_genai else "RMSNormalization", x, factor, axis=-1, epsilon=1e-6)

    def sum_and_norm(self, x, more, name):
        """The sum, and the norm of it."""
        if self.is_genai:
            operands = [x, more, self.weight(name, self.form.hidden), *([self.weight(name + ".bias", self.form.hidden)] if self.form.norm == "layer" else [])]
            op = "SkipLayerNormalization" if self.form.norm == "layer" else "SkipSimplifiedLayerNormalization"
            both = self.microsoft(op, *operands, outputs=4, epsilon=1e-6 if self.form.norm == "rms" else 1e-5)
            self.nodes[-1].output[1] = self.nodes[-1].output[2] = ""
            return both[3], both[0]
        total = self.add("Add", x, more)
        return total, self.norm(total, name)

    def head_norm(self, x, name, heads):
        if not self.form.head_norms:
            return x
        apart = self.norm(self.add("Reshape", x, self.ints(0, 0, heads, self.form.size)), name, self.form.size)
        return self.add("Reshape", apart, self.ints(0, 0, heads * self.form.size))

    def angles(self):
        """Of Llama 3: low frequencies are scaled."""
        half = int(self.form.size * self.form.rotary) // 2
        frequencies = 500000.0 ** -(np.arange(half) / half)
        turns = np.outer(np.arange(POSITIONS), np.where(frequencies < 0.1, frequencies / 8, frequencies))
        return self.constant("cos", np.cos(turns)), self.constant("sin", np.sin(turns))

    def split(self, x, heads, size=None):
        return self.add("Transpose", self.add("Reshape", x, self.ints(0, 0, heads, size or self.form.size)), perm=[0, 2, 1, 3])

    def join(self, x):
        return self.add("Reshape", self.add("Transpose", x, perm=[0, 2, 1, 3]), self.ints(0, 0, self.form.heads * self.form.size))

    def distances(self):
        """How far behind a query each place is."""
        return self.add("Sub", self.add("Reshape", "position_ids", self.ints(1, 1, -1, 1)), self.constant("places", np.arange(PLACES).reshape(1, 1, 1, PLACES), np.int64))

    def relative_bias(self):
        near = self.add("Clip", self.distances(), self.constant("nil", 0, np.int64), self.constant("most", 7, np.int64))
        rows = self.add("Gather", self.weight("relative", 8, self.form.heads), self.add("Reshape", near, self.ints(-1, PLACES)), axis=0)
        return self.add("Unsqueeze", self.add("Transpose", rows, perm=[2, 0, 1]), self.ints(0))

    def cache(self, layer):
        f = self.form
        shape = [1, PLACES, f.kv * f.size] if f.flat and not self.is_genai else [1, f.kv, PLACES, f.size]
        return [self.port(f"past_{w}{layer}", shape) for w in "kv"], shape

    def attention(self, x, layer):
        f, name = self.form, f"layer{layer}."
        q_width, kv_width = f.heads * f.size, f.kv * f.size
        if f.packed and self.is_genai:
            parts = [self.linear(x, name + "qkv", f.hidden, q_width + 2 * kv_width)]
        elif f.packed:
            parts = self.add("Split", self.linear(x, name + "qkv", f.hidden, q_width + 2 * kv_width), self.ints(q_width, kv_width, kv_width), outputs=3, axis=-1)
        else:
            parts = [self.linear(x, name + part, f.hidden, width) for part, width in (("q", q_width), ("k", kv_width), ("v", kv_width))]
            parts[:2] = [self.head_norm(part, name + norm, heads) for part, norm, heads in ((parts[0], "q_norm", f.heads), (parts[1], "k_norm", f.kv))]
        caches, shape = self.cache(layer)
        y, *made = (self.group_query if self.is_genai else self.scattered)(parts, caches, layer)
        for w, cache in zip("kv", made):
            self.give(cache, f"present_{w}{layer}", shape)
        return self.linear(y, name + "o", q_width, f.hidden)

    def group_query(self, parts, caches, layer):
        f = self.form
        window, bias = f.windows[layer], self.relative_bias() if f.relative else ""
        operands = [*parts, *[""] * (3 - len(parts)), *caches, "seqlens_k", "total_sequence_length", *(self.angles() if f.rotary else ("", "")), "", bias,
                    self.weight(f"layer{layer}.sinks.bias", f.heads) if f.sinks else ""]
        while not operands[-1]:
            operands.pop()
        attributes = {"do_rotary": int(f.rotary > 0), "rotary_interleaved": f.interleaved, "local_window_size": window or -1, "softcap": float(f.cap)}
        return self.microsoft("GroupQueryAttention", *operands, outputs=3, num_heads=f.heads, kv_num_heads=f.kv, scale=self.scale(), **attributes)

    def scale(self):
        return 1.0 if self.form.relative else self.form.size**-0.5

    def scattered(self, parts, caches, layer):
        f = self.form
        q, k, v = parts
        if f.rotary:
            turn = lambda x, heads: self.add("RotaryEmbedding", x, *self.angles(), "position_ids", num_heads=heads, interleaved=f.interleaved, rotary_embedding_dim=int(f.size * f.rotary) if f.rotary < 1 else 0)
            q, k = turn(q, f.heads), turn(k, f.kv)
        heads = {"q_num_heads": f.heads, "kv_num_heads": f.kv}
        if not f.flat:
            q, k, v, heads = self.split(q, f.heads), self.split(k, f.kv), self.split(v, f.kv), {}
        mask = self.relative_bias() if f.relative else ""
        if f.windows[layer]:
            mask = self.add("Less", self.distances(), self.constant(f"window{layer}", f.windows[layer], np.int64))
        keys, values = (self.add("TensorScatter", cache, new, "write_indices", axis=1 if f.flat else 2) for cache, new in zip(caches, (k, v)))
        y = self.add("Attention", q, keys, values, mask, "", "", "nonpad_kv_seqlen", is_causal=1, softcap=float(f.cap), scale=self.scale(), **heads)
        return y if f.flat else self.join(y), keys, values

    def cross(self, x, layer):
        f, name = self.form, f"layer{layer}.cross_"
        width = f.heads * f.size
        q, k, v = (self.linear(source, name + part, f.hidden, width) for part, source in (("q", x), ("k", "memory"), ("v", "memory")))
        if self.is_genai:
            y = self.microsoft("MultiHeadAttention", q, k, v, num_heads=f.heads, scale=self.scale())
        else:
            y = self.add("Attention", q, k, v, q_num_heads=f.heads, kv_num_heads=f.heads, scale=self.scale())
        return self.linear(y, name + "o", width, f.hidden)

    def activated(self, x, kind):
        if kind != "silu":
            return self.add("Gelu", x, approximate="tanh") if not self.is_genai else self.microsoft("FastGelu", x)
        return self.microsoft("QuickGelu", x, alpha=1.0) if self.is_genai else self.add("Mul", x, self.add("Sigmoid", x))

    def feed_forward(self, x, layer):
        f, name = self.form, f"layer{layer}."
        if f.gate == "none":
            return self.linear(self.activated(self.linear(x, name + "up", f.hidden, f.wide), "gelu"), name + "down", f.wide, f.hidden)
        if f.packed:
            gate, up = self.add("Split", self.linear(x, name + "gate_up", f.hidden, 2 * f.wide), outputs=2, axis=-1, num_outputs=2)
        else:
            gate, up = self.linear(x, name + "gate", f.hidden, f.wide), self.linear(x, name + "up", f.hidden, f.wide)
        return self.linear(self.add("Mul", self.activated(gate, f.gate), up), name + "down", f.wide, f.hidden)

    def counts(self):
        """GenAI: how many keys there are follows from a mask, as long as the text; a bias is as long as the cache."""
        mask = self.port("attention_mask", [1, PLACES if self.form.relative else "total"], TensorProto.INT64)
        last = self.add("Sub", self.add("ReduceSum", mask, self.ints(1), keepdims=0), self.ints(1))
        self.nodes.append(m.node("Cast", [last], ["seqlens_k"], "seqlens_k", to=TensorProto.INT32))
        total = self.add("Gather", self.add("Shape", mask), self.constant("one", 1, np.int64), axis=0)
        self.nodes.append(m.node("Cast", [total], ["total_sequence_length"], "total", to=TensorProto.INT32))

    def model(self):
        f = self.form
        self.port("ids", [1, "seq"], TensorProto.INT64)
        if self.is_genai:
            self.counts()
        else:
            for name in ("write_indices", "nonpad_kv_seqlen"):
                self.port(name, [1], TensorProto.INT64)
        if not self.is_genai or not f.rotary:
            self.port("position_ids", [1, "seq"], TensorProto.INT64)
        if f.cross:
            self.port("memory", [1, MEMORY, f.hidden])
        x = self.add("Gather", self.weight("words", WORDS, f.hidden), "ids", axis=0)
        if f.embedded != 1:
            x = self.add("Mul", x, self.constant("embedded", f.embedded))
        if not f.rotary and not f.relative:
            x = self.add("Add", x, self.add("Gather", self.weight("positions", POSITIONS, f.hidden), "position_ids", axis=0))
        n = self.norm(x, "layer0.norm0")
        for layer in range(LAYERS):
            works = [("norm0", self.attention), *([("norm1", self.cross)] if f.cross else []), ("norm2", self.feed_forward)]
            for i, (_, work) in enumerate(works):
                y = work(n, layer)
                if f.post_norms:
                    y = self.norm(y, f"layer{layer}.post{i}")
                following = f"layer{layer}.{works[i + 1][0]}" if i + 1 < len(works) else f"layer{layer + 1}.norm0"
                x, n = self.sum_and_norm(x, y, following)
        y = self.add("MatMul", n, self.add("Transpose", self.weight("words", WORDS, f.hidden), perm=[1, 0]))  # the head is tied
        if f.last_cap:
            y = self.add("Mul", self.add("Tanh", self.add("Div", y, self.constant("last_cap", f.last_cap))), "last_cap")
        self.give(y, "logits", [1, "seq", WORDS])
        made = m.model(self.nodes, self.inputs, self.outputs, self.constants.values(), opset=OPSET, ir=11)
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return made


def exports():
    return sorted(path.stem for path in FOLDER.glob("*.onnx"))


def standard(name):
    return Maker(name, is_genai=False).model()


def genai(name):
    return Maker(name, is_genai=True).model()


def feeds(made, at, rows, rng):
    """What a run of `rows` tokens behind `at` others takes, without what is carried on: caches and the memory."""
    given = {"position": np.arange(at, at + rows), "position_ids": np.arange(at, at + rows)[None], "write_indices": np.array([at]),
             "nonpad_kv_seqlen": np.array([at + rows]), "attention_mask": np.ones((1, at + rows), np.int64), "ids": rng.integers(0, WORDS, (1, rows))}
    extents = {entry.name: entry.type.tensor_type.shape.dim[-1].dim_value for entry in made.graph.input}
    if extents.get("attention_mask"):
        given["attention_mask"] = (np.arange(extents["attention_mask"]) < at + rows)[None].astype(np.int64)
    return {entry.name: given[entry.name] for entry in made.graph.input if entry.name in given}


def carried(made, rng):
    """Caches, and a memory, before the first token: noise."""
    shapes = {entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim] for entry in made.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items() if name == "memory" or name.startswith("past_")}

"""Random networks of patterns, as exporters write them: blocks of transformers, decoders' steps with caches, windows, blocks of convolutional networks,
recurrent layers. Passes look for such patterns, and what they make of them depends on widths, heads, masks, shared weights, further readers and outputs in the
middle; so all of these are drawn at random. A network is a list of blocks, each with random numbers of its own: what is left of a list without some of its
blocks is a network, too, and pattern_test.py makes small ones of those that fail. (random_wide.py has single operators of all types.)"""
import dataclasses

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import many

THEMES = ["rows", "steps", "windows", "maps", "recurrent"]
OPSETS = [17, 20, 23]
LOWEST = float(np.finfo(np.float32).min)
MICROSOFT = "com.microsoft"


@dataclasses.dataclass(frozen=True)
class Spec:
    """What a network is made of; `outputs`: the only results that are outputs, if any are named."""
    theme: str
    opset: int
    seed: int
    blocks: tuple  # of (method of Network, seed)
    special: bool = False  # what decides about all products of a program: long sums (rows, windows, maps), one row (steps)
    outputs: tuple = ()


@dataclasses.dataclass
class Live:
    name: str
    shape: tuple

    rows = property(lambda self: self.shape[-2])
    width = property(lambda self: self.shape[-1])


class Network:
    def __init__(self, spec):
        self.spec, self.opset = spec, spec.opset
        self.nodes, self.weights, self.inputs, self.live, self.outputs, self.domains = [], [], {}, [], [], set()
        self.exact = set()  # masks, indices: what no precision rounds
        self.seeded(spec.seed)
        self.sharing = self.pick(["no", "no", "same", "identity"])
        self.batch = self.pick([1, 1, 2, 3])
        self.heads, self.size = self.pick([1, 2, 3, 4, 8]), self.pick([8, 16, 32, 32, 20, 64])
        while self.heads * self.size > 256:
            self.heads //= 2

    # --- choices ---

    def seeded(self, *seeds):
        self.random = np.random.default_rng(seeds)

    def number(self, low, high):
        return int(self.random.integers(low, high + 1))

    def chance(self, percent):
        return self.number(1, 100) <= percent

    def pick(self, choices):
        return choices[self.number(0, len(choices) - 1)]

    def normal(self, *shape, scale=1.0):
        return (self.random.standard_normal(shape) * scale).astype(np.float32)

    # --- nodes and weights ---

    def add(self, op, *operands, outputs=1, domain=None, **attributes):
        names = [f"t{len(self.nodes)}{'abcdefgh'[k]}" for k in range(outputs)]
        operands = [each.name if isinstance(each, Live) else each for each in operands]
        self.nodes.append(helper.make_node(op, operands, names, name=f"{op.lower()}{len(self.nodes)}", domain=domain, **attributes))
        if domain:
            self.domains.add(domain)
        return names[0] if outputs == 1 else names

    def constant(self, values, dtype=np.float32):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)

    def weight(self, *shape, scale=None, offset=0.0):
        """As drawn, or one that is there already: by its name, or by a node Identity, as PyTorch's exporter writes equal weights."""
        if self.sharing != "no" and self.chance(50):
            for tensor in self.weights:
                if tuple(tensor.dims) == shape and tensor.data_type == TensorProto.FLOAT and np.prod(shape) > 1:
                    return tensor.name if self.sharing == "same" else self.add("Identity", tensor.name)
        return self.constant(offset + self.normal(*shape, scale=scale if scale is not None else shape[0] ** -0.5))

    def bias(self, width):
        return self.constant(np.zeros(width)) if self.chance(8) else self.weight(width, scale=0.1)

    def given(self, values, exact=False):
        """An input of the network."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = np.asarray(values)
        if exact:
            self.exact.add(name)
        return name

    def given_rows(self, *shape):
        return self.made(self.given(self.normal(*shape)), shape)

    def made(self, name, shape):
        return Live(name, tuple(shape))

    def same(self, name, x):
        return Live(name, x.shape)

    def reshape(self, x, *shape):
        return self.add("Reshape", x, self.ints(*shape))

    def reduced(self, op, x, axes, keepdims=1):
        if self.opset >= 18 or op == "ReduceSum":
            return self.add(op, x, self.ints(*axes), keepdims=keepdims)
        return self.add(op, x, axes=list(axes), keepdims=keepdims)

    def split(self, x, sizes, axis):
        return self.add("Split", x, self.ints(*sizes), outputs=len(sizes), axis=axis)

    # --- parts of blocks ---

    def linear(self, x, columns, bias=None):
        """Product by a weight, in the ways in which exporters write it."""
        bias = self.chance(75) if bias is None else bias
        kind, lead = self.number(0, 9), x.shape[:-1]
        if kind == 0 and len(x.shape) == 3:
            flat = self.reshape(x, -1, x.width)
            y = self.add("Gemm", flat, self.weight(columns, x.width, scale=x.width ** -0.5), *([self.bias(columns)] if bias else []), transB=1)
            return self.made(self.reshape(y, *lead, columns), (*lead, columns))
        if kind == 1:
            y = self.add("MatMul", x, self.add("Transpose", self.weight(columns, x.width, scale=x.width ** -0.5), perm=[1, 0]))
        else:
            y = self.add("MatMul", x, self.weight(x.width, columns))
        if bias:
            y = self.add("Add", *self.either(y, self.bias(columns)))
        return self.made(y, (*lead, columns))

    def either(self, a, b):
        return (a, b) if self.chance(60) else (b, a)

    def norm(self, x):
        scale = self.weight(x.width, scale=0.1, offset=1.0)
        kind = self.number(0, 7)
        if kind == 0:  # written out
            centred = self.add("Sub", x, self.reduced("ReduceMean", x, [-1]))
            square = self.add("Pow", centred, self.constant(2.0)) if self.chance(50) else self.add("Mul", centred, centred)
            deviation = self.add("Sqrt", self.add("Add", self.reduced("ReduceMean", square, [-1]), self.constant(1e-5)))
            y = self.add("Mul", self.add("Div", centred, deviation), scale)
            return self.same(self.add("Add", y, self.bias(x.width)) if self.chance(70) else y, x)
        if kind == 1:  # root mean square, written out
            mean = self.reduced("ReduceMean", self.add("Mul", x, x) if self.chance(50) else self.add("Pow", x, self.constant(2.0)), [-1])
            root = self.add("Sqrt", self.add("Add", mean, self.constant(1e-6)))
            y = self.add("Div", x, root) if self.chance(30) else self.add("Mul", x, self.add("Reciprocal", root))
            return self.same(self.add("Mul", *self.either(y, scale)), x)
        if kind == 2 and self.opset >= 23:
            return self.same(self.add("RMSNormalization", x, scale, axis=-1, epsilon=1e-6), x)
        if kind == 3:
            return self.same(self.add("LayerNormalization", x, scale, axis=-1), x)
        return self.same(self.add("LayerNormalization", x, scale, self.bias(x.width), axis=-1, epsilon=self.pick([1e-5, 1e-6, 1e-12])), x)

    def activation(self, x, kinds=("gelu", "gelu", "erf", "erf2", "tanh", "silu", "relu", "quick", "hard")):
        kind = self.pick(kinds)
        if kind == "gelu" and self.opset < 20:
            kind = "erf"
        if kind == "gelu":
            return self.same(self.add("Gelu", x), x)
        if kind in ("erf", "erf2"):
            inner = self.add("Div", x, self.constant(2 ** 0.5)) if kind == "erf" else self.add("Mul", x, self.constant(0.5 ** 0.5))
            one = self.add("Add", self.add("Erf", inner), self.constant(1.0))
            if kind == "erf":
                return self.same(self.add("Mul", self.add("Mul", x, one), self.constant(0.5)), x)
            return self.same(self.add("Mul", self.add("Mul", x, self.constant(0.5)), one), x)
        if kind == "tanh":
            cube = self.add("Mul", self.add("Pow", x, self.constant(3.0)), self.constant(0.044715))
            inner = self.add("Mul", self.add("Add", x, cube), self.constant((2 / np.pi) ** 0.5))
            return self.same(self.add("Mul", self.add("Mul", x, self.constant(0.5)), self.add("Add", self.add("Tanh", inner), self.constant(1.0))), x)
        if kind == "silu":
            return self.same(self.add("Mul", *self.either(x, self.add("Sigmoid", x))), x)
        if kind == "quick":
            return self.same(self.add("Mul", x, self.add("Sigmoid", self.add("Mul", x, self.constant(1.702)))), x)
        return self.same(self.add({"relu": "Relu", "hard": "HardSwish", "clip": "Relu", "leaky": "LeakyRelu", "sigmoid": "Sigmoid"}[kind], x), x)

    def residual(self, x, make, norm=True):
        """x + make(norm(x)), norm(x + make(x)), or make(x) alone; with a factor for each channel at times."""
        kind = self.number(0, 9) if norm else self.number(0, 3)
        if kind <= 5:
            y = make(self.norm(x) if norm else x)
        elif kind <= 8:
            y = make(x)
        else:
            return make(self.norm(x))
        if self.chance(12):
            y = self.same(self.add("Mul", y, self.weight(y.width, scale=0.2, offset=0.5)), y)
        y = self.same(self.add("Add", *self.either(x, y)), x)
        return y if kind <= 5 else self.norm(y)

    # --- attention ---

    def apart(self, x, heads, size):
        """[.., rows, heads * size] as [.., heads, rows, size]."""
        return self.made(self.add("Transpose", self.reshape(x, *x.shape[:-1], heads, size), perm=[0, 2, 1, 3]), (x.shape[0], heads, x.rows, size))

    def queries_keys_values(self, x, heads, size):
        """From one product or three."""
        kind, batch, rows = self.number(0, 3), x.shape[0], x.rows
        wide = heads * size
        if kind == 0:
            packed = self.linear(x, 3 * wide)
            turned = self.add("Transpose", self.reshape(packed, batch, rows, 3, heads, size), perm=[2, 0, 3, 1, 4])
            if self.chance(50):
                parts = [self.add("Gather", turned, self.constant(i, np.int64), axis=0) for i in range(3)]
            else:
                parts = [self.add("Squeeze", part, self.ints(0)) for part in self.split(turned, [1, 1, 1], 0)]
            return [self.made(part, (batch, heads, rows, size)) for part in parts]
        if kind == 1:
            parts = self.split(self.linear(x, 3 * wide), [wide] * 3, self.pick([2, -1]))
            return [self.apart(self.made(part, (batch, rows, wide)), heads, size) for part in parts]
        bias = self.chance(75)
        return [self.apart(self.linear(x, wide, bias), heads, size) for _ in range(3)]

    def repeated(self, x, times):
        """Each head several times, as exporters write grouped heads."""
        if times == 1:
            return x
        batch, heads, rows, size = x.shape
        apart = self.add("Expand", self.add("Unsqueeze", x, self.ints(2)), self.ints(batch, heads, times, rows, size))
        return self.made(self.reshape(apart, batch, heads * times, rows, size), (batch, heads * times, rows, size))

    def lowest(self):
        return self.pick([-10000.0, -100.0, -1e9, LOWEST, -np.inf, -np.inf])

    def kept_keys(self, batch, keys):
        """Which keys count, of each of which there is one at least."""
        kept = self.random.random((batch, keys)) < 0.7
        kept[:, self.number(0, keys - 1)] = True
        if self.chance(30):  # padding on the left
            for b in range(batch):
                kept[b] = np.arange(keys) >= self.number(0, keys - 1)
        return kept

    def mask(self, batch, heads, queries, keys):
        """Something to add to the scores, or nothing. Whole rows that are masked get finite numbers: softmax makes NaN of -inf."""
        kind, low = self.number(0, 9), self.lowest()
        if queries > keys and np.isinf(low):  # causal: the first queries have no key
            low = LOWEST
        causal = np.arange(keys)[None, :] <= np.arange(queries)[:, None] + keys - queries
        if kind <= 2:
            return None
        if kind == 3:  # one number a key, as an input
            kept = self.kept_keys(batch, keys).reshape(batch, 1, 1, keys)
            return self.given(np.where(kept, 0, low).astype(np.float32), exact=True)
        if kind == 4:  # from integers, as BERT does
            mask = self.given(self.kept_keys(batch, keys).astype(np.int64))
            wide = self.add("Cast", self.add("Unsqueeze", mask, self.ints(1, 2)), to=TensorProto.FLOAT)
            return self.exactly(self.add("Mul", self.exactly(self.add("Sub", self.constant(1.0), wide)), self.constant(-10000.0 if np.isinf(low) else low)))
        if kind == 5:
            return self.constant(np.where(causal, 0, low).reshape(1, 1, queries, keys))
        if kind == 6:  # a bias of each head
            shape = (heads, queries, keys) if self.chance(30) else (1, heads, queries, keys)
            return self.constant(self.normal(*shape))
        if kind == 7:  # a bias of each head, and what is causal
            return self.constant(np.where(causal, self.normal(1, heads, queries, keys), low))
        if kind == 8:  # of truth values
            kept = self.kept_keys(batch, keys)
            kept[:, 0] = True
            truth = self.given(kept.reshape(batch, 1, 1, keys))
            if queries <= keys:
                truth = self.add("And", self.constant(causal.reshape(1, 1, queries, keys), np.bool_), truth)
            return self.exactly(self.add("Where", truth, self.constant([0.0]), self.constant([low])))
        kept = self.random.random((batch, 1, queries, keys)) < 0.8
        kept[..., self.number(0, keys - 1)] = True
        return self.given(np.where(kept, self.normal(batch, 1, queries, keys), low).astype(np.float32), exact=True)

    def exactly(self, name):
        self.exact.add(name)
        return name

    def attended(self, q, k, v, mask=None):
        """Softmax of scores, times values; all [batch, heads, rows, size]."""
        scale, kind = q.shape[-1] ** -0.5, self.number(0, 3)
        turned = self.add("Transpose", k, perm=[0, 1, 3, 2])
        if kind == 0:
            scores = self.add("Div", self.add("MatMul", q, turned), self.constant(1 / scale))
        elif kind == 1:
            scores = self.add("Mul", self.add("MatMul", q, turned), self.constant(scale))
        elif kind == 2:
            scores = self.add("MatMul", self.add("Mul", q, self.constant(scale)), turned)
        else:
            root = self.constant(scale ** 0.5)
            scores = self.add("MatMul", self.add("Mul", q, root), self.add("Mul", turned, root))
        if mask:
            scores = self.add("Add", *self.either(scores, mask))
        weights = self.add("Softmax", scores, axis=-1)
        if mask and self.chance(15):
            weights = self.add("Where", self.add("IsNaN", weights), self.constant([0.0]), weights)
        return self.made(self.add("MatMul", weights, v), (*q.shape[:-1], v.width))

    def joined(self, y):
        batch, heads, rows, size = y.shape
        return self.made(self.reshape(self.add("Transpose", y, perm=[0, 2, 1, 3]), batch, rows, heads * size), (batch, rows, heads * size))

    # --- blocks of rows [batch, rows, width] ---

    def start_rows(self):
        width = self.heads * self.size if self.chance(70) else self.pick([24, 33, 48, 96, 100, 128, 192])
        if self.spec.special:
            rows = self.long_sum(self.pick([7, 33, 64, 70, 77]), self.pick([96, 96, 128, 192, 256, self.heads * self.size]))
        elif self.chance(25):
            rows = self.patches()
        else:
            rows = self.given_rows(self.batch, self.pick([1, 5, 7, 16, 33, 64, 70]), width)
        if self.chance(50):
            rows = self.same(self.add("Add", rows, self.weight(1, rows.rows, rows.width, scale=0.3)), rows)
        if self.chance(20):
            rows = self.norm(rows)
        if self.chance(20):
            rows = self.linear(rows, rows.width)
        return rows

    def long_sum(self, rows, width):
        """Rows behind a product of many channels: programs whose products have many on average have other bodies."""
        channels = self.pick([2048, 3072])
        return self.linear(self.given_rows(self.batch, rows, channels), width)

    def patches(self):
        patch, count, width = self.pick([4, 4, 7, 8]), self.pick([2, 3, 4, 6]), self.pick([24, 48, 96, 100])
        pixels = patch * count + self.pick([0, 0, 3])
        x = self.given(self.normal(self.batch, 3, pixels, pixels))
        operands = [self.weight(width, 3, patch, patch, scale=(3 * patch * patch) ** -0.5)] + ([self.bias(width)] if self.chance(70) else [])
        y = self.add("Conv", x, *operands, kernel_shape=[patch] * 2, strides=[patch] * 2)
        rows = self.made(self.add("Transpose", self.reshape(y, self.batch, width, -1), perm=[0, 2, 1]), (self.batch, count * count, width))
        if self.chance(50):
            rows = self.norm(rows)
        if self.chance(30):
            token = self.add("Expand", self.weight(1, 1, width, scale=1.0), self.ints(self.batch, 1, 1))
            rows = self.made(self.add("Concat", token, rows, axis=1), (self.batch, rows.rows + 1, width))
        return rows

    def self_attention(self, x):
        heads, size = self.heads, self.size

        def attend(y):
            if self.opset >= 23 and self.chance(20):
                return self.linear(self.attention_operator(y), x.width)
            if self.chance(25) and heads % 2 == 0:
                shares = self.pick([2, heads])
                q = self.apart(self.linear(y, heads * size), heads, size)
                k, v = (self.repeated(self.apart(self.linear(y, heads // shares * size), heads // shares, size), shares) for _ in range(2))
            else:
                q, k, v = self.queries_keys_values(y, heads, size)
            mixed = self.attended(q, k, v, self.mask(y.shape[0], heads, y.rows, y.rows))
            return self.linear(self.joined(mixed), x.width)

        return self.residual(x, attend)

    def attention_operator(self, y):
        heads = self.heads
        kv = self.pick([heads, 1])
        q, k, v = self.linear(y, heads * self.size), self.linear(y, kv * self.size), self.linear(y, kv * self.size)
        mask = "" if self.chance(60) else self.given(self.kept_keys(1, y.rows).repeat(y.rows, 0))
        words = {"is_causal": 1} if not mask and self.chance(50) else {}
        if self.chance(20):
            words["softcap"] = 5.0
        return self.made(self.add("Attention", q, k, v, *([mask] if mask else []), q_num_heads=heads, kv_num_heads=kv, **words), (*y.shape[:-1], heads * self.size))

    def cross_attention(self, x):
        """Queries of x, keys and values of an input."""
        keys, width = self.pick([1, 4, 9, 40]), self.pick([x.width, 24, 50])
        memory = self.given_rows(x.shape[0], keys, width)

        def attend(y):
            heads, size, columns = self.heads, self.size, self.pick([self.size, self.size, self.size // 2])
            q, k = (self.apart(self.linear(each, heads * size), heads, size) for each in (y, memory))
            v = self.apart(self.linear(memory, heads * columns), heads, columns)
            return self.linear(self.joined(self.attended(q, k, v, self.mask(y.shape[0], heads, y.rows, keys))), x.width)

        return self.residual(x, attend)

    def feed_forward(self, x):
        def feed(y):
            wide = self.pick([x.width, 2 * x.width, 4 * x.width, 37])
            return self.linear(self.activation(self.linear(y, wide)), x.width)
        return self.residual(x, feed)

    def gated(self, x):
        def feed(y):
            wide = self.pick([x.width, 2 * x.width, 44])
            kinds = ("silu", "silu", "gelu", "sigmoid", "erf")
            if self.chance(35):
                gate, up = (self.made(part, (*x.shape[:-1], wide)) for part in self.split(self.linear(y, 2 * wide), [wide, wide], -1))
            else:
                gate, up = self.linear(y, wide), self.linear(y, wide)
            return self.linear(self.same(self.add("Mul", *self.either(self.activation(gate, kinds), up)), gate), x.width)
        return self.residual(x, feed)

    def product(self, x):
        """One product between normalisations, with another width behind."""
        y = self.linear(self.norm(x) if self.chance(50) else x, self.pick([x.width, 24, 64, 96, 128, 51]))
        return self.activation(y, ("relu", "silu", "sigmoid", "erf")) if self.chance(30) else y

    def mixer(self, x):
        """Products along rows, as MLP-Mixer."""
        def mix(y):
            turned = self.made(self.add("Transpose", y, perm=[0, 2, 1]), (y.shape[0], y.width, y.rows))
            inner = self.linear(self.activation(self.linear(turned, self.pick([16, 30]))), y.rows)
            return self.made(self.add("Transpose", inner, perm=[0, 2, 1]), y.shape)
        return self.residual(x, mix)

    def skipped(self, x):
        """The sum and the normalisation of ONNX Runtime's optimiser; both results are read."""
        other = self.linear(x, x.width)
        if self.chance(50):
            y, _, _, total = self.add("SkipLayerNormalization", x, other, self.weight(x.width, scale=0.1, offset=1.0), self.bias(x.width), outputs=4, domain=MICROSOFT, epsilon=1e-6)
        else:
            y, _, _, total = self.add("SkipSimplifiedLayerNormalization", x, other, self.weight(x.width, scale=0.1, offset=1.0), outputs=4, domain=MICROSOFT, epsilon=1e-6)
        self.nodes[-1].output[1] = self.nodes[-1].output[2] = ""
        inner = self.linear(self.activation(self.linear(self.same(y, x), 2 * x.width)), x.width)
        return self.same(self.add("Add", total, inner), x)

    def elementwise(self, x):
        kind = self.number(0, 3)
        if kind == 0:
            return self.same(self.add("Add", x, self.weight(x.width, scale=1.0)), x)
        if kind == 1:
            return self.same(self.add("Mul", x, self.add("Sigmoid", self.linear(x, x.width))), x)
        if kind == 2:
            return self.activation(x)
        return self.same(self.add("Softmax", x, axis=-1), x) if self.chance(40) else self.norm(x)

    def end_rows(self, x):
        kind = self.number(0, 4)
        if kind == 0:
            mean = self.made(self.reduced("ReduceMean", x, [1], keepdims=0), (x.shape[0], x.width))
            return self.linear(mean, self.pick([10, 33]))
        if kind == 1:
            first = self.made(self.add("Gather", self.norm(x), self.constant(0, np.int64), axis=1), (x.shape[0], x.width))
            return self.linear(first, self.pick([10, 33]))
        if kind == 2:
            return self.linear(self.norm(x), self.pick([10, 100]))
        return self.norm(x) if kind == 3 else x

    # --- blocks of a decoder's step: few rows, keys and values of those before as inputs ---

    def start_steps(self):
        self.batch = 1 if self.chance(80) or self.spec.special else 2
        self.size = self.pick([16, 32, 32, 64])
        self.heads = self.pick([1, 2, 4, 6])
        self.shares = self.pick([share for share in (1, 1, 2, self.heads) if self.heads % share == 0])
        self.past = self.pick([1, 3, 17, 60, 130])
        rows = 1 if self.spec.special else self.pick([1, 2, 3, 4, 5])
        half = self.size // 2
        angles = np.outer(np.arange(self.past, self.past + rows), 100.0 ** -(np.arange(half) / half))
        self.angles = [self.constant(np.concatenate([f(angles)] * 2, -1).reshape(1, 1, rows, self.size)) if self.chance(40)
                       else self.given(np.concatenate([f(angles)] * 2, -1).reshape(1, 1, rows, self.size).astype(np.float32)) for f in (np.cos, np.sin)]
        width = self.pick([self.heads * self.size, 64, 96, 128, 200])
        keys = self.past + rows
        kept = np.arange(keys)[None, :] <= np.arange(rows)[:, None] + self.past
        self.step_mask = None
        if self.chance(60):
            low = self.lowest()
            kept = kept[None, None] & (self.random.random((self.batch, 1, 1, keys)) < 0.8)
            kept[..., self.number(0, self.past - 1)] = True
            self.step_mask = self.given(np.where(kept, 0, low).astype(np.float32), exact=True)
        elif rows > 1:
            self.step_mask = self.constant(np.where(kept, 0, -np.inf).reshape(1, 1, rows, keys))
        return self.given_rows(self.batch, rows, width)

    def rotated(self, x, kind):
        if kind == "none":
            return x
        size = x.width
        cosine, sine = self.angles
        part = lambda begin, end, step=1: self.add("Slice", x, self.ints(begin), self.ints(end), self.ints(3), self.ints(step))
        if kind == "halves":
            turned = self.add("Concat", self.add("Neg", part(size // 2, 2**31)), part(0, size // 2), axis=3)
        else:
            column = lambda y: self.add("Unsqueeze", y, self.ints(-1))
            pairs = self.add("Concat", column(self.add("Neg", part(1, 2**31, 2))), column(part(0, 2**31, 2)), axis=-1)
            turned = self.reshape(pairs, *x.shape)
        return self.same(self.add("Add", self.add("Mul", x, cosine), self.add("Mul", turned, sine)), x)

    def step_attention(self, x):
        heads, size, shares, past = self.heads, self.size, self.shares, self.past
        kv = heads // shares

        def attend(y):
            bias, kind = self.chance(30), self.pick(["none", "halves", "halves", "pairs"])
            q = self.rotated(self.apart(self.linear(y, heads * size, bias), heads, size), kind)
            k = self.rotated(self.apart(self.linear(y, kv * size, bias), kv, size), kind)
            v = self.apart(self.linear(y, kv * size, bias), kv, size)
            before = [self.given(self.normal(y.shape[0], kv, past, size)) for _ in range(2)]
            shape = (y.shape[0], kv, past + y.rows, size)
            keys, values = (self.made(self.add("Concat", old, new, axis=2), shape) for old, new in zip(before, (k, v)))
            wanted = self.number(0, 3)
            if wanted:
                self.outputs += [k, v] if wanted == 1 else [keys, values]
            return self.linear(self.joined(self.attended(q, self.repeated(keys, shares), self.repeated(values, shares), self.step_mask)), x.width)

        return self.residual(x, attend)

    def end_steps(self, x):
        y = self.norm(x) if self.chance(80) else x
        return self.linear(y, self.pick([50, 131, 300]), False) if self.chance(60) else y

    # --- windows: rows of maps of `pixels` x `pixels` ---

    def start_windows(self):
        self.window = self.pick([2, 3, 4, 4, 7])
        self.pixels = self.window * self.pick([1, 2, 2, 3] if self.window < 7 else [1, 2])
        if self.spec.special and self.chance(50):
            self.window, self.pixels, self.batch = 7, 14, 1
        self.size = self.pick([8, 16, 32, 32])
        self.heads = self.pick([1, 2, 3, 4])
        width = self.heads * self.size
        count = self.pixels ** 2
        if self.spec.special:
            rows = self.long_sum(count, self.pick([width, 96, 192]))
            self.heads = self.pick([heads for heads in (1, 2, 3, 6) if rows.width % heads == 0 and rows.width // heads <= 64])
            return rows
        if self.chance(40):  # behind patches
            x = self.given(self.normal(self.batch, 3, 2 * self.pixels, 2 * self.pixels))
            y = self.add("Conv", x, self.weight(width, 3, 2, 2, scale=0.3), self.bias(width), kernel_shape=[2, 2], strides=[2, 2])
            rows = self.made(self.add("Transpose", self.reshape(y, self.batch, width, count), perm=[0, 2, 1]), (self.batch, count, width))
            return self.norm(rows) if self.chance(60) else rows
        rows = self.given_rows(self.batch, count, width)
        return self.linear(rows, width) if self.chance(50) else rows

    def rolled(self, x, shift):
        """A map [batch, pixels, pixels, width], moved along both axes."""
        for axis in (1, 2):
            at = lambda begin, end: self.add("Slice", x, self.ints(begin), self.ints(end), self.ints(axis), self.ints(1))
            x = self.add("Concat", at(shift, 2**31), at(0, shift), axis=axis)
        return x

    def window_attention(self, x):
        window, pixels, heads = self.window, self.pixels, self.heads
        size = x.width // heads if x.width % heads == 0 else self.size
        across, rows, batch = pixels // window, window * window, x.shape[0]
        shift = window // 2 if across > 1 and self.chance(50) else 0
        grid = not shift and self.chance(20)  # every n-th pixel, as MaxViT
        count = across * across

        def attend(y):
            map_ = self.reshape(y, batch, pixels, pixels, x.width)
            if shift:
                map_ = self.rolled(map_, shift)
            extents = (window, across, window, across) if grid else (across, window, across, window)
            perm = [0, 2, 4, 1, 3, 5] if grid else [0, 1, 3, 2, 4, 5]
            cut = self.add("Transpose", self.reshape(map_, batch, *extents, x.width), perm=perm)
            cut = self.made(self.reshape(cut, batch * count, rows, x.width), (batch * count, rows, x.width))
            q, k, v = self.queries_keys_values(cut, heads, size)
            scores = self.add("MatMul", self.add("Mul", q, self.constant(size ** -0.5)), self.add("Transpose", k, perm=[0, 1, 3, 2]))
            if self.chance(80):
                scores = self.add("Add", scores, self.constant(self.normal(1, heads, rows, rows, scale=0.5)))
            if shift:
                scores = self.masked_windows(scores, batch, count, across, shift)
            mixed = self.made(self.add("MatMul", self.add("Softmax", scores, axis=-1), v), (batch * count, heads, rows, size))
            out = self.linear(self.joined(mixed), x.width)
            back = self.add("Transpose", self.reshape(out, batch, across, across, window, window, x.width), perm=[0, 3, 1, 4, 2, 5] if grid else [0, 1, 3, 2, 4, 5])
            back = self.reshape(back, batch, pixels, pixels, x.width)
            if shift:
                back = self.rolled(back, pixels - shift)
            return self.made(self.reshape(back, batch, pixels * pixels, x.width), x.shape)

        return self.residual(x, attend)

    def masked_windows(self, scores, batch, count, across, shift):
        """Pixels that were moved around the edge see only each other."""
        window, pixels, rows = self.window, self.pixels, self.window ** 2
        part = np.digitize(np.arange(pixels), [pixels - window, pixels - shift])
        number = part[:, None] * 3 + part[None, :]
        number = number.reshape(across, window, across, window).transpose(0, 2, 1, 3).reshape(count, rows)
        low = self.pick([-100.0, -100.0, LOWEST, -np.inf])
        mask = np.where(number[:, None, :] == number[:, :, None], 0, low).astype(np.float32)
        apart = self.reshape(scores, batch, count, self.heads, rows, rows)
        masked = self.add("Add", apart, self.constant(mask.reshape(1, count, 1, rows, rows) if self.chance(50) else mask.reshape(count, 1, rows, rows)))
        return self.reshape(masked, batch * count, self.heads, rows, rows)

    def merging(self, x):
        """Four pixels side by side, in windows' next stage."""
        if self.pixels % (2 * self.window):
            return self.feed_forward(x)
        batch, half = x.shape[0], self.pixels // 2
        map_ = self.reshape(x, batch, self.pixels, self.pixels, x.width)
        at = lambda row, column: self.add("Slice", map_, self.ints(row, column), self.ints(2**31, 2**31), self.ints(1, 2), self.ints(2, 2))
        joined = self.add("Concat", at(0, 0), at(1, 0), at(0, 1), at(1, 1), axis=-1)
        rows = self.made(self.reshape(joined, batch, half * half, 4 * x.width), (batch, half * half, 4 * x.width))
        self.pixels = half
        wide = 2 * x.width if x.width <= 64 else x.width
        return self.linear(self.norm(rows), wide, False) if self.chance(70) else self.norm(self.linear(rows, wide, False))

    def end_windows(self, x):
        return self.end_rows(x)

    # --- blocks of maps [batch, channels, height, width] ---

    def start_maps(self):
        channels, height, width = self.pick([3, 8, 16, 24]), self.pick([7, 8, 12, 15]), self.pick([7, 8, 13])
        x = self.given_rows(self.batch, channels, height, width)
        if self.spec.special:
            x = self.given_rows(self.batch, 1536, 8, 8)
        return self.conv(x, self.pick([16, 24, 32, 48, 33]), self.pick([1, 3]), stride=self.pick([1, 1, 2]))

    def conv(self, x, outputs, kernel=1, stride=1, group=1, dilation=1, act="any", norm=None):
        batch, channels, height, width = x.shape
        pad = dilation * (kernel // 2)
        bias = self.chance(70)
        norm = self.chance(20) if norm is None else norm
        operands = [self.weight(outputs, channels // group, kernel, kernel, scale=(1.5 / (channels // group * kernel * kernel)) ** 0.5)] + ([self.bias(outputs)] if bias else [])
        y = self.add("Conv", x, *operands, group=group, strides=[stride] * 2, pads=[pad] * 4, dilations=[dilation] * 2, kernel_shape=[kernel] * 2)
        if norm:
            factors = [self.weight(outputs, scale=0.2, offset=1.0), self.bias(outputs), self.weight(outputs, scale=0.1)]
            y = self.add("BatchNormalization", y, *factors, self.constant(np.linspace(0.5, 1.5, outputs)))
        y = self.made(y, (batch, outputs, *((extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for extent in (height, width))))
        if act == "any":
            act = self.pick(["relu", "relu", "silu", "hard", "none", "leaky", "sigmoid"])
        return y if act == "none" else self.activation(y, (act,))

    def plain_conv(self, x):
        channels = x.shape[1]
        kind = self.number(0, 4)
        if kind == 0 and channels % 2 == 0:
            return self.conv(x, channels, 3, group=2)
        if kind == 1:
            return self.conv(x, self.pick([16, 32, 40]), 3, dilation=self.pick([2, 3, 6]))
        stride = 2 if min(x.shape[2:]) > 6 and self.chance(30) else 1
        return self.conv(x, self.pick([channels, 16, 32, 48, 51]), self.pick([1, 1, 3, 3, 5]), stride=stride)

    def bottleneck(self, x):
        """Of a residual network: with two readers of x, and of its sum."""
        channels, inner = x.shape[1], self.pick([8, 16, 24])
        y = self.conv(x, inner, 1)
        if self.chance(70):
            y = self.conv(y, inner, 3)
        y = self.conv(y, channels, 1, act="none")
        y = self.same(self.add("Add", *self.either(x, y)), x)
        return self.activation(y, ("relu", "silu")) if self.chance(70) else y

    def squeezed(self, x):
        """Squeeze-and-excite."""
        channels, hidden = x.shape[1], self.pick([4, 6, 10])
        if self.chance(50):
            pooled = self.add("GlobalAveragePool", x)
        else:
            pooled = self.reduced("ReduceMean", x, [2, 3])
        y = self.made(pooled, (x.shape[0], channels, 1, 1))
        y = self.conv(self.conv(y, hidden, act=self.pick(["relu", "silu", "hard"]), norm=False), channels, act="none", norm=False)
        gate = self.add("Sigmoid", y) if self.chance(70) else self.add("HardSigmoid", y)
        return self.same(self.add("Mul", *self.either(x, gate)), x)

    def inverted(self, x):
        """Inverted residuals: wide, depthwise, squeeze-and-excite, narrow."""
        channels = x.shape[1]
        wide = channels * self.pick([1, 2, 3])
        y = self.conv(x, wide) if self.chance(80) else x
        stride = 2 if min(x.shape[2:]) > 6 and self.chance(25) else 1
        y = self.conv(y, y.shape[1], self.pick([3, 3, 5]), stride=stride, group=y.shape[1])
        if self.chance(60):
            y = self.squeezed(y)
        y = self.conv(y, channels if stride == 1 else self.pick([channels, 40]), act="none")
        return self.same(self.add("Add", x, y), x) if stride == 1 and self.chance(80) else y

    def pair(self, x):
        """Pointwise convolutions one behind the other, across the end of a residual block."""
        channels = x.shape[1]
        y = self.conv(self.conv(x, self.pick([16, 32]), act="relu"), channels, act="none")
        total = self.activation(self.same(self.add("Add", x, y), x), ("relu",))
        inner = self.conv(total, self.pick([16, 24, 64]))
        if self.chance(50):
            return self.same(self.add("Add", total, self.conv(inner, channels)), x)
        return inner

    def shuffle(self, x):
        """Of ShuffleNet."""
        batch, channels, height, width = x.shape
        if channels % 2:
            return self.plain_conv(x)
        half = channels // 2
        by, y = self.split(x, [half, half], 1)
        y = self.made(y, (batch, half, height, width))
        y = self.conv(self.conv(self.conv(y, half), half, 3, group=half, act="none"), half)
        both = self.reshape(self.add("Concat", by, y, axis=1), batch, 2, half, height, width)
        return self.same(self.reshape(self.add("Transpose", both, perm=[0, 2, 1, 3, 4]), batch, channels, height, width), x)

    def halves(self, x):
        """YOLO: a map is split, a half goes through bottlenecks, and all are joined."""
        y = self.conv(x, 2 * self.pick([8, 16, 20]))
        half = y.shape[1] // 2
        parts = [self.made(part, (y.shape[0], half, *y.shape[2:])) for part in self.split(y, [half, half], 1)]
        for _ in range(self.number(1, 2)):
            inner = self.conv(self.conv(parts[-1], half, self.pick([1, 3])), half, 3)
            parts.append(self.same(self.add("Add", inner, parts[-1]), inner) if self.chance(70) else inner)
        joined = self.made(self.add("Concat", *parts, axis=1), (y.shape[0], half * len(parts), *y.shape[2:]))
        return self.conv(joined, self.pick([16, 24, 40]))

    def dense(self, x):
        growth = self.pick([8, 12, 16])
        for _ in range(self.number(2, 3)):
            y = x
            if self.chance(50):  # normalisation in front
                channels = x.shape[1]
                factors = [self.weight(channels, scale=0.2, offset=1.0), self.bias(channels), self.weight(channels, scale=0.1)]
                y = self.same(self.add("Relu", self.add("BatchNormalization", x, *factors, self.constant(np.linspace(0.5, 1.5, channels)))), x)
            y = self.conv(self.conv(y, 2 * growth), growth, 3)
            x = self.made(self.add("Concat", x, y, axis=1), (x.shape[0], x.shape[1] + growth, *x.shape[2:]))
        return self.conv(x, 32) if x.shape[1] > 64 or self.chance(30) else x

    def branches(self, x):
        """Convolutions that read one map, joined."""
        parts = [self.conv(x, self.pick([8, 12, 16]), self.pick([1, 1, 3])) for _ in range(self.number(2, 3))]
        if self.chance(50):
            parts.append(self.same(self.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1]), x))
        return self.made(self.add("Concat", *parts, axis=1), (x.shape[0], sum(part.shape[1] for part in parts), *x.shape[2:]))

    def pool(self, x):
        if min(x.shape[2:]) < 5:
            return self.squeezed(x)
        words = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4} if self.chance(50) else {"kernel_shape": [2, 2], "strides": [2, 2]}
        size = [(extent - 1) // 2 + 1 if "pads" in words else extent // 2 for extent in x.shape[2:]]
        return self.made(self.add(self.pick(["MaxPool", "AveragePool"]), x, **words), (*x.shape[:2], *size))

    def upsampled(self, x):
        """A map at half of the size comes back and is joined with x."""
        small = self.pool(x)
        if small.shape[2:] == x.shape[2:]:
            return small
        small = self.conv(small, 16)
        y = self.add("Resize", small, "", "", self.ints(*small.shape[:2], *x.shape[2:]), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        return self.conv(self.made(self.add("Concat", x, y, axis=1), (x.shape[0], x.shape[1] + 16, *x.shape[2:])), 24)

    def convnext(self, x):
        """A depthwise convolution, a normalisation of pixels, two products."""
        batch, channels, height, width = x.shape
        y = self.conv(x, channels, self.pick([3, 7]), group=channels, act="none", norm=False)
        y = self.made(self.add("Transpose", y, perm=[0, 2, 3, 1]), (batch, height, width, channels))
        y = self.linear(self.activation(self.linear(self.norm(y), self.pick([2, 4]) * channels), ("gelu", "erf")), channels)
        if self.chance(60):
            y = self.same(self.add("Mul", y, self.weight(channels, scale=0.2, offset=0.5)), y)
        return self.same(self.add("Add", x, self.add("Transpose", y, perm=[0, 3, 1, 2])), x)

    def map_attention(self, x):
        """A map's pixels as rows: normalisation, attention, and back."""
        batch, channels, height, width = x.shape
        rows = self.made(self.add("Transpose", self.reshape(x, batch, channels, height * width), perm=[0, 2, 1]), (batch, height * width, channels))
        rows = self.self_attention(rows)
        return self.same(self.reshape(self.add("Transpose", rows, perm=[0, 2, 1]), batch, channels, height, width), x)

    def group_norm(self, x):
        batch, channels, height, width = x.shape
        groups = self.pick([groups for groups in (1, 2, 4, 8) if channels % groups == 0])
        if channels == groups or self.chance(20):
            y = self.add("InstanceNormalization", x, self.weight(channels, scale=0.1, offset=1.0), self.bias(channels))
            return self.activation(self.same(y, x), ("relu", "silu"))
        y = self.add("InstanceNormalization", self.reshape(x, batch, groups, -1), self.constant(np.ones(groups)), self.constant(np.zeros(groups)))
        y = self.add("Mul", self.reshape(y, *x.shape), self.weight(channels, 1, 1, scale=0.1, offset=1.0))
        return self.activation(self.same(self.add("Add", y, self.weight(channels, 1, 1, scale=0.1)), x), ("relu", "silu"))

    def end_maps(self, x):
        kind = self.number(0, 3)
        if kind == 0:
            return self.conv(x, self.pick([10, 21]), act="none")
        if kind == 1:
            return x
        x = self.conv(x, self.pick([64, 100]))
        pooled = self.add("GlobalAveragePool", x) if self.chance(50) else self.reduced("ReduceMean", x, [2, 3])
        flat = self.made(self.add("Flatten", pooled), x.shape[:2])
        return self.made(self.add("Gemm", flat, self.weight(10, x.shape[1], scale=x.shape[1] ** -0.5), self.bias(10), transB=1), (x.shape[0], 10))

    # --- recurrent blocks of sequences [steps, batch, width] ---

    def start_recurrent(self):
        steps, width = self.number(2, 7), self.pick([5, 16, 32, 48])
        x = self.given_rows(steps, self.batch, width)
        return self.linear(x, self.pick([16, 32])) if self.chance(30) else x

    def layer(self, x, op=None, hidden=None, states=()):
        """A node; its results."""
        op = op or self.pick(["LSTM", "GRU", "RNN"])
        gates, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], hidden or self.pick([5, 16, 32, 32, 64])
        steps, batch, width = x.shape
        directions = 1 if states else self.pick([1, 1, 2])
        parts = [self.weight(directions, gates * hidden, size, scale=size ** -0.5) for size in (width, hidden)]
        bias = self.weight(directions, 2 * gates * hidden, scale=0.1) if self.chance(70) else ""
        words = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else self.pick(["forward", "forward", "reverse"])}
        if op == "GRU":
            words["linear_before_reset"] = self.number(0, 1)
        results = self.add(op, x, *parts, bias, *(["", *states] if states else []), outputs=3 if op == "LSTM" else 2, **words)
        return op, hidden, directions, results

    def stacked(self, x):
        """One layer or several, the next one on the results of all directions."""
        for _ in range(self.number(1, 3)):
            _, hidden, directions, results = self.layer(x)
            steps, batch = x.shape[:2]
            if directions == 1:
                y = self.add("Squeeze", results[0], self.ints(1))
            else:
                y = self.reshape(self.add("Transpose", results[0], perm=[0, 2, 1, 3]), steps, batch, 2 * hidden)
            x = self.made(y, (steps, batch, directions * hidden))
        return x

    def translated(self, x):
        """A decoder that begins with the last states of an encoder."""
        op, hidden, directions, results = self.layer(x)
        other = self.given_rows(self.number(1, 4), x.shape[1], 12)
        if directions == 2:
            states = [self.add("Slice", each, self.ints(0), self.ints(1), self.ints(0)) for each in results[1:]]
        else:
            states = results[1:]
        _, _, _, results = self.layer(other, op, hidden, states)
        return self.made(self.add("Squeeze", results[0], self.ints(1)), (*other.shape[:2], hidden))

    def unrolled(self, x):
        """Cells in operators, one for each step."""
        steps, batch, width = x.shape
        hidden, kind = self.pick([8, 16, 33]), self.pick(["lstm", "rnn", "gru"])
        gates = {"lstm": 4, "rnn": 1, "gru": 3}[kind]
        w, r, b = self.weight(width, gates * hidden), self.weight(hidden, gates * hidden), self.bias(gates * hidden)
        h = c = self.constant(np.zeros((batch, hidden)))
        all_steps = []
        for step in range(min(steps, 4)):
            now = self.add("Gather", x, self.constant(step, np.int64), axis=0)
            if kind == "gru":
                parts = [self.split(self.add("MatMul", now, w), [hidden] * 3, 1), self.split(self.add("Add", self.add("MatMul", h, r), b), [hidden] * 3, 1)]
                z, reset = (self.add("Sigmoid", self.add("Add", parts[0][i], parts[1][i])) for i in range(2))
                new = self.add("Tanh", self.add("Add", parts[0][2], self.add("Mul", reset, parts[1][2])))
                h = self.add("Add", self.add("Mul", self.add("Sub", self.constant(1.0), z), new), self.add("Mul", z, h))
            else:
                total = self.add("Add", self.add("Add", self.add("MatMul", now, w), self.add("MatMul", h, r)), b)
                if kind == "rnn":
                    h = self.add("Tanh", total)
                else:
                    i, f, g, o = self.split(total, [hidden] * 4, 1)
                    c = self.add("Add", self.add("Mul", self.add("Sigmoid", f), c), self.add("Mul", self.add("Sigmoid", i), self.add("Tanh", g)))
                    h = self.add("Mul", self.add("Sigmoid", o), self.add("Tanh", c))
            all_steps.append(self.add("Unsqueeze", h, self.ints(0)))
        y = self.add("Concat", *all_steps, axis=0) if len(all_steps) > 1 else all_steps[0]
        return self.made(y, (len(all_steps), batch, hidden))

    def sequence_rows(self, x):
        """Steps as rows: a block of a transformer between recurrent layers."""
        rows = self.made(self.add("Transpose", x, perm=[1, 0, 2]), (x.shape[1], x.shape[0], x.width))
        rows = self.pick([self.self_attention, self.feed_forward, self.gated])(rows)
        return self.made(self.add("Transpose", rows, perm=[1, 0, 2]), (rows.shape[1], rows.shape[0], rows.width))

    def end_recurrent(self, x):
        kind = self.number(0, 2)
        if kind == 0:
            last = self.made(self.add("Gather", x, self.constant(x.shape[0] - 1, np.int64), axis=0), x.shape[1:])
            return self.linear(last, 10)
        return self.linear(x, self.pick([10, 40])) if kind == 1 else x

    # --- the whole ---

    def again(self, x):
        """The sum with something earlier of the same shape: a further reader."""
        earlier = [each for each in self.live[:-1] if each.shape == x.shape]
        return self.same(self.add(self.pick(["Add", "Add", "Mul"]), x, self.pick(earlier)), x) if earlier and self.chance(20) else x

    def build(self):
        theme = self.spec.theme
        x = getattr(self, f"start_{theme}")()
        self.live.append(x)
        for name, seed in self.spec.blocks:
            self.seeded(self.spec.seed, seed)
            x = self.again(getattr(self, name)(x))
            self.live.append(x)
            if self.chance(12):
                self.outputs.append(x)
        self.outputs.append(x)
        if x.name in self.inputs:  # of a list without blocks
            self.outputs[-1] = self.same(self.add("Identity", x), x)
        return self.finish()

    def finish(self):
        made = {name for node in self.nodes for name in node.output}
        outputs = list({each.name: each for each in self.outputs if each.name in made}.values())
        if self.spec.outputs:
            outputs = [each for each in outputs if each.name in self.spec.outputs] or outputs
        ports = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape) for name, values in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "g", ports, [helper.make_tensor_value_info(each.name, TensorProto.FLOAT, each.shape) for each in outputs], self.weights)
        imports = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid(domain, 1) for domain in sorted(self.domains)]
        return helper.make_model(without_dead(graph), opset_imports=imports, ir_version=11 if self.opset > 22 else 9)


BLOCKS = {
    "rows": ["self_attention"] * 4 + ["feed_forward"] * 3 + ["gated"] * 2 + ["cross_attention", "product", "mixer", "skipped", "elementwise"],
    "steps": ["step_attention"] * 4 + ["gated"] * 3 + ["feed_forward", "feed_forward", "product", "elementwise", "skipped"],
    "windows": ["window_attention"] * 4 + ["feed_forward"] * 3 + ["merging", "elementwise"],
    "maps": ["plain_conv", "plain_conv", "bottleneck", "bottleneck", "squeezed", "inverted", "inverted", "pair", "pair", "shuffle", "halves", "dense", "branches", "pool", "upsampled", "convnext",
             "convnext", "map_attention", "group_norm"],
    "recurrent": ["stacked", "stacked", "translated", "unrolled", "sequence_rows", "product"],
}


def spec_of(seed, theme, opset, special=False):
    random = np.random.default_rng([seed, 1])
    count = int(random.integers(1, 3 if theme == "recurrent" else 5))
    names = [BLOCKS[theme][int(random.integers(len(BLOCKS[theme])))] for _ in range(count)]
    blocks = [*((name, i + 2) for i, name in enumerate(names)), (f"end_{theme}", 100)]
    return Spec(theme, opset, seed, tuple(blocks), special)


def without_dead(graph):
    """The graph without nodes, constants and inputs that no output needs."""
    needed, nodes = {entry.name for entry in graph.output}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    kept = onnx.GraphProto(name=graph.name, node=nodes, output=graph.output)
    kept.input.extend(entry for entry in graph.input if entry.name in needed)
    kept.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
    return kept


# --- what is right, and how near an answer must be ---------------------------------------------------------------------

def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def values_of(model, inputs):
    """Of all results of all nodes, by name."""
    names = [name for node in model.graph.node for name in node.output if name]
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, session(whole).run(None, inputs)))


SPLITS = {"fp32": 2**4 + 1, "tf32": 2**13 + 1}  # leave 20 and 11 bits; 20, since sums in another order are wrong by more than the last bit


def rounded_nodes(name, precision):
    """Nodes that make NAME/rounded of NAME: what is left of a number in this precision."""
    if precision in SPLITS:  # in the range of f32: Veltkamp's way to split a number
        makers = [("Mul", [name, "split"], f"{name}/c"), ("Sub", [f"{name}/c", name], f"{name}/d"), ("Sub", [f"{name}/c", f"{name}/d"], f"{name}/rounded")]
        return [helper.make_node(op, operands, [made]) for op, operands, made in makers]
    to = TensorProto.FLOAT16 if precision == "fp16" else TensorProto.BFLOAT16
    return [helper.make_node("Cast", [name], [f"{name}/half"], to=to), helper.make_node("Cast", [f"{name}/half"], [f"{name}/rounded"], to=TensorProto.FLOAT)]


def rounded(model, inputs, exact, precision):
    """Outputs if all that is stored is rounded to the precision. `exact`: what is not."""
    known = {**inputs, **values_of(model, inputs)}
    known |= {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    def is_rounded(name):
        values = known[name]
        return values.dtype == np.float32 and name not in exact and values.size > 1 and np.isfinite(values).all() and np.abs(values).max() < 3e4

    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.node[:]
    nodes, now = [], {}

    def note(name):
        if name and is_rounded(name):
            nodes.extend(rounded_nodes(name, precision))
            now[name] = f"{name}/rounded"

    for name in [*inputs, *(tensor.name for tensor in model.graph.initializer)]:
        note(name)
    for node in model.graph.node:
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        changed.input[:] = [now.get(name, name) for name in node.input]
        nodes.append(changed)
        for name in node.output:
            note(name)
    graph.node.extend(nodes)
    graph.initializer.append(numpy_helper.from_array(np.float32(SPLITS.get(precision, 1)), "split"))
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.CopyFrom(graph)
    return session(made).run(None, inputs)


FLOORS = {"fp32": 2e-5, "tf32": 1e-3, "fp16": 1e-3, "bf16": 8e-3}  # relative L2 of what is rounded but a few times


def distances(found, expected):
    """Relative to the root mean square of what is right: the root mean square of what is wrong, and its largest element. Infinite where one of them
    is a number and the other is none."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    if (np.isfinite(a) != np.isfinite(b)).any() or (np.isnan(a) != np.isnan(b)).any():
        return np.inf, np.inf
    both = np.isfinite(b)
    scale = np.sqrt(np.mean(b[both] ** 2)) if both.any() else 1.0
    gap = np.abs(a[both] - b[both]) / max(scale, 1e-3)
    return (float(np.sqrt(np.mean(gap**2))), float(gap.max())) if gap.size else (0.0, 0.0)


@dataclasses.dataclass
class Case:
    """A network with its inputs and what is right."""
    model: onnx.ModelProto
    inputs: dict
    exact: set
    expected: list
    limits: list  # per output, as `distances`

    def part(self, name):
        return many.Part(name, self.model, list(self.inputs.values()))

    def difference(self, found):
        """Empty if all outputs are near, else a sentence."""
        for port, got, values, limit in zip(self.model.graph.output, found, self.expected, self.limits):
            if got.shape != values.shape or got.dtype != values.dtype:
                return f"output {port.name} is {got.dtype}{list(got.shape)}, expected {values.dtype}{list(values.shape)}"
            apart = distances(got, values)
            if apart[0] > limit[0] or apart[1] > limit[1]:
                return (f"output {port.name}: relative L2 {apart[0]:.1e}, limit {limit[0]:.1e}; largest element {apart[1]:.1e}, limit {limit[1]:.1e}; "
                        f"{int(np.isnan(got).sum())} NaN, expected {int(np.isnan(values).sum())}")
        return ""


def case_of(model, inputs, exact, precision):
    """What rounding alone changes, several times, is what an answer may differ by."""
    inputs = {entry.name: inputs[entry.name] for entry in model.graph.input}
    expected = session(model).run(None, inputs)
    floor = FLOORS[precision]
    noise = [distances(a, b) for a, b in zip(rounded(model, inputs, exact, precision), expected)]
    limits = [(max(floor, 4 * each[0]), max(20 * floor, 6 * each[1])) for each in noise]
    return Case(model, inputs, exact, expected, limits)


def make(spec, precision):
    network = Network(spec)
    model = network.build()
    return case_of(model, network.inputs, network.exact, precision)

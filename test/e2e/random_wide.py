"""Random ONNX models over all operators and element types: odd shapes, views of views, results that several nodes read or nobody does,
outputs that are inputs or constants. Every node is run by ONNX Runtime as it is added, so a model knows its answers, and a node that ONNX Runtime
does not take is left out. (random_model.py has models for the fast f32 bodies alone, whose shapes it works out itself.)"""
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import many

OPSET = 20
NODES = 10
MOST_ELEMENTS = 6000
MOST = 1e4  # of a float: what is larger makes small differences large
EXTREME = 6  # one seed of so many has numbers near the ends of their types, which no narrower type on the way may touch
HUGE = [1e300, -1e300, 1e-300, 1e39, 16777217.25, 0.1]  # of f64

FLOATS = [np.float32, np.float32, np.float32, np.float64, np.float16]
WHOLE = [np.int64, np.int32, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64]
ALL = [*FLOATS, *WHOLE, np.bool_]

SMOOTH = ["Sigmoid", "Tanh", "Erf", "Exp", "Softplus", "Softsign", "Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish",
          "LeakyRelu", "ThresholdedRelu", "Mish", "Gelu"]
POSITIVE = ["Sqrt", "Log", "Reciprocal"]
EXACT = ["Abs", "Neg", "Relu", "Identity"]        # an exact operand gives an exact result
STEPS = ["Floor", "Ceil", "Round", "Sign"]        # on exact operands only: a small difference would become 1
REDUCE = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"]


def fits_whole(values, dtype):
    limits, wide = np.iinfo(dtype), values.astype(np.float64)
    return wide.min() >= limits.min and wide.max() <= limits.max


def is_float(dtype):
    return np.issubdtype(dtype, np.floating)


def between(values):
    """A number from which all of the values are far, if there is one among them, else one above them."""
    wide = np.unique(values.astype(np.float64))
    gaps = np.diff(wide)
    if len(gaps) and gaps.max() > 0.02 * max(1, np.abs(wide).max()):
        at = int(np.argmax(gaps))
        return float((wide[at] + wide[at + 1]) / 2)
    return float(wide[-1] + 1)


class Live:
    def __init__(self, name, values, exact):
        self.name, self.values, self.exact = name, values, exact

    dtype = property(lambda self: self.values.dtype)
    shape = property(lambda self: self.values.shape)
    rank = property(lambda self: self.values.ndim)


class Maker:
    def __init__(self, seed, operators):
        self.random, self.operators, self.is_extreme = np.random.default_rng(seed), operators, seed % EXTREME == EXTREME - 1
        self.nodes, self.weights, self.live, self.inputs, self.has_recurrent = [], [], [], [], False
        self.counted = []  # results that no node may read

    # --- choices ---

    def number(self, low, high):
        return int(self.random.integers(low, high + 1))

    def chance(self, percent):
        return self.number(1, 100) <= percent

    def pick(self, choices):
        return choices[self.number(0, len(choices) - 1)]

    def shape(self, rank, most=MOST_ELEMENTS // 4):
        shape = [self.pick([1, 2, 3, 4, 5, 7, 8, 13, 17, 32, 33]) for _ in range(rank)]
        while np.prod(shape) > most:
            shape[int(np.argmax(shape))] //= 2
        return shape

    def values(self, dtype, shape):
        values = self.plain_values(dtype, shape)
        ends = self.ends(values.dtype) if self.is_extreme else []
        return np.where(self.random.random(shape) < 0.3, self.random.choice(np.array(ends, values.dtype), shape), values) if ends else values

    def ends(self, dtype):
        if dtype == np.float64:
            return HUGE
        return [] if dtype.kind not in "iu" else [np.iinfo(dtype).min, np.iinfo(dtype).max, np.iinfo(dtype).max - 1, np.iinfo(dtype).max // 1024 + 1]

    def plain_values(self, dtype, shape):
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return self.random.integers(0, 2, shape).astype(dtype)
        if is_float(dtype):
            return (np.round(self.random.uniform(-3, 3, shape) * 64) / 64).astype(dtype)
        return self.random.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)

    def some(self, fits=lambda live: True):
        fitting = [live for live in self.live if fits(live)]
        if not fitting:
            return None
        return fitting[-self.number(1, min(4, len(fitting)))] if self.chance(80) else self.pick(fitting)

    def weight(self, values):
        name = f"w{len(self.weights)}"
        values = np.asarray(values)
        self.weights.append(numpy_helper.from_array(values, name))
        return Live(name, values, True)

    def ints(self, values):
        return self.weight(np.array(values, np.int64))

    # --- one more node ---

    def add(self, op, operands, results=1, exact=False, captured=(), **attributes):
        """`captured`: what a body in the attributes reads from around it."""
        names = [f"t{len(self.nodes)}_{k}" for k in range(results)]
        node = helper.make_node(op, [one.name if one else "" for one in operands], names, name=f"n{len(self.nodes)}", **attributes)
        self.add_nodes([node], names, [*operands, *captured], exact)

    def add_nodes(self, nodes, names, operands, exact):
        """Runs them alone; nothing is added if ONNX Runtime does not take them or their values are of no use. `names`: of the results."""
        if self.operators is not None and any(node.op_type not in self.operators for node in nodes):
            return
        given = {one.name: one.values for one in operands if one}
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape) for name, values in given.items()],
                                  [onnx.ValueInfoProto(name=name) for name in names])
        try:
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
            found = session(model).run(None, given)
        except Exception:
            return
        for values in found:
            if values.size == 0 or values.size > MOST_ELEMENTS or values.ndim > 6:
                return
            most = np.inf if exact and self.is_extreme else MOST
            if is_float(values.dtype) and not (np.isfinite(values).all() and np.abs(values.astype(np.float64)).max() < most):
                return
        self.nodes += nodes
        for name, values in zip(names, found):
            whole = not is_float(values.dtype)
            self.live.append(Live(name, values, exact or (whole and all(one.exact for one in operands if one))))

    def broadcast(self, x):
        """An operand that fits x: another tensor, or a constant with some extents 1."""
        def fits(other):
            return other.dtype == x.dtype and other.rank <= x.rank and all(a in (1, b) for a, b in zip(other.shape[::-1], x.shape[::-1]))
        other = self.some(fits) if self.chance(60) else None
        shape = [extent if self.chance(60) else 1 for extent in x.shape][self.number(0, x.rank):]
        return other or self.weight(self.values(x.dtype, shape))

    # --- what can be added ---

    def unary(self):
        x = self.some(lambda live: is_float(live.dtype))
        if x:
            kind = self.number(0, 3)
            if kind == 0:
                self.add(self.pick(EXACT), [x], exact=x.exact)
            elif kind == 1 and x.exact:
                self.add(self.pick(STEPS), [x], exact=True)
            elif kind == 2 and x.values.min() > 0.1:
                self.add(self.pick(POSITIVE), [x])
            elif np.abs(x.values.astype(np.float64)).max() < 8:
                op = self.pick(SMOOTH)
                if op == "ThresholdedRelu" and not x.exact:  # jumps: no rounding may decide on which side a value is
                    self.add(op, [x], alpha=between(x.values))
                else:
                    self.add(op, [x])

    def unary_whole(self):
        x = self.some(lambda live: not is_float(live.dtype))
        if x:
            self.add(self.pick(["Not"] if x.dtype == np.bool_ else ["Abs", "Neg", "Sign", "BitwiseNot"]), [x])

    def binary(self):
        x = self.some(lambda live: live.dtype != np.bool_)
        if x:
            y = self.broadcast(x)
            op = self.pick(["Add", "Sub", "Mul", "Max", "Min", "Add", "Mul", "Div", "Sum", "Mean", "PRelu"])
            if op in ("Div", "PRelu") and not is_float(x.dtype):
                op = "Sub"
            if op == "Div" and np.abs(y.values.astype(np.float64)).min() < 0.1:
                op = "Mul"
            operands = [x, y] if op in ("Div", "PRelu", "Sub") or self.chance(70) else [y, x]
            self.add(op, operands, exact=x.exact and y.exact and op in ("Max", "Min"))

    def truth(self):
        x = self.some(lambda live: live.exact)
        if not x:
            return
        y = self.broadcast(x)
        if not y.exact:
            return
        ops = ["And", "Or", "Xor"] if x.dtype == np.bool_ else ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
        self.add(self.pick(ops), [x, y])

    def bits(self):
        x = self.some(lambda live: not is_float(live.dtype) and live.dtype != np.bool_)
        if x:
            self.add(self.pick(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), [x, self.broadcast(x)])

    def remainder(self):
        x = self.some(lambda live: live.dtype.kind in "iu")
        if x:
            if x.dtype.kind == "u" and self.chance(40):
                self.add("BitShift", [x, self.weight(self.random.integers(0, 4, [1]).astype(x.dtype))], direction=self.pick(["LEFT", "RIGHT"]))
            else:
                self.add("Mod", [x, self.weight(self.random.integers(1, 6, x.shape[-1:]).astype(x.dtype))])

    def power(self):
        x = self.some(lambda live: is_float(live.dtype) and live.values.min() > 0.05 and live.values.max() < 20)
        if x:
            self.add("Pow", [x, self.weight(np.array(self.pick([2, 3, 0.5, -1]), x.dtype))])

    def not_a_number(self):
        x = self.some(lambda live: is_float(live.dtype))
        if x and self.chance(20):
            self.add("IsNaN", [x], exact=True)

    def where(self):
        condition = self.some(lambda live: live.dtype == np.bool_)
        x = self.some(lambda live: condition and live.shape == condition.shape)
        if x:
            y = self.broadcast(x)
            self.add("Where", [condition, x, y], exact=x.exact and y.exact)

    def clip(self):
        x = self.some(lambda live: live.dtype != np.bool_)
        if x and self.is_extreme:
            low, high = sorted(self.pick([*self.ends(x.dtype), *self.plain_values(x.dtype, [2])]) for _ in range(2))
            self.add("Clip", [x, *(self.weight(np.array(bound, x.dtype)) if self.chance(70) else None for bound in (low, high))], exact=x.exact)
        elif x:
            self.add("Clip", [x, self.weight(np.array(1, x.dtype)), self.weight(np.array(4, x.dtype)) if self.chance(70) else None], exact=x.exact)

    def cast(self):
        x = self.some(lambda live: live.exact)
        to = self.pick(ALL)
        if x and (is_float(to) or np.dtype(to).kind == "b" or fits_whole(x.values, to)):  # ONNX leaves open what others become
            self.add("Cast", [x], exact=True, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))

    def move(self):
        x, kind = self.some(), self.number(0, 9)
        rank = x.rank
        if kind == 0 and rank:
            self.add("Transpose", [x], exact=x.exact, perm=[int(i) for i in self.random.permutation(rank)])
        elif kind == 1 and rank:
            axes = sorted({self.number(0, rank - 1) for _ in range(2)})
            steps = [self.pick([1, 1, 2, -1, -2]) for _ in axes]
            starts = [self.number(0, x.shape[a] - 1) if s > 0 else -1 for a, s in zip(axes, steps)]
            ends = [x.shape[a] if s > 0 else -x.shape[a] - 1 for a, s in zip(axes, steps)]
            self.add("Slice", [x, self.ints(starts), self.ints(ends), self.ints(axes), self.ints(steps)], exact=x.exact)
        elif kind == 2 and rank:
            pads = [self.number(0, 2) for _ in range(2 * rank)]
            mode = self.pick(["constant", "constant", "edge", "reflect"])
            self.add("Pad", [x, self.ints(pads), self.weight(self.values(x.dtype, [])) if mode == "constant" and self.chance(50) else None], exact=x.exact, mode=mode)
        elif kind == 3 and rank:
            cut = self.number(0, rank)
            shape = self.pick([[-1], [*x.shape[:cut], -1] if cut < rank else [*x.shape], [1, *x.shape], [int(np.prod(x.shape[:cut])), -1]])
            self.add("Reshape", [x, self.ints(shape)], exact=x.exact)
        elif kind == 4:
            axis = self.number(0, rank)
            self.add("Unsqueeze", [x, self.ints([axis])], exact=x.exact)
        elif kind == 5 and 1 in x.shape:
            self.add("Squeeze", [x, self.ints([x.shape.index(1)])], exact=x.exact)
        elif kind == 6 and rank:
            self.add("Expand", [x, self.ints([*([2] if self.chance(30) else []), *(3 if extent == 1 and self.chance(60) else extent for extent in x.shape)])], exact=x.exact)
        elif kind == 7 and rank:
            self.add("Tile", [x, self.ints([self.number(1, 2) for _ in range(rank)])], exact=x.exact)
        elif kind == 8 and rank:
            axis = self.number(0, rank - 1)
            indices = self.random.integers(-x.shape[axis], x.shape[axis], self.shape(self.number(0, 2), 12))
            self.add("Gather", [x, self.ints(indices)], exact=x.exact, axis=axis)
        elif kind == 9 and rank and max(x.shape) > 1:
            axis = int(np.argmax(x.shape))
            first = self.number(1, x.shape[axis] - 1)
            self.add("Split", [x, self.ints([first, x.shape[axis] - first])], results=2, exact=x.exact, axis=axis)

    def gather_late(self):
        """With indices of run time."""
        x = self.some(lambda live: live.rank > 0)
        index = self.some(lambda live: x and live.dtype in (np.int64, np.int32) and live.exact and live.values.size < 40 and live.values.min() >= 0
                          and live.values.max() < x.shape[0])
        if index:
            self.add("Gather", [x, index], exact=x.exact, axis=0)

    def concat(self):
        x = self.some(lambda live: live.rank > 0)
        if x:
            axis = self.number(0, x.rank - 1)
            fitting = [live for live in self.live if live.dtype == x.dtype and live.rank == x.rank and all(a == b for d, (a, b) in enumerate(zip(live.shape, x.shape)) if d != axis)]
            parts = [self.pick(fitting) for _ in range(self.number(1, 3))] + [x]
            self.add("Concat", parts, exact=all(part.exact for part in parts), axis=axis)

    def reduce(self):
        x = self.some(lambda live: live.rank > 0 and live.dtype != np.bool_)
        if x:
            largest = ["ReduceMax", "ReduceMin"]  # ONNX leaves open what a sum is that overflows
            op = self.pick(largest if self.is_extreme else REDUCE if is_float(x.dtype) else ["ReduceSum", *largest])
            axes = sorted({self.number(0, x.rank - 1) for _ in range(self.number(1, 2))})
            operands, attributes = [x], {"keepdims": self.number(0, 1)}
            if self.chance(85):
                operands.append(self.ints(axes))
            self.add(op, operands, exact=x.exact and op in ("ReduceMax", "ReduceMin"), **attributes)

    def rows(self):
        x = self.some(lambda live: is_float(live.dtype) and live.rank > 0)
        if x:
            axis = self.number(0, x.rank - 1)
            kind = self.number(0, 4)
            if kind <= 1:
                self.add(["Softmax", "LogSoftmax"][kind], [x], axis=axis)
            elif kind == 2 and x.shape[-1] > 2:
                self.add("LayerNormalization", [x, self.weight(self.values(x.dtype, [x.shape[-1]]))], axis=-1)
            elif kind == 3 and x.rank >= 3:
                self.add("LRN", [x], size=3)
            elif kind == 4 and x.rank >= 2:
                scale, shift, mean = [self.weight(self.values(x.dtype, [x.shape[1]])) for _ in range(3)]
                self.add("BatchNormalization", [x, scale, shift, mean, self.weight(np.abs(self.values(x.dtype, [x.shape[1]])) + np.array(0.5, x.dtype))])

    def matmul(self):
        x = self.some(lambda live: live.rank >= 2 and live.dtype in (np.float32, np.float64, np.float16, np.int32, np.int64))
        if x:
            y = self.some(lambda live: live.dtype == x.dtype and live.rank >= 2 and live.shape[-2] == x.shape[-1] and live.rank == 2)
            y = y if y and self.chance(50) else self.weight(self.values(x.dtype, [x.shape[-1], self.pick([1, 3, 16, 21])]))
            if x.rank == 2 and is_float(x.dtype) and self.chance(50):
                self.add("Gemm", [x, y, self.weight(self.values(x.dtype, [y.shape[1]])) if self.chance(60) else None], alpha=0.5)
            else:
                self.add("MatMul", [x, y])

    def matmul_whole(self):
        x = self.some(lambda live: live.rank >= 2 and live.dtype in (np.int8, np.uint8))
        if x:
            self.add("MatMulInteger", [x, self.weight(self.values(self.pick([np.int8, np.uint8]), [x.shape[-1], self.pick([2, 5, 16])]))])

    def conv(self):
        x = self.some(lambda live: live.dtype == np.float32 and live.rank in (3, 4))
        if x:
            c, spatial = x.shape[1], x.rank - 2
            kernel = [self.pick([1, 3, 2]) for _ in range(spatial)]
            group = self.pick([1, 1, c, 2 if c % 2 == 0 else 1])
            out = group * self.pick([1, 2, 5, 8])
            weight = self.weight(self.values(np.float32, [out, c // group, *kernel]) / np.float32(np.sqrt(c // group * np.prod(kernel)) * 2))
            operands = [x, weight] + ([self.weight(self.values(np.float32, [out]))] if self.chance(50) else [])
            self.add("Conv", operands, group=group, strides=[self.number(1, 2)] * spatial, pads=[self.number(0, 1)] * (2 * spatial), dilations=[self.pick([1, 1, 2])] * spatial)

    def conv_whole(self):
        x = self.some(lambda live: live.dtype in (np.uint8, np.int8) and live.rank == 4)
        if x:
            self.add("ConvInteger", [x, self.weight(self.values(x.dtype, [self.pick([1, 4, 9]), x.shape[1], 2, 2]))], pads=[0, 1, 0, 1])

    def grid_sample(self):
        x = self.some(lambda live: live.dtype == np.float32 and live.rank in (4, 5))
        if x:
            grid = self.random.uniform(-1.2, 1.2, [x.shape[0], *(self.number(1, 5) for _ in x.shape[2:]), x.rank - 2]).astype(np.float32)
            self.add("GridSample", [x, self.weight(grid)], mode="linear", padding_mode=self.pick(["zeros", "border", "reflection"]), align_corners=self.number(0, 1))

    def places(self):
        """Of a size that nobody knows before the run, so that no other node may read them: outputs."""
        x = self.some(lambda live: live.exact and live.rank > 0)
        if x and not self.counted:
            before = len(self.live)
            self.add("NonZero", [x], exact=True)
            self.counted, self.live = self.live[before:], self.live[:before]

    def suppression(self):
        x = self.some(lambda live: live.dtype == np.float32 and live.exact and live.rank == 3)
        if x and not self.counted:
            boxes = self.random.integers(0, 9, [x.shape[0], x.shape[2], 4]).astype(np.float32)
            before = len(self.live)
            self.add("NonMaxSuppression", [self.weight(boxes), x, self.ints([self.number(1, 9)]), self.weight(np.float32(self.pick([0.0, 0.3]))), self.weight(np.float32(0.5))],
                     exact=True, center_point_box=self.number(0, 1))
            self.counted, self.live = self.live[before:], self.live[:before]

    def loss(self):
        x = self.some(lambda live: is_float(live.dtype) and live.rank >= 2)
        if x:
            targets = self.weight(self.random.integers(0, x.shape[1], [x.shape[0], *x.shape[2:]]))
            operands = [x, targets] + ([self.weight(np.abs(self.values(x.dtype, x.shape[1:2])) + x.dtype.type(0.5))] if self.chance(50) else [])
            self.add(self.pick(["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"]), operands, reduction=self.pick(["none", "sum", "mean"]), ignore_index=0)

    def pool(self):
        x = self.some(lambda live: is_float(live.dtype) and live.rank in (3, 4))
        if x:
            spatial, op = x.rank - 2, self.pick(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
            if op.startswith("Global"):
                self.add(op, [x])
            else:
                kernel = self.number(1, 3)
                self.add(op, [x], kernel_shape=[min(kernel, extent) for extent in x.shape[2:]], strides=[self.number(1, 2)] * spatial, ceil_mode=self.number(0, 1), pads=[0] * (2 * spatial))

    def quantize(self):
        x = self.some(lambda live: live.dtype == np.float32 and live.exact)
        if x:
            self.add("QuantizeLinear", [x, self.weight(np.float32(0.25)), self.weight(np.array(3, self.pick([np.int8, np.uint8])))], exact=True)
        y = self.some(lambda live: live.dtype in (np.int8, np.uint8))
        if y:
            self.add("DequantizeLinear", [y, self.weight(np.float32(0.5)), self.weight(np.array(1, y.dtype))], exact=True)

    def dynamic_quantize(self):
        x = self.some(lambda live: live.dtype == np.float32 and live.exact)
        if x:
            self.add("DynamicQuantizeLinear", [x], results=3, exact=True)

    def quantize_by_axis(self):
        """Scales and zero points for each element of an axis; there and back."""
        x = self.some(lambda live: live.dtype == np.float32 and live.exact and live.rank > 1)
        if x:
            axis, dtype = self.number(0, x.rank - 1), self.pick([np.int8, np.uint8])
            scales = self.weight(self.random.choice(np.float32([0.125, 0.25, 0.5, 1]), x.shape[axis]))
            zeros = self.weight(self.random.integers(0, 9, x.shape[axis]).astype(dtype))
            before = len(self.live)
            self.add("QuantizeLinear", [x, scales, zeros], exact=True, axis=axis)
            if len(self.live) > before:
                self.add("DequantizeLinear", [self.live[-1], scales, zeros], exact=True, axis=axis)

    def qlinear(self):
        """Products whose operands and results are quantised; all scales are powers of two, so that no rounding differs."""
        def scale(values):
            return self.weight(np.float32(values))

        x = self.some(lambda live: live.dtype in (np.int8, np.uint8) and live.rank >= 2 and live.exact)
        if not x:
            return
        zero = self.weight(np.array(self.number(0, 4), x.dtype))
        made_zero = self.weight(np.array(self.number(0, 9), x.dtype))
        if x.rank == 4 and self.chance(60):
            out = self.pick([1, 3, 8])
            kernel = self.weight(self.values(np.int8, [out, x.shape[1], *(min(2, extent) for extent in x.shape[2:])]))
            bias = [self.weight(self.random.integers(-50, 50, out).astype(np.int32))] if self.chance(50) else []
            scales = scale(self.random.choice([0.25, 0.5], out)) if self.chance(50) else scale(0.5)
            zeros = self.weight(np.zeros(scales.shape, np.int8))
            self.add("QLinearConv", [x, scale(0.5), zero, kernel, scales, zeros, scale(self.pick([2.0, 8.0])), made_zero, *bias], exact=True)
        else:
            y = self.weight(self.values(x.dtype, [x.shape[-1], self.pick([2, 5, 16])]))
            self.add("QLinearMatMul", [x, scale(0.5), zero, y, scale(0.25), self.weight(np.array(1, x.dtype)), scale(self.pick([1.0, 4.0])), made_zero], exact=True)

    def bfloat(self):
        """ONNX Runtime hands out no bf16, so there and back; rounded to nearest on both sides."""
        x = self.some(lambda live: live.dtype == np.float32 and live.exact and live.rank > 0)
        if x:
            start = len(self.nodes)
            names = [f"t{start}_{k}" for k in range(3)]
            moved = self.pick([helper.make_node("Transpose", names[:1], names[1:2], name=f"n{start}_1"),
                               helper.make_node("Identity", names[:1], names[1:2], name=f"n{start}_1"),
                               helper.make_node("Concat", [names[0], names[0]], names[1:2], name=f"n{start}_1", axis=0)])
            self.add_nodes([helper.make_node("Cast", [x.name], names[:1], name=f"n{start}_0", to=onnx.TensorProto.BFLOAT16), moved,
                            helper.make_node("Cast", names[1:2], names[2:], name=f"n{start}_2", to=onnx.TensorProto.FLOAT)], names[2:], [x], exact=True)

    # Bodies; what is in them has names of its own.

    def body(self, name, nodes, inputs, outputs):
        def typed(entry):
            return helper.make_tensor_value_info(entry[0], helper.np_dtype_to_tensor_dtype(np.dtype(entry[1])), entry[2])
        return helper.make_graph(nodes, name, [typed(entry) for entry in inputs], [typed(entry) for entry in outputs])

    def branch(self):
        x = self.some(lambda live: is_float(live.dtype))
        if x:
            start = len(self.nodes)
            graphs = []
            for name, op in (("then", self.pick(["Neg", "Tanh", "Relu"])), ("else", self.pick(["Abs", "Sigmoid"]))):
                made = f"b{start}_{name}"
                graphs.append(self.body(made, [helper.make_node(op, [x.name], [made])], [], [(made, x.dtype, x.shape)]))
            self.add("If", [self.weight(np.array(self.chance(50)))], captured=[x], then_branch=graphs[0], else_branch=graphs[1])

    def loop(self):
        """A state that is carried through, and one result an iteration."""
        x = self.some(lambda live: is_float(live.dtype) and live.values.size < 500)
        if x:
            start, weight = len(self.nodes), self.weight(self.values(x.dtype, x.shape[-1:]))
            names = [f"b{start}_{name}" for name in ("i", "go", "state", "again", "sum", "next", "each")]
            i, go, state, again, total, following, each = names
            nodes = [helper.make_node("Identity", [go], [again]), helper.make_node("Add", [state, weight.name], [total]), helper.make_node("Tanh", [total], [following]),
                     helper.make_node(self.pick(["Neg", "Identity", "Sigmoid"]), [following], [each])]
            body = self.body(f"b{start}", nodes, [(i, np.int64, []), (go, np.bool_, []), (state, x.dtype, x.shape)],
                             [(again, np.bool_, []), (following, x.dtype, x.shape), (each, x.dtype, x.shape)])
            self.add("Loop", [self.weight(np.array(self.number(1, 3))), self.weight(np.array(True)), x], results=2, captured=[weight], body=body)

    def scan(self):
        x = self.some(lambda live: is_float(live.dtype) and live.rank >= 2 and live.shape[0] <= 8)
        if x:
            start, rest = len(self.nodes), x.shape[1:]
            names = [f"b{start}_{name}" for name in ("state", "x", "sum", "next", "each")]
            state, row, total, following, each = names
            nodes = [helper.make_node("Add", [state, row], [total]), helper.make_node("Sigmoid", [total], [following]), helper.make_node("Mul", [following, row], [each])]
            body = self.body(f"b{start}", nodes, [(state, x.dtype, rest), (row, x.dtype, rest)], [(following, x.dtype, rest), (each, x.dtype, rest)])
            self.add("Scan", [self.weight(self.values(x.dtype, rest)), x], results=2, num_scan_inputs=1, body=body)

    def recurrent(self):
        x = self.some(lambda live: live.dtype == np.float32 and live.rank == 3 and max(live.shape) <= 33)
        if not x or self.has_recurrent:
            return
        hidden, (op, gates), both = self.pick([3, 5, 16]), self.pick([("LSTM", 4), ("GRU", 3), ("RNN", 1)]), self.number(0, 1)
        directions = 1 + both
        weights = [self.weight(self.values(np.float32, [directions, gates * hidden, size]) / np.float32(6)) for size in (x.shape[2], hidden)]
        before = len(self.nodes)
        self.add(op, [x, *weights], results=2, hidden_size=hidden, direction="bidirectional" if both else self.pick(["forward", "reverse"]))
        self.has_recurrent = len(self.nodes) > before

    def exact_steps(self):
        """Those that have something to lose where numbers are extreme, and round nothing."""
        return [self.move] * 8 + [self.clip] * 6 + [self.binary] * 4 + [self.concat, self.where, self.where, self.truth, self.bits, self.unary_whole, self.unary, self.reduce, self.gather_late, self.cast]

    def all_steps(self):
        return [self.unary] * 6 + [self.binary] * 4 + [self.move] * 7 + [self.concat] * 2 + [
            self.unary_whole, self.truth, self.bits, self.where, self.clip, self.cast, self.cast, self.gather_late, self.reduce, self.reduce, self.rows, self.matmul, self.matmul, self.matmul_whole,
            self.conv, self.conv, self.conv, self.conv_whole, self.pool, self.grid_sample, self.remainder, self.power, self.not_a_number, self.quantize, self.recurrent,
            self.dynamic_quantize, self.quantize_by_axis, self.qlinear, self.qlinear, self.bfloat, self.branch, self.loop, self.scan, self.places,
            self.suppression, self.loss]

    def finish(self):
        """As a Part with its expected outputs. What nobody reads is an output or, sometimes, is left unread."""
        read = {name for node in self.nodes for name in node.input}
        made = [live for live in self.live if live not in self.inputs]
        outputs = [live for live in made if live.name not in read and not self.chance(10)] or made[-1:]
        outputs += [live for live in made if live.name in read and self.chance(12)]  # read and an output
        outputs += self.counted
        if self.chance(15):
            outputs.append(self.pick(self.inputs))
        if self.weights and self.chance(15):
            tensor = self.pick(self.weights)
            if tensor.data_type == onnx.TensorProto.FLOAT:
                outputs.append(Live(tensor.name, numpy_helper.to_array(tensor), True))
        self.random.shuffle(outputs)
        graph = helper.make_graph(self.nodes, "g", [port(live) for live in self.inputs], [port(live) for live in outputs], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        return model, [live.values for live in self.inputs], [(live.values, live.exact) for live in outputs]


def port(live):
    return helper.make_tensor_value_info(live.name, helper.np_dtype_to_tensor_dtype(live.dtype), live.shape)


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def make(seed, operators=None):
    """A many.Part and, for each output, its values and whether they are exact. `operators`: the only ones to use."""
    maker = Maker(seed, operators)
    for i in range(maker.number(1, 3)):
        first, others = (np.float64, [np.float64, *WHOLE]) if maker.is_extreme else (np.float32, ALL)
        dtype = first if i == 0 and maker.chance(60) else maker.pick(others)
        rank = maker.pick([4, 4, 3, 3, 2, 1])
        maker.live.append(Live(f"x{i}", maker.values(dtype, maker.shape(rank)), True))
    maker.inputs = list(maker.live)
    steps = maker.exact_steps() if maker.is_extreme else maker.all_steps()
    for _ in range(200):
        if len(maker.nodes) >= NODES:
            break
        maker.pick(steps)()
    model, inputs, expected = maker.finish()
    return many.Part(f"random {seed}", model, inputs), expected


def difference(found, expected):
    """Empty if all outputs are near, else a sentence."""
    for i, (got, (values, exact)) in enumerate(zip(found, expected)):
        if got.shape != values.shape or got.dtype != values.dtype:
            return f"output {i} is {got.dtype}{list(got.shape)}, expected {values.dtype}{list(values.shape)}"
        if is_float(values.dtype):
            a, b = got.astype(np.float64), values.astype(np.float64)
            scale = {np.dtype(np.float16): 2e-2, np.dtype(np.float32): 1e-3}.get(values.dtype, 1e-3)
            near = np.abs(a - b) <= (0 if exact else scale * max(1.0, float(np.abs(b).max()))) + 1e-12
        else:
            near = got == values
        if not near.all():
            where = tuple(int(k) for k in np.argwhere(~near)[0])
            return f"output {i}: {int((~near).sum())} of {near.size} elements are wrong, the first at {list(where)}: {got[where]}, expected {values[where]}"
    return ""

#!/usr/bin/env python3
"""Operators that order elements, or take them from and put them to places that tensors name, on the stand-in: every element type, constant
indices and those of run time, wild ones, and empty tensors, against numpy.

    indexing_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np

import harness
import models as m
import races_test as races
import types_test as types
from types_test import Net

FLOAT, WHOLE = types.FLOAT, types.WHOLE
NUMBERS = {**WHOLE, **FLOAT}
ALL = {**NUMBERS, "bool": np.bool_}
SHAPE = [3, 4, 5]


def values_of(dtype, seed, shape=SHAPE, ends=True):
    """Few different ones, so that many are equal; with the ends of integer types."""
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if np.dtype(dtype).kind == "f":
        return (rng.integers(-8, 8, shape) / 4).astype(dtype)
    info = np.iinfo(dtype)
    values = rng.integers(-5 if info.min < 0 else 0, 5, shape).astype(dtype)
    if ends:
        values.flat[:3] = [info.min, info.max, info.max - 1]
        rng.shuffle(values.reshape(-1))
    return values


def as_order(values, largest):
    """Integers that are smaller the earlier an element comes. Python's, so that none wraps."""
    numbers = values.astype(object) if values.dtype.kind in "iu" else values.astype(np.float64)
    return -numbers if largest else numbers


def top_k(values, k, axis, largest=True):
    order = np.argsort(as_order(values, largest), axis=axis, kind="stable")
    places = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(values, places, axis), places.astype(np.int64)


def arg_extreme(values, axis, largest, last=False):
    numbers = as_order(values, largest)
    if not last:
        return np.argmin(numbers, axis=axis).astype(np.int64)
    return values.shape[axis] - 1 - np.argmin(np.flip(numbers, axis), axis=axis).astype(np.int64)


def add_top_k(net, x, k, expected_of=None, **attributes):
    """Both results."""
    values = net.inputs[x] if expected_of is None else expected_of
    expected = top_k(values, k, attributes.get("axis", -1), attributes.get("largest", 1) == 1)
    name = f"top_k_{len(net.nodes)}"
    net.nodes.append(m.node("TopK", [x, net.constant(np.array([k], np.int64))], [name, name + "_at"], name, **attributes))
    for result, what in zip([name, name + "_at"], expected):
        net.results.setdefault(np.dtype(what.dtype), []).append((result, what))


def test_order(tamp):
    net = Net()
    for n, (name, dtype) in enumerate(NUMBERS.items()):
        x = net.input(f"x_{name}", values_of(dtype, n))
        a = net.inputs[x]
        add_top_k(net, x, 2)
        add_top_k(net, x, 4, axis=1, largest=0)
        add_top_k(net, x, 1, axis=-3, sorted=0)
        net.add("ArgMax", [x], arg_extreme(a, 1, True), axis=1, keepdims=0)
        net.add("ArgMax", [x], arg_extreme(a, 2, True, last=True)[..., None], axis=-1, select_last_index=1)
        net.add("ArgMin", [x], arg_extreme(a, 0, False)[None])
        net.add("ArgMin", [x], arg_extreme(a, 2, False, last=True), axis=2, select_last_index=1, keepdims=0)
        if dtype in FLOAT.values():
            best = arg_extreme(a, 1, True)
            net.add("Hardmax", [x], (np.arange(4)[:, None] == best[:, None, :]).astype(dtype), axis=1)
    net.check(tamp)


def test_order_of_long_lines(tamp):
    """So long that warps share lines, and that elements are counted; and many short ones."""
    net = Net()
    rng = np.random.default_rng(5)
    x = net.input("x", (rng.integers(-500, 500, [3, 700]) / 8).astype(np.float32))
    add_top_k(net, x, 1)
    add_top_k(net, x, 5, largest=0)
    add_top_k(net, x, 300)
    add_top_k(net, x, 700, largest=0)
    many = net.input("many", rng.integers(0, 9, [2, 7, 40, 9]).astype(np.float32))
    add_top_k(net, many, 3, axis=1)
    net.add("ArgMax", [many], arg_extreme(net.inputs[many], 1, True), axis=1, keepdims=0)
    wide = net.input("wide", rng.integers(-9, 9, [2, 300]).astype(np.int64))
    net.add("CumSum", [wide, net.constant(np.array(1))], net.inputs[wide].cumsum(1))
    net.add("CumSum", [x, net.constant(np.array([-1]))], np.flip(np.flip(net.inputs[x].astype(np.float64), 1).cumsum(1), 1).astype(np.float32), reverse=1)
    net.check(tamp)


def test_order_of_nan(tamp):
    """NaN is the largest; of ArgMin the smallest. Equal NaN keep their order; -0 equals 0."""
    net = Net()
    nan = np.nan
    x = net.input("x", np.array([[1, nan, -np.inf, nan, 3], [0, -0.0, 0, nan, -0.0]], np.float32))
    at = net.input("half", net.inputs[x].astype(np.float16))
    for name in (x, at):
        for largest, places in [(1, [[1, 3, 4, 0, 2], [3, 0, 1, 2, 4]]), (0, [[2, 0, 4, 1, 3], [0, 1, 2, 4, 3]])]:
            made = f"nan_{len(net.nodes)}"
            net.nodes.append(m.node("TopK", [name, net.constant(np.array([5]))], [made, made + "_at"], made, largest=largest))
            net.results.setdefault(np.dtype(np.int64), []).append((made + "_at", np.array(places)))
        net.add("ArgMin", [name], np.array([1, 3]), axis=1, keepdims=0)
        net.add("ArgMax", [name], np.array([3, 3]), axis=1, keepdims=0, select_last_index=1)
    net.check(tamp)


def test_cumulative_sums(tamp):
    net = Net()
    for n, (name, dtype) in enumerate(NUMBERS.items()):
        x = net.input(f"x_{name}", values_of(dtype, n))
        wide = net.inputs[x].astype(np.float64) if dtype in FLOAT.values() else net.inputs[x]
        with np.errstate(all="ignore"):
            for axis, exclusive, reverse in [(0, 0, 0), (1, 1, 0), (-1, 0, 1), (1, 1, 1)]:
                for op, f, start in [("CumSum", np.cumsum, 0), ("CumProd", np.cumprod, 1)]:
                    along = np.flip(wide, axis) if reverse else wide
                    sums = f(along, axis, dtype=wide.dtype)
                    if exclusive:
                        sums = np.concatenate([np.full_like(np.take(sums, [0], axis), start), np.take(sums, range(sums.shape[axis] - 1), axis)], axis)
                    expected = (np.flip(sums, axis) if reverse else sums).astype(dtype)
                    net.add(op, [x, net.constant(np.array(axis, np.int32))], expected, exclusive=exclusive, reverse=reverse)
    net.check(tamp, opset=26)


def scatter_elements(x, indices, updates, axis, reduction):
    y = x.copy()
    combine = {"none": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": max, "min": min}[reduction]
    with np.errstate(all="ignore"):
        for at in np.ndindex(*indices.shape):
            to = list(at)
            to[axis] = indices[at]
            if -x.shape[axis] <= indices[at] < x.shape[axis]:
                y[tuple(to)] = combine(y[tuple(to)], updates[at])
    return y


def scatter_nd(x, indices, updates, reduction):
    y = x.copy()
    combine = {"none": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": np.maximum, "min": np.minimum}[reduction]
    with np.errstate(all="ignore"):
        for at in np.ndindex(*indices.shape[:-1]):
            to = tuple(indices[at])
            if all(-n <= i < n for i, n in zip(to, x.shape)):
                y[to] = combine(y[to], updates[at])
    return y


def gather_nd(x, indices, batch_dims):
    result = np.empty(indices.shape[:-1] + x.shape[batch_dims + indices.shape[-1]:], x.dtype)
    for at in np.ndindex(*indices.shape[:-1]):
        result[at] = x[at[:batch_dims] + tuple(indices[at])]
    return result


def test_places(tamp):
    """Taking and putting, with indices of run time and constants."""
    net = Net()
    rng = np.random.default_rng(11)
    elements = rng.integers(-4, 4, [3, 6, 2])
    few = rng.integers(-4, 4, [2, 3, 4])
    pairs = np.stack([rng.integers(-3, 3, [2, 5]), rng.integers(-4, 4, [2, 5])], -1)
    batched = rng.integers(-5, 5, [3, 4, 2, 1])
    ways = {"at_run_time": lambda name, values, dtype: net.input(name, values.astype(dtype)), "constant": lambda name, values, dtype: net.constant(values.astype(dtype))}
    for way, make in ways.items():
        index_type = np.int32 if way == "constant" else np.int64
        e, f, p, b = (make(f"{name}_{way}", values, index_type)
                      for name, values in [("elements", elements), ("few", few), ("pairs", pairs), ("batched", batched)])
        for n, (name, dtype) in enumerate(ALL.items()):
            x = f"x_{name}" if f"x_{name}" in net.inputs else net.input(f"x_{name}", values_of(dtype, n))
            a = net.inputs[x]
            net.add("GatherElements", [x, e], np.take_along_axis(a[:, :, :2], elements, 1), axis=1)
            net.add("GatherND", [x, p], gather_nd(a, pairs, 0))
            net.add("GatherND", [x, b], gather_nd(a, batched, 2), batch_dims=2)
            u = f"u_{name}" if f"u_{name}" in net.inputs else net.input(f"u_{name}", values_of(dtype, n + 40, [2, 3, 4]))
            rows = f"rows_{name}" if f"rows_{name}" in net.inputs else net.input(f"rows_{name}", values_of(dtype, n + 60, [2, 5, 5]))
            for reduction in ["none", "add", "mul", "max", "min"]:
                net.add("ScatterElements", [x, f, u], scatter_elements(a, few, net.inputs[u], 1, reduction), axis=-2, reduction=reduction)
                if way == "at_run_time" or reduction == "none":
                    net.add("ScatterND", [x, p, rows], scatter_nd(a, pairs, net.inputs[rows], reduction), reduction=reduction)
    net.check(tamp)


def test_wild_indices(tamp):
    """Reading takes the nearest element, writing leaves the update out; nothing else is touched (--races)."""
    net = Net()
    far = 2 ** 62
    x = net.input("x", values_of(np.float32, 1, [4, 3]))
    a = net.inputs[x]
    wild = net.input("wild", np.array([[4, -5, far], [3, -far, -4]]))
    near = np.array([[3, 0, 3], [3, 0, 0]])
    net.add("GatherElements", [x, wild], np.take_along_axis(a, near, 0))
    pairs = net.input("pairs", np.array([[4, 0], [0, -4], [-5, 3], [1, 2], [-1, -3], [far, -far]]))
    net.add("GatherND", [x, pairs], a[[3, 0, 0, 1, 3, 3], [0, 0, 2, 2, 0, 0]])
    updates = net.input("updates", values_of(np.float32, 2, [2, 3]))
    net.add("ScatterElements", [x, wild, updates], scatter_elements(a, net.inputs[wild], net.inputs[updates], 0, "none"))
    net.add("ScatterElements", [x, wild, updates], scatter_elements(a, net.inputs[wild], net.inputs[updates], 0, "add"), reduction="add")
    singles = net.input("singles", values_of(np.float32, 3, [6]))
    net.add("ScatterND", [x, pairs, singles], scatter_nd(a, net.inputs[pairs], net.inputs[singles], "none"))
    net.add("ScatterND", [x, pairs, singles], scatter_nd(a, net.inputs[pairs], net.inputs[singles], "mul"), reduction="mul")
    lengths = net.input("lengths", np.array([-2, 9, 2]))
    reversed_ = a.copy()
    reversed_[:, 1], reversed_[:2, 2] = a[::-1, 1], a[1::-1, 2]
    net.add("ReverseSequence", [x, lengths], reversed_)
    indices = net.input("indices", np.array([-4, -3, 0, 2, 3, far]))
    net.add("OneHot", [indices, net.constant(np.array(3)), net.constant(np.array([0, 1], np.float32))],
            np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], np.float32))
    net.check(tamp)
    races.check_races(tamp, net.model)


def test_masks(tamp):
    net = Net()
    rng = np.random.default_rng(2)
    k = net.input("k", np.array(-1))
    far = net.constant(np.array(2 ** 63 - 1))
    indices = net.input("indices", rng.integers(-6, 6, [2, 3]))
    hot = (np.arange(5) == np.where(net.inputs[indices] < 0, net.inputs[indices] + 5, net.inputs[indices])[..., None])
    for n, (name, dtype) in enumerate(ALL.items()):
        x = net.input(f"x_{name}", values_of(dtype, n))
        a = net.inputs[x]
        net.add("Trilu", [x], np.triu(a))
        net.add("Trilu", [x, k], np.tril(a, -1), upper=0)
        net.add("Trilu", [x, net.constant(np.array(2))], np.triu(a, 2))
        net.add("Trilu", [x, far], a, upper=0)
        pair = net.input(f"pair_{name}", values_of(dtype, n, [2], ends=False))
        off, on = net.inputs[pair]
        net.add("OneHot", [indices, net.constant(np.array([5])), pair], np.where(hot, on, off))
        net.add("OneHot", [indices, net.constant(np.float32(5)), pair], np.where(np.moveaxis(hot, -1, 0), on, off), axis=0)
        value = net.input(f"value_{name}", values_of(dtype, n + 9, []))
        net.add("Pad", [x, net.constant(np.array([0, 1, -1, 2, 0, 1])), value],
                np.pad(a[..., 1:], [(0, 2), (1, 0), (0, 1)], constant_values=net.inputs[value]))
        if np.dtype(dtype).kind in "iu":
            end = np.iinfo(dtype).max
            net.add("Pad", [x, net.constant(np.array([0, 0, 0, 0, 0, 1])), net.constant(np.array(end, dtype))], np.pad(a, [(0, 0), (0, 0), (0, 1)], constant_values=end))
        net.add("ReverseSequence", [x, net.constant(np.array([4, 1, 3]))],
                np.stack([np.concatenate([row[:length][::-1], row[length:]]) for row, length in zip(a, [4, 1, 3])]), time_axis=1, batch_axis=0)
        net.add("Compress", [x, net.constant(np.array([0, 1, 1], np.bool_))], a[:, 1:3], axis=1)
    net.check(tamp)


def tensor_scatter(cache, update, places, axis, circular):
    result = cache.copy()
    for b in range(cache.shape[0]):
        for s in range(update.shape[axis]):
            at = (places[b] + s) % cache.shape[axis] if circular else places[b] + s
            np.moveaxis(result[b], axis - 1, 0)[at] = np.moveaxis(update[b], axis - 1, 0)[s]
    return result


def test_caches_are_updated(tamp):
    """TensorScatter, at places of run time and at the beginning."""
    net = Net()
    for name, dtype in {"float": np.float32, "half": np.float16, "int8": np.int8}.items():
        cache, update = net.input(f"c_{name}", values_of(dtype, 1, [2, 3, 6, 4])), net.input(f"u_{name}", values_of(dtype, 2, [2, 3, 2, 4]))
        first = net.input(f"at_{name}", np.array([4, 1]))
        around = net.input(f"around_{name}", np.array([5, 3]))
        a, b = net.inputs[cache], net.inputs[update]
        net.add("TensorScatter", [cache, update, first], tensor_scatter(a, b, [4, 1], 2, False))
        net.add("TensorScatter", [cache, update, around], tensor_scatter(a, b, [5, 3], 2, True), mode="circular")
        net.add("TensorScatter", [cache, net.constant(b[:, :2].repeat(3, 2)), net.constant(np.array([1, 0]))], tensor_scatter(a, b[:, :2].repeat(3, 2), [1, 0], 1, False), axis=1)
        net.add("TensorScatter", [cache, update], tensor_scatter(a, b, [0, 0], 2, False), mode="linear")
    net.check(tamp, opset=24)


def test_rows_of_caches(tamp):
    """Whole rows of 16 bytes and more at places of run time, one of them behind the end, which changes nothing, and one from the end."""
    net = Net()
    for name, dtype in {"float": np.float32, "half": np.float16, "int64": np.int64, "bool": np.bool_}.items():
        cache, row = net.input(f"c_{name}", values_of(dtype, 1, [2, 3, 6, 32])), net.input(f"u_{name}", values_of(dtype, 2, [2, 3, 1, 32]))
        a, b = net.inputs[cache], net.inputs[row]
        net.add("TensorScatter", [cache, row, net.input(f"at_{name}", np.array([5, 2]))], tensor_scatter(a, b, [5, 2], 2, False))
        for place in (3, -1, 6):
            at = net.input(f"place{place}_{name}", np.full([1], place))
            index = net.add("Expand", [net.add("Reshape", [at, net.constant(np.array([1, 1, 1, 1]))], None), net.constant(np.array([2, 3, 1, 32]))], None)
            expected = a.copy()
            if place < 6:
                expected[:, :, place:place + 1 or None] = b
            net.add("ScatterElements", [cache, index, row], expected, axis=2)
    net.check(tamp, opset=24)
    tamp("compile", "model.onnx", "-o", "made", "--precision", "fp32")
    phases = [phase for rop in json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"] for phase in rop["phases"]]
    cells = [phase["template"]["Cell"] for phase in phases if phase["body"] == "rk::typed_scatter_cells"]
    assert cells == ["uint4"] * 16, cells


def test_blocks(tamp):
    net = Net()
    for name, dtype in {"float": np.float32, "int8": np.int8, "double": np.float64}.items():
        x = net.input(f"x_{name}", values_of(dtype, 3, [2, 8, 4, 6]))
        a = net.inputs[x]
        net.add("DepthToSpace", [x], a.reshape(2, 2, 2, 2, 4, 6).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 8, 12), blocksize=2)
        net.add("DepthToSpace", [x], a.reshape(2, 2, 2, 2, 4, 6).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 8, 12), blocksize=2, mode="CRD")
        net.add("SpaceToDepth", [x], a.reshape(2, 8, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 32, 2, 3), blocksize=2)
    net.check(tamp)


def test_empty_tensors(tamp):
    """Nothing to order, to take, to put or to sum."""
    net = Net()
    x = net.input("x", values_of(np.float32, 1, [3, 4]))
    a = net.inputs[x]
    none = net.constant(np.zeros([0, 4], np.int64))
    nothing = net.constant(np.zeros([0, 4], np.float32))
    add_top_k(net, x, 0)
    net.add("GatherElements", [x, none], np.zeros([0, 4], np.float32))
    net.add("GatherND", [x, net.constant(np.zeros([0, 2], np.int64))], np.zeros([0], np.float32))
    net.add("ScatterElements", [x, none, nothing], a)
    net.add("ScatterND", [x, net.constant(np.zeros([0, 1], np.int64)), nothing], a)
    net.add("Compress", [x, net.constant(np.zeros([3], np.bool_))], np.zeros([0, 4], np.float32), axis=0)
    net.check(tamp)


def test_bodies_touch_what_they_declare(tamp):
    net = Net()
    rng = np.random.default_rng(8)
    x = net.input("x", rng.integers(0, 50, [5, 40]).astype(np.float32))
    a = net.inputs[x]
    add_top_k(net, x, 1)
    add_top_k(net, x, 3, axis=0)
    add_top_k(net, x, 39)
    net.add("CumSum", [x, net.constant(np.array(0))], None)
    net.add("CumSum", [x, net.constant(np.array(1))], a.astype(np.float64).cumsum(1).astype(np.float32), reverse=0)
    indices = net.input("i", rng.integers(-5, 5, [3, 30]))
    updates = net.input("u", rng.normal(size=[3, 30]).astype(np.float32))
    net.add("ScatterElements", [x, indices, updates], scatter_elements(a, net.inputs[indices], net.inputs[updates], 0, "none"))
    net.add("ScatterElements", [x, indices, updates], scatter_elements(a, net.inputs[indices], net.inputs[updates], 0, "min"), reduction="min")
    net.check(tamp)
    races.check_races(tamp, net.model)
    races.check_races(tamp, net.model, "--vdevice", "h200", "--execution", "graph")


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))

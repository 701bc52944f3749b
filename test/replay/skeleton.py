#!/usr/bin/env python3
"""Makes a model of the replay (test/unit/replay_test.cpp) from a network, or from a part of it: the graph without its weights.

    skeleton.py MODEL.onnx INTO.onnx [--inputs NAME=1,14,14,384...] [--outputs NAME...] [--extents 50257=512 ...]

Of large constants the file keeps, in the place of external data, the integers low, high and exponent: the test draws their values between
low and high, times 2 ** exponent, with the same mean and spread as here. --inputs and --outputs name tensors where the part begins and ends (a shape is needed
where ONNX's shape inference does not find it); --extents makes dimensions of weights smaller, as that of a vocabulary."""
import argparse
import math
import pathlib

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference, utils

KEPT = 64       # elements up to which a constant stays as it is
FEW_VALUES = 3  # as a mask has them: such a constant stays, too
BITS = 15       # of low and high
BITS_OF_16 = 9  # so many that f16 holds every value


def rule(values, bits=BITS):
    """low, high, exponent."""
    mean, reach = values.mean(dtype=np.float64), math.sqrt(3) * values.std(dtype=np.float64)
    low, high = max(float(values.min()), mean - reach), min(float(values.max()), mean + reach)
    exponent = math.frexp(max(abs(low), abs(high)))[1] - bits
    low, high = (round(bound / 2.0**exponent) for bound in (low, high))
    return (max(low, 1) if values.min() > 0 else low), high, exponent


def strip(tensor, extents):
    shape = [extents.get(extent, extent) for extent in tensor.dims]
    if math.prod(tensor.dims) <= KEPT:
        return tensor
    values = numpy_helper.to_array(tensor)
    if values.dtype.kind == "f" and len(np.unique(values[:1 << 16])) > FEW_VALUES:
        numbers = rule(values, BITS_OF_16 if values.dtype == np.float16 else BITS)
    elif values.dtype in (np.int8, np.uint8):
        numbers = int(values.min()), int(values.max()), 0
    else:
        return tensor
    made = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=shape, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in zip(("low", "high", "exponent"), numbers):
        made.external_data.add(key=key, value=str(value))
    return made


def cut(model, inputs, outputs):
    if not inputs and not outputs:
        return model
    shapes = dict(name.partition("=")[::2] for name in inputs)
    inputs, outputs = list(shapes) or [port.name for port in model.graph.input], outputs or [port.name for port in model.graph.output]
    made = utils.Extractor(shape_inference.infer_shapes(model, data_prop=True)).extract_model(inputs, outputs)
    for port in made.graph.input:
        if shapes.get(port.name):
            port.CopyFrom(helper.make_tensor_value_info(port.name, port.type.tensor_type.elem_type, [int(extent) for extent in shapes[port.name].split(",")]))
    return made


def skeleton(model, extents):
    graph = model.graph
    stripped = [strip(tensor, extents) for tensor in graph.initializer]
    ports = [helper.make_tensor_value_info(port.name, port.type.tensor_type.elem_type,
                                           [extents.get(dim.dim_value, dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or None for dim in port.type.tensor_type.shape.dim])
             for port in graph.output]
    for of in ("initializer", "output", "value_info"):
        graph.ClearField(of)
    graph.initializer.extend(stripped)
    graph.output.extend(ports)
    for node in graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    for field in ("metadata_props", "doc_string"):
        model.ClearField(field)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("into", type=pathlib.Path)
    parser.add_argument("--inputs", nargs="+", default=[])
    parser.add_argument("--outputs", nargs="+", default=[])
    parser.add_argument("--extents", nargs="+", default=[], help="OLD=NEW")
    arguments = parser.parse_args()
    extents = {int(old): int(new) for old, new in (pair.split("=") for pair in arguments.extents)}
    model = skeleton(cut(onnx.load(arguments.model), arguments.inputs, arguments.outputs), extents)
    arguments.into.write_bytes(model.SerializeToString())
    print(f"{arguments.into}: {len(model.graph.node)} nodes, {arguments.into.stat().st_size} bytes")


if __name__ == "__main__":
    main()

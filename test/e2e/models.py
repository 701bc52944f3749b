"""Small ONNX models for the end-to-end tests, written with the onnx package; nothing is checked on the way, so that broken
models can be made as easily as good ones."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def value(name, shape, dtype=FLOAT):
    """A graph input or output. Extents may be numbers, symbols, or None (anonymous); shape None leaves the rank open."""
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def ints(name, values):
    return constant(name, values, np.int64)


def node(op, inputs, outputs, name=None, domain=None, **attributes):
    made = helper.make_node(op, inputs, outputs, name=name or op.lower(), **attributes)
    if domain is not None:
        made.domain = domain
    return made


def model(nodes, inputs=None, outputs=None, initializers=(), opset=17, ir=8):
    """By default x f32[1,4] goes in and y f32[1,4] comes out."""
    inputs = [value("x", [1, 4])] if inputs is None else inputs
    outputs = [value("y", [1, 4])] if outputs is None else outputs
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, initializer=list(initializers))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)] if opset is not None else [])
    if opset is None:
        del made.opset_import[:]
    made.ir_version = ir
    return made


def relu(**kwargs):
    """The smallest good model."""
    return model([node("Relu", ["x"], ["y"])], **kwargs)


def conv(x=(1, 4, 8, 8), w=(6, 4, 3, 3), y=(1, 6, 6, 6), bias=None, **attributes):
    initializers = [constant("w", np.full(w, 0.1))]
    if bias is not None:
        initializers.append(constant("b", np.zeros(bias)))
    operands = ["x", "w"] + (["b"] if bias is not None else [])
    return model([node("Conv", operands, ["y"], "conv1", **attributes)], [value("x", list(x))], [value("y", list(y))], initializers)


def pool(op="MaxPool", y=(1, 2, 4, 4), **attributes):
    attributes.setdefault("kernel_shape", [2, 2])
    attributes.setdefault("strides", [2, 2])
    return model([node(op, ["x"], ["y"], "pool1", **attributes)], [value("x", [1, 2, 8, 8])], [value("y", list(y))])


def unary(op, x, y, initializers=(), operands=(), opset=17, **attributes):
    """y = op(x, operands...), with the operands among the initializers."""
    return model([node(op, ["x", *operands], ["y"], op.lower() + "1", **attributes)], [value("x", x)], [value("y", y)], initializers, opset)


def external(name, shape, location, offset=None, length=None, extra=()):
    """A f32 initializer whose values are in a file of their own."""
    tensor = TensorProto(name=name, data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    entries = [("location", location), ("offset", offset), ("length", length), *extra]
    for key, text in entries:
        if text is not None:
            tensor.external_data.add(key=key, value=str(text))
    return tensor

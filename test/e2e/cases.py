"""ONNX's own test cases: where they are, which of their inputs are shapes, how close an answer must be."""
import pathlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

import many

DEBIAN = pathlib.Path("/usr/share/libonnx-testdata/data")
FOLDERS = ("node", "pytorch-converted", "pytorch-operator", "simple")

# Operands that say what the result's shape is, or how the operator works; by name of the operator, or for all behind the first.
# tamp wants them as constants, as exporters write them.
SHAPE_OPERANDS = {
    "AffineGrid": [1], "BlackmanWindow": [0], "CenterCropPad": [1], "Col2Im": [1, 2], "Compress": [1], "ConstantOfShape": [0], "CumProd": [1], "CumSum": [1], "DFT": [1, 2],
    "Expand": [1], "HammingWindow": [0], "HannWindow": [0], "Loop": [0], "MaxUnpool": [2], "MelWeightMatrix": [0, 1, 2, 3, 4], "NonMaxSuppression": [2, 3, 4], "OneHot": [1], "Pad": [1, 3],
    "Range": [0, 1, 2], "Reshape": [1], "Resize": [1, 2, 3], "STFT": [1, 3], "Slice": [1, 2, 3, 4], "Split": [1], "SplitToSequence": [1], "Squeeze": [1],
    "Tile": [1], "TopK": [1], "Trilu": [1], "Unique": [0], "Unsqueeze": [1], "Upsample": [1],
    **{f"Reduce{kind}": [1] for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
}
STATIC = {"Shape", "Size"}  # their results are known without their operands' values


class Case:
    """Folder with model.onnx and test_data_set_0, or a file NAME.onnx with NAME_output_0.pb (inputs: 0, 1/n, 2/n, ..)."""

    def __init__(self, path, group):
        self.path, self.name = path, f"{group}/{path.stem if path.suffix == '.onnx' else path.name}"

    def load(self):
        """The model with its shapes made constants, its inputs and its expected outputs; ValueError if a value is no tensor."""
        if self.path.suffix == ".onnx":
            model, inputs = onnx.load(self.path), []
            for entry in many.ports(model):
                shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
                inputs.append((np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32))
            expected = [read_tensor(path) for path in numbered(self.path.parent, f"{self.path.stem}_output_")]
        else:
            model, data = onnx.load(self.path / "model.onnx"), self.path / "test_data_set_0"
            inputs, expected = [[read_tensor(path) for path in numbered(data, kind)] for kind in ("input_", "output_")]
        return freeze(model, inputs) + (expected,)


def numbered(folder, start):
    return sorted(folder.glob(f"{start}*.pb"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))


def read_tensor(path):
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)
    except Exception as failure:
        raise ValueError(f"{path.name} is no tensor: {failure}") from failure


def shape_inputs(graph):
    """Names of the graph's inputs that decide shapes."""
    wanted = {node.input[i] for node in graph.node for i in SHAPE_OPERANDS.get(node.op_type, []) if i < len(node.input)}
    for node in reversed(graph.node):
        if node.op_type not in STATIC and wanted & set(node.output):
            wanted |= set(node.input)
    return wanted


def freeze(model, inputs):
    wanted, names, rest = shape_inputs(model.graph), [entry.name for entry in many.ports(model)], []
    if len(names) != len(inputs):
        raise ValueError(f"{len(names)} inputs, {len(inputs)} files")
    for name, values in zip(names, inputs):
        if name in wanted:
            model.graph.initializer.append(numpy_helper.from_array(values, name))
        else:
            rest.append(values)
    # What the case is run with stands where the model has symbols.
    for entry, values in zip(many.ports(model), rest):
        entry.type.CopyFrom(helper.make_tensor_type_proto(entry.type.tensor_type.elem_type, values.shape))
    return model, rest


def find(folders):
    """Of --cases: everything below these folders."""
    found = []
    for folder in map(pathlib.Path, folders):
        found += [Case(path.parent, path.parent.parent.name) for path in sorted(folder.rglob("model.onnx"))]
        found += [Case(path, path.parent.name) for path in sorted(folder.rglob("*.onnx")) if path.name != "model.onnx" and numbered(path.parent, f"{path.stem}_output_")]
    return found


def installed():
    """Of Debian's libonnx-testdata; and of the onnx package the `light` networks, which Debian leaves out."""
    light = pathlib.Path(onnx.__file__).parent / "backend/test/data/light"
    return find([*(DEBIAN / name for name in FOLDERS), light])


def tolerance(dtype):
    """rtol, atol."""
    name = np.dtype(dtype).name
    return {"float16": (1e-2, 1e-3), "bfloat16": (1e-2, 1e-3), "float32": (1e-3, 1e-5), "float64": (1e-3, 1e-5)}.get(name, (0, 0))


def difference(found, expected):
    """Empty if the outputs are as expected, else a sentence."""
    if len(found) != len(expected):
        return f"{len(found)} outputs, expected {len(expected)}"
    for i, (got, values) in enumerate(zip(found, expected)):
        if got.dtype.name == "bfloat16" and values.dtype == np.uint16:
            values = values.view(got.dtype)  # older cases hold the bits
        if got.shape != values.shape or got.dtype != values.dtype:
            return f"output {i} is {got.dtype}{list(got.shape)}, expected {values.dtype}{list(values.shape)}"
        relative, absolute = tolerance(values.dtype)
        wide = np.float64 if relative else got.dtype
        a, b = got.astype(wide), values.astype(wide)
        near = np.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True) if relative else a == b
        if not near.all():
            where = tuple(int(k) for k in np.argwhere(~near)[0])
            return f"output {i}: {int((~near).sum())} of {near.size} elements are wrong, the first at {list(where)}: {got[where]}, expected {values[where]}"
    return ""

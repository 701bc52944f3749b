#!/usr/bin/env python3
"""ONNX's own test cases: folders with model.onnx and test_data_set_0/{input,output}_K.pb.

    conformance.py TAMP [--device cpu|cuda] [FOLDER...]

Without folders: the cases of the recurrent operators, of GridSample, of those over windows and pixels, and of those that order elements or take them from
places, in Debian's libonnx-testdata. A case passes when all outputs have the expected type and shape and every value is within rtol 1e-3, atol 1e-5.

Cases give operands as inputs of the model that many operators need as constants (the scales of a Resize, say): CONSTANTS names those, which become
initializers before the model is compiled."""
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper

import harness

DEBIAN = pathlib.Path("/usr/share/libonnx-testdata/data/node")
PATTERNS = ("test_lstm_*", "test_gru_*", "test_rnn_*", "test_simple_rnn_*", "test_gridsample*", "test_averagepool*", "test_maxpool*", "test_maxunpool*",
            "test_lppool*", "test_global*pool*", "test_basic_conv*", "test_conv*", "test_resize*", "test_upsample*", "test_roialign*",
            "test_top_k*", "test_arg*", "test_hardmax*", "test_gather*", "test_scatter*", "test_onehot*", "test_cumsum*", "test_tril*", "test_triu*",
            "test_eyelike*", "test_reversesequence*", "test_depthtospace*", "test_spacetodepth*", "test_compress*", "test_nonzero*", "test_unique*")
CONSTANTS = {"Resize": [1, 2, 3], "Upsample": [1], "AffineGrid": [1], "CenterCropPad": [1], "Col2Im": [1, 2], "MaxUnpool": [2], "TopK": [1], "OneHot": [1], "CumSum": [1],
             "CumProd": [1], "Compress": [1], "NonZero": [0], "Unique": [0]}  # operator: its operands


def tensors(folder, kind):
    """input_0.pb, input_1.pb, ... as paths and arrays."""
    paths = sorted(folder.glob(f"test_data_set_0/{kind}_*.pb"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    return [(path, numpy_helper.to_array(onnx.load_tensor(str(path)))) for path in paths]


def case_test(folder, device):
    def test(tamp):
        model = onnx.load(str(folder / "model.onnx"))
        graph = model.graph
        constants = {tensor.name for tensor in graph.initializer}
        ports = {entry.name: given for entry, given in zip([entry for entry in graph.input if entry.name not in constants], tensors(folder, "input"))}
        operands = {node.input[i] for node in graph.node for i in CONSTANTS.get(node.op_type, []) if i < len(node.input)}
        for name in sorted(operands & ports.keys()):
            graph.initializer.append(numpy_helper.from_array(ports.pop(name)[1], name))
        for entry in [entry for entry in graph.input if entry.name not in ports]:
            graph.input.remove(entry)
        onnx.save(model, str(tamp.folder / "model.onnx"))
        arguments = [word for name, (path, _) in ports.items() for word in ("--input", f"{name}={path}")]
        tamp("run", "model.onnx", "--device", device, "--precision", "fp32", "--output-dir", "out", *arguments)
        files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
        expected = tensors(folder, "output")
        assert len(files) == len(expected) == len(graph.output), f"{len(files)} outputs, expected {len(expected)}"
        for entry, (_, values) in zip(graph.output, expected):
            got = np.load(tamp.folder / "out" / files[entry.name])
            assert got.shape == values.shape and got.dtype == values.dtype, f"{entry.name}: {got.dtype}{got.shape}, expected {values.dtype}{values.shape}"
            np.testing.assert_allclose(got, values, rtol=1e-3, atol=1e-5, err_msg=entry.name)
    test.__name__ = folder.name
    return test


def main():
    words = sys.argv[2:]
    device = "cpu"
    if words[:1] == ["--device"]:
        device, words = words[1], words[2:]
    folders = [pathlib.Path(word).resolve() for word in words] or sorted(path for pattern in PATTERNS for path in DEBIAN.glob(pattern))
    sys.argv[2:] = []
    return harness.main([case_test(folder, device) for folder in folders])


if __name__ == "__main__":
    sys.exit(main())

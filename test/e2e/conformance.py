#!/usr/bin/env python3
"""ONNX's own test cases: folders with model.onnx and test_data_set_0/{input,output}_K.pb.

    conformance.py TAMP [--device cpu|cuda] [[--joined] FOLDER...]

Without folders: the cases of the recurrent operators, of GridSample, and of those that order elements or take them from places, in Debian's libonnx-testdata. A case
passes when all outputs have the expected type and shape and every value is within rtol 1e-3, atol 1e-5.

The small cases (JOINED; of folders that are named with --joined) of one opset are one network, as it is the g++ run that costs. Cases give operands as inputs of the model that some operators need as constants
(the axis of a CumSum, say): CONSTANTS names those, which become initializers before the model is compiled."""
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper

import harness

DEBIAN = pathlib.Path("/usr/share/libonnx-testdata/data/node")
PATTERNS = ("test_lstm_*", "test_gru_*", "test_rnn_*", "test_simple_rnn_*", "test_gridsample*")
JOINED = ("test_top_k*", "test_arg*", "test_hardmax*", "test_gather*", "test_scatter*", "test_onehot*", "test_cumsum*", "test_tril*", "test_triu*", "test_eyelike*",
          "test_reversesequence*", "test_depthtospace*", "test_spacetodepth*", "test_compress*", "test_nonzero*", "test_unique*")
CONSTANTS = {"TopK": [1], "OneHot": [1], "CumSum": [1], "CumProd": [1], "Compress": [1], "NonZero": [0], "Unique": [0]}  # operator: its operands

MOST_PORTS = 60


def tensors(folder, kind):
    """input_0.pb, input_1.pb, ... as paths and arrays."""
    paths = sorted(folder.glob(f"test_data_set_0/{kind}_*.pb"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    return [(path, numpy_helper.to_array(onnx.load_tensor(str(path)))) for path in paths]


class Case:
    """A model whose operands in CONSTANTS are initializers, the paths of what its inputs get, and what its outputs are to be."""

    def __init__(self, folder):
        self.name = folder.name
        self.model = onnx.load(str(folder / "model.onnx"))
        graph = self.model.graph
        constants = {tensor.name for tensor in graph.initializer}
        names = [entry.name for entry in graph.input if entry.name not in constants]
        given = dict(zip(names, tensors(folder, "input")))
        for name in sorted({node.input[i] for node in graph.node for i in CONSTANTS.get(node.op_type, []) if node.input[i] in given}):
            graph.initializer.append(numpy_helper.from_array(given.pop(name)[1], name))
        for entry in [entry for entry in graph.input if entry.name not in given]:
            graph.input.remove(entry)
        self.inputs = {name: path for name, (path, _) in given.items()}
        outputs = tensors(folder, "output")
        assert len(outputs) == len(graph.output), f"{folder}: {len(outputs)} outputs, the model has {len(graph.output)}"
        self.expected = {entry.name: values for entry, (_, values) in zip(graph.output, outputs)}

    def opset(self):
        return max(entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx"))

    def ports(self):
        return len(self.inputs) + len(self.expected)

    def rename(self, prefix):
        """All tensors and nodes."""
        graph = self.model.graph
        for node in graph.node:
            node.name = prefix + node.name
            for names in (node.input, node.output):
                names[:] = [prefix + name if name else "" for name in names]
        for entry in [*graph.input, *graph.output, *graph.initializer]:
            entry.name = prefix + entry.name
        self.inputs, self.expected = ({prefix + name: what for name, what in of.items()} for of in (self.inputs, self.expected))


def join(cases):
    """One case of all of them."""
    for k, case in enumerate(cases):
        case.rename(f"{case.name}_{k}_")
    whole, *others = cases
    for case in others:
        graph = case.model.graph
        for name in ("node", "input", "output", "initializer"):
            getattr(whole.model.graph, name).extend(getattr(graph, name))
        whole.inputs |= case.inputs
        whole.expected |= case.expected
    del whole.model.graph.value_info[:]
    return whole


def check(tamp, case, device):
    onnx.save(case.model, str(tamp.folder / "model.onnx"))
    arguments = [word for name, path in case.inputs.items() for word in ("--input", f"{name}={path}")]
    tamp("run", "model.onnx", "--device", device, "--precision", "fp32", "--output-dir", "out", *arguments)
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    assert len(files) == len(case.expected), f"{len(files)} outputs, expected {len(case.expected)}"
    for name, values in case.expected.items():
        got = np.load(tamp.folder / "out" / files[name])
        assert got.shape == values.shape and got.dtype == values.dtype, f"{name}: {got.dtype}{got.shape}, expected {values.dtype}{values.shape}"
        np.testing.assert_allclose(got, values, rtol=1e-3, atol=1e-5, err_msg=name)


def case_test(folder, device):
    def test(tamp):
        check(tamp, Case(folder), device)
    test.__name__ = folder.name
    return test


def joined_tests(folders, device):
    """One for each opset, or several where the cases have more inputs and outputs together than a model may have."""
    groups = {}
    for case in map(Case, folders):
        parts = groups.setdefault(case.opset(), [[]])
        if sum(one.ports() for one in [*parts[-1], case]) > MOST_PORTS:
            parts.append([])
        parts[-1].append(case)
    tests = []
    for opset, cases in [(opset, cases) for opset, parts in sorted(groups.items()) for cases in parts]:
        def test(tamp, cases=cases):
            check(tamp, join(cases), device)
        test.__name__ = f"{len(cases)} cases of opset {opset} from {cases[0].name}"
        tests.append(test)
    return tests


def main():
    words = sys.argv[2:]
    device = "cpu"
    if words[:1] == ["--device"]:
        device, words = words[1], words[2:]
    joined = words[:1] == ["--joined"]
    folders = [pathlib.Path(word).resolve() for word in words[1 if joined else 0:]]
    of = lambda patterns: sorted(path for pattern in patterns for path in DEBIAN.glob(pattern))
    sys.argv[2:] = []
    if joined:
        return harness.main(joined_tests(folders, device))
    return harness.main([case_test(folder, device) for folder in folders or of(PATTERNS)] + (joined_tests(of(JOINED), device) if not folders else []))


if __name__ == "__main__":
    sys.exit(main())

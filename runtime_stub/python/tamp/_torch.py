"""What needs torch, imported only when it is used: torch.nn.Module to ONNX, and the backend of torch.compile."""
from __future__ import annotations

import importlib.util
import logging
import pathlib
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._arrays import SHORT_NAMES
from ._compile import compile
from ._errors import CompileError, Error, Refusal
from ._model import Model


_one_export = threading.Lock()  # torch keeps what it is exporting in variables of the process


def export(module: torch.nn.Module, inputs: Sequence[Any], file: pathlib.Path) -> pathlib.Path:
    """The module in eval mode as an ONNX file of fixed shapes; CompileError if torch cannot."""
    if not inputs:
        raise TypeError("a torch.nn.Module is exported with inputs: tamp.compile(module, x)")
    with _one_export:
        return _export(module, inputs, file)


def _export(module: torch.nn.Module, inputs: Sequence[Any], file: pathlib.Path) -> pathlib.Path:
    training = [part for part in module.modules() if part.training]
    new = importlib.util.find_spec("onnxscript") is not None  # what the newer exporter needs; the older one needs no package
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    try:
        quiet.setLevel(logging.ERROR)
        module.eval()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, tuple(inputs), str(file), dynamo=new, verbose=False)
    except Exception as failure:
        raise _export_error(failure) from failure
    finally:
        quiet.setLevel(level)
        for part in training:
            part.training = True
    return file


def _export_error(failure: Exception) -> CompileError:
    """What torch says is long; in the chain of its causes one names the node, and the first of them the reason."""
    chain: list[BaseException] = [failure]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    reason = " ".join(str(chain[-1]).split()) or type(chain[-1]).__name__
    for link in chain:
        if found := re.search(r"translating node %(\S+) .*?target=([^]]+)\]", str(link)):
            refusal = Refusal(node=found[1], operator=found[2], reason=f"torch.onnx.export cannot translate it: {reason}")
            return CompileError(f"node '{found[1]}' ({found[2]}): {refusal['reason']}", [refusal])
    return CompileError(f"torch.onnx.export: {reason}")


def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """torch.compile(module, backend="tamp"): each graph that dynamo finds is a model of tamp's.

    `options` are those of tamp.compile: torch.compile(module, backend="tamp", options={"precision": "fp16"}). A graph that tamp cannot
    compile, or that needs gradients, runs as if torch.compile were not there, with one warning that says why.
    """
    try:
        return _Compiled(graph, inputs, options.pop("options", None) or options)
    except (Error, TypeError, ValueError, OSError) as failure:
        _warn(failure)
        return graph.forward


def _warn(failure: Exception) -> None:
    refused = getattr(failure, "unsupported", None)
    why = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
    if refused:
        first = refused[0]
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        why = f"node '{first['node']}' ({first['operator']}) is not supported: {first['reason']}{more}"
    warnings.warn(f"tamp runs this graph by eager torch: {why}", RuntimeWarning, stacklevel=2)


class _WithConstants(torch.nn.Module):
    """The graph as a function of what changes from call to call. Dynamo makes parameters and buffers inputs of the graph; in the exported
    model they are constants again, so that the compiler can pack them."""

    def __init__(self, graph: torch.fx.GraphModule, constants: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._graph = graph
        self._constants = {i: tensor.detach() for i, tensor in constants.items()}
        for i, tensor in self._constants.items():
            self.register_buffer(f"constant_{i}", tensor, persistent=False)

    def forward(self, *varying: torch.Tensor) -> Any:
        values = iter(varying)
        count = len(varying) + len(self._constants)
        return self._graph(*[getattr(self, f"constant_{i}") if i in self._constants else next(values) for i in range(count)])


class _Compiled:
    """What dynamo calls instead of the graph."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], options: dict[str, Any]) -> None:
        if not all(isinstance(value, torch.Tensor) for value in inputs):
            raise CompileError("an input of the graph is a number that changes from call to call; use torch.compile(..., dynamic=False)")
        if torch.is_grad_enabled() and any(value.requires_grad for value in inputs):
            raise CompileError("gradients are needed, and tamp only infers; call it in torch.no_grad() or torch.inference_mode()")
        self._graph = graph
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        # The tensors are held so that no other tensor gets their identity; their versions are those that the compiled model has.
        self._constants = {i: value for i, (node, value) in enumerate(zip(nodes, inputs)) if _is_constant(node, value)}
        self._versions = {i: _version(value) for i, value in self._constants.items()}
        varying = [value for i, value in enumerate(inputs) if i not in self._constants]
        if not varying:
            raise CompileError("the graph has no inputs but parameters")
        results = _results_of(graph, inputs)
        with tempfile.TemporaryDirectory(prefix="tamp-") as scratch:
            module = _WithConstants(graph, self._constants)
            self._model: Model = compile(export(module, varying, pathlib.Path(scratch) / "graph.onnx"), **options)
        if len(self._model.inputs) != len(varying) or [(port.dtype, port.shape) for port in self._model.outputs] != results:
            raise CompileError("the exported model has other inputs or outputs than the graph")
        self._changed = False

    def __call__(self, *values: torch.Tensor) -> Any:
        if self._changed or any(values[i] is not value or _version(value) != self._versions[i] for i, value in self._constants.items()):
            if not self._changed:
                _warn(CompileError("a parameter or buffer was changed after torch.compile; compile anew (torch._dynamo.reset())"))
            self._changed = True
            return self._graph(*values)
        results = self._model(*[value for i, value in enumerate(values) if i not in self._constants])
        return list(results) if isinstance(results, tuple) else [results]


def _results_of(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> list[tuple[str, tuple[int, ...]]]:
    """Element types and shapes, by running the graph once; CompileError if it changes its inputs, which an exported model would not do."""
    with torch.inference_mode(False), torch.no_grad():
        copies = [value.detach().clone() for value in inputs]
        versions = [copy._version for copy in copies]
        results = graph(*copies)
    if versions != [copy._version for copy in copies]:
        raise CompileError("the graph changes an input, parameter or buffer in place (is a module in training mode?)")
    if not isinstance(results, (tuple, list)) or not all(isinstance(result, torch.Tensor) for result in results):
        raise CompileError("a result of the graph is not a tensor")
    return [(SHORT_NAMES.get(str(result.dtype).removeprefix("torch."), ""), tuple(result.shape)) for result in results]


def _is_constant(node: torch.fx.Node, value: torch.Tensor) -> bool:
    """Parameters, and what dynamo knows to be a buffer."""
    return isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version

"""tamp compiles neural networks to one persistent CUDA kernel.

    import tamp
    model = tamp.compile("resnet18.onnx", precision="fp16")
    scores = model(images)
    model.save("served")                  # tamp.load("served") needs no compiler

Without a GPU the same generated source runs on the CPU, on a stand-in for CUDA that is meant for trying and testing.
"""
from ._cache import cache_folder, cache_limit, clear_cache
from ._compile import compile
from ._errors import CompileError, Error, RunError
from ._library import build, load
from ._model import Axis, Info, Length, Model, Port
from ._program import version

__version__ = version()
__all__ = [
    "Axis", "CompileError", "Error", "Info", "Length", "Model", "Port", "RunError", "build", "cache_folder", "cache_limit", "clear_cache", "compile", "load",
]  # fmt: skip

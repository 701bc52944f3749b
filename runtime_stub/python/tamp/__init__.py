"""tamp compiles neural networks to one persistent CUDA kernel.

    import tamp
    model = tamp.compile("resnet18.onnx", precision="fp16")
    scores = model(images)

Without a GPU the same generated source runs on the CPU, on a stand-in for CUDA that is meant for trying and testing.
"""
from ._cache import cache_folder, clear_cache
from ._compile import compile
from ._errors import CompileError, Error, RunError
from ._model import Info, Model, Port
from ._program import version

__version__ = version()
__all__ = ["CompileError", "Error", "Info", "Model", "Port", "RunError", "cache_folder", "clear_cache", "compile"]

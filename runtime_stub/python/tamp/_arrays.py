"""Arrays of other libraries: where their data lie, and making new ones of the same kind.

numpy and torch are asked directly, since they say more than DLPack lets through: bfloat16 and read-only memory, torch's current stream. All
else goes by DLPack. torch is never imported here: an array of its can only come from who has imported it.
"""
from __future__ import annotations

import sys
from typing import Any, NamedTuple, Protocol

import numpy as np

from . import _native

# tamp's name of an element type: code and bits of DLPack.
DLPACK_TYPES = {
    "f16": (2, 16), "f32": (2, 32), "f64": (2, 64), "bf16": (4, 16), "bool": (6, 8),
    "i8": (0, 8), "i16": (0, 16), "i32": (0, 32), "i64": (0, 64),
    "u8": (1, 8), "u16": (1, 16), "u32": (1, 32), "u64": (1, 64),
}  # fmt: skip
LONG_NAMES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "bool": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip
SHORT_NAMES = {long: short for short, long in LONG_NAMES.items()}
ALIGNMENT = 16


class Where(NamedTuple):
    """A dense, aligned array."""

    address: int
    dtype: str
    """As tamp calls it; of a type that tamp does not know, as its own library does."""
    shape: tuple[int, ...]
    device: int | None
    """A CUDA device's number; None: host memory."""
    holder: Any
    """Whose memory it is: the array, or a copy that had to be made."""


class Kind(Protocol):
    """A library of arrays."""

    def where(self, array: Any) -> Where:
        """Copies an array that is not dense or not aligned."""

    def empty(self, library: _native.Library, dtype: str, shape: tuple[int, ...], device: int | None) -> tuple[Any, int]:
        """A new array, and its address."""

    def finish(self, array: Any) -> Any:
        """Of a new array, once it is filled: what the user gets."""

    def stream(self, device: int) -> int:
        """The cudaStream_t to run in, as a number."""


def _numpy_type(name: str) -> np.dtype[Any]:
    if name != "bf16":
        return np.dtype(LONG_NAMES[name])
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("numpy has no bfloat16: install ml_dtypes, or give torch tensors") from None
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


class Numpy:
    def where(self, array: Any) -> Where:
        array = np.asarray(array)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.c_contiguous or (array.ctypes.data % ALIGNMENT and array.nbytes):
            array = _aligned_copy(array)
        return Where(array.ctypes.data, SHORT_NAMES.get(array.dtype.name, array.dtype.name), array.shape, None, array)

    def empty(self, library: _native.Library, dtype: str, shape: tuple[int, ...], device: int | None) -> tuple[Any, int]:
        array = _aligned_empty(shape, _numpy_type(dtype))
        return array, array.ctypes.data

    def finish(self, array: Any) -> Any:
        return array

    def stream(self, device: int) -> int:
        return 0


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=np.int64))
    memory = np.empty(count * dtype.itemsize + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + count * dtype.itemsize].view(dtype).reshape(shape)


def _aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = _aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


class Torch:
    def where(self, array: Any) -> Where:
        tensor = array.detach()
        if tensor.device.type not in ("cpu", "cuda"):
            raise TypeError(f"a tensor on {tensor.device}, expected one on cpu or cuda")
        if tensor.layout is not _torch().strided:
            raise TypeError(f"a tensor of layout {tensor.layout}, expected torch.strided")
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
        if tensor.data_ptr() % ALIGNMENT:
            tensor = tensor.clone()
        name = str(tensor.dtype).removeprefix("torch.")
        device = tensor.device.index if tensor.device.type == "cuda" else None
        return Where(tensor.data_ptr(), SHORT_NAMES.get(name, name), tuple(tensor.shape), device, tensor)

    def empty(self, library: _native.Library, dtype: str, shape: tuple[int, ...], device: int | None) -> tuple[Any, int]:
        torch = _torch()
        place = "cpu" if device is None else f"cuda:{device}"
        tensor = torch.empty(shape, dtype=getattr(torch, LONG_NAMES[dtype]), device=place)
        return tensor, tensor.data_ptr()

    def finish(self, array: Any) -> Any:
        return array

    def stream(self, device: int) -> int:
        return int(_torch().cuda.current_stream(device).cuda_stream)


def _torch() -> Any:
    return sys.modules["torch"]


class DLPack:
    """Of whatever library; results are made by its `from_dlpack` if the array API tells which that is, and are bare objects with
    `__dlpack__` otherwise."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    def where(self, array: Any) -> Where:
        view = _native.View(array)
        if not (view.is_on_host or view.is_on_cuda):
            raise TypeError("an array that is neither in host memory nor on a CUDA device")
        if not view.is_dense:
            raise ValueError("an array that is not dense and row-major; make a contiguous copy of it")
        if view.address % ALIGNMENT and 0 not in view.shape:
            raise ValueError(f"an array that does not begin at a multiple of {ALIGNMENT} bytes; make a copy of it")
        names = [name for name, code in DLPACK_TYPES.items() if code == view.type]
        device = None if view.is_on_host else view.device
        return Where(view.address, names[0] if names else f"DLPack type {view.type}", view.shape, device, view)

    def empty(self, library: _native.Library, dtype: str, shape: tuple[int, ...], device: int | None) -> tuple[Any, int]:
        array = _native.empty(library, DLPACK_TYPES[dtype], list(shape), device is None, device or 0)
        return array, _native.View(array).address

    def finish(self, array: Any) -> Any:
        return self._namespace.from_dlpack(array) if hasattr(self._namespace, "from_dlpack") else array

    def stream(self, device: int) -> int:
        return 0  # the one that DLPack has consumers without a stream of their own order themselves by


def kind_of(array: Any) -> Kind:
    """TypeError if it is no array."""
    if isinstance(array, (np.ndarray, np.generic)):
        return Numpy()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return Torch()
    if hasattr(array, "__dlpack__"):
        return DLPack(array.__array_namespace__() if hasattr(array, "__array_namespace__") else None)
    raise TypeError(f"found an object of type {type(array).__name__}, expected a numpy array, a torch tensor, or another array with __dlpack__")

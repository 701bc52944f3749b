"""What can go wrong. Wrong arguments are TypeError and ValueError, as everywhere in Python."""
from __future__ import annotations

from typing import TypedDict

from ._native import RunError as _NativeRunError


class Refusal(TypedDict):
    """One thing in a model that tamp does not support."""

    node: str
    """The node's name in the model; empty if it has none, or if this is not about a node."""
    operator: str
    """Its operator, as "Conv" or "com.example.Special"; empty where `reason` is not about a node."""
    reason: str
    """Why, as a sentence without a full stop."""


class Error(Exception):
    """All errors of this package but those of arguments."""


class CompileError(Error):
    """A model cannot be exported, compiled or built. `str()` of it is what the compiler says."""

    def __init__(self, message: str, unsupported: list[Refusal] | None = None) -> None:
        super().__init__(message)
        self.unsupported: list[Refusal] = unsupported or []
        """All that the model needs and tamp does not support; empty if something else is wrong."""

    def __reduce__(self) -> tuple[type[CompileError], tuple[str, list[Refusal]]]:
        return type(self), (str(self), self.unsupported)


class RunError(Error, RuntimeError):
    """A model cannot be loaded or run: the GPU is too small or too old, memory is short, a kernel died, a wait timed out."""


NativeRunError = _NativeRunError

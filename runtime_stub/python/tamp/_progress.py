"""What takes long is said on stderr: on a terminal as one line that goes away again, with `verbose` as a line each."""
from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator


class Progress:
    def __init__(self, verbose: bool | None) -> None:
        self.verbose = bool(verbose)
        self._on_terminal = verbose is None and sys.stderr is not None and sys.stderr.isatty()

    @contextlib.contextmanager
    def stage(self, text: str) -> Iterator[None]:
        begun, ended = time.monotonic(), threading.Event()
        shown = threading.Thread(target=self._show, args=[text, begun, ended], daemon=True) if self._on_terminal else None
        if shown:
            shown.start()
        try:
            yield
        finally:
            ended.set()
            if shown:
                shown.join()
            self.log(f"tamp: {text}: {time.monotonic() - begun:.1f} s\n")

    def log(self, text: str) -> None:
        if self.verbose and sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()

    def _show(self, text: str, begun: float, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            line = f"tamp: {text}: {time.monotonic() - begun:.0f} s"
            sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

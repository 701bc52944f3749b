"""Compiled models on disk: a folder each, named by a hash of all that it follows from.

A folder is made elsewhere and then renamed, so that it is there as a whole or not at all; who makes one holds a lock, so that of several
processes that want the same model one compiles it.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import filelock
import platformdirs


def cache_folder() -> pathlib.Path:
    """The folder of compiled models: TAMP_CACHE_DIR if that is set, else the user's cache folder (~/.cache/tamp)."""
    return pathlib.Path(os.environ.get("TAMP_CACHE_DIR") or platformdirs.user_cache_dir("tamp"))


def clear_cache() -> None:
    """Removes all compiled models. Those that are loaded go on working, but for `Model.source` and what else is read from disk."""
    for name in ["models", "external"]:
        shutil.rmtree(cache_folder() / name, ignore_errors=True)


def hash_file(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def hash_of(value: object) -> str:
    """Of anything that JSON can say."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def work_folder() -> Iterator[pathlib.Path]:
    """Where to make a folder; beside the cache's, so that it can be renamed."""
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="work-", dir=root) as work:
        yield pathlib.Path(work)


def keep_by_content(made: pathlib.Path, content: object) -> pathlib.Path:
    """Puts a folder into the cache, under a hash of what tells it from all others."""
    return _put(made, _folder_of(content))


def _folder_of(content: object) -> pathlib.Path:
    return cache_folder() / "models" / hash_of(content)[:40]


def _put(made: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():  # else somebody was faster, with the same
            raise
    return folder


class Entry:
    """One model in the cache.

    Which files hold a model's external weights follows from the model alone, and is known once it has been compiled. So the cache remembers
    them under the model's hash, and the name of the folder has their hashes in it.
    """

    def __init__(self, model: pathlib.Path, configuration: object) -> None:
        self._model = model
        self._model_hash = hash_file(model)
        self._configuration = configuration
        self._root = cache_folder()
        self._external = self._root / "external" / f"{self._model_hash}.json"

    def find(self) -> pathlib.Path | None:
        """The folder, if it is there."""
        try:
            names = json.loads(self._external.read_text())
            folder = self._folder(names)
        except (OSError, ValueError):  # not compiled yet, or a file of weights is gone: the compiler says it better
            return None
        return folder if folder.is_dir() else None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        locks = self._root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(locks / f"{hash_of([self._model_hash, self._configuration])}.lock"):
            yield

    def keep(self, made: pathlib.Path, external: list[str]) -> pathlib.Path:
        """Puts a folder into the cache. `external`: the files of external weights, relative to the model's folder."""
        folder = _put(made, self._folder(external))
        self._external.parent.mkdir(parents=True, exist_ok=True)
        unfinished = made.parent / "external.json"
        unfinished.write_text(json.dumps(external))
        unfinished.replace(self._external)
        return folder

    def _folder(self, external: list[str]) -> pathlib.Path:
        weights = [[name, hash_file(self._model.parent / name)] for name in external]
        return _folder_of([self._model_hash, self._configuration, weights])

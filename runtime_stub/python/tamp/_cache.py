"""Compiled models on disk: a folder each, named by a hash of all that it follows from.

A folder is made elsewhere and then renamed, so that it is there as a whole or not at all; who makes one holds a lock, so that of several
processes that want the same model one compiles it. Once the cache is too large, the folders go that have not been used for longest.

What is loaded from here is run. So the folders are the user's own (or root's), and nobody else may write there: a cache of which that is not
true is an Error, and nothing of it is read.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator

import filelock
import platformdirs

from ._errors import CompileError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> pathlib.Path:
    """The folder of compiled models: TAMP_CACHE_DIR if that is set, else the user's cache folder (~/.cache/tamp)."""
    return pathlib.Path(os.environ.get("TAMP_CACHE_DIR") or platformdirs.user_cache_dir("tamp"))


def cache_limit() -> int:
    """Bytes that the cache may take: TAMP_CACHE_MAX_BYTES if that is set, a number that may end with K, M, G or T; else 20G. What has not been
    used for longest is removed when something new is put there."""
    text = os.environ.get("TAMP_CACHE_MAX_BYTES") or "20G"
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not found:
        raise ValueError(f"TAMP_CACHE_MAX_BYTES is '{text}', expected a number of bytes, as 500000000 or 20G")
    return int(found[1]) << 10 * " KMGT".index(found[2] or " ")


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


def _expect_own(path: pathlib.Path, status: os.stat_result) -> None:
    problem = ""
    if status.st_uid not in (os.geteuid(), 0):
        problem = f"belongs to user {status.st_uid}"
    elif status.st_mode & _OTHERS_WRITE:
        problem = f"can be written by others (its mode is {stat.S_IMODE(status.st_mode):04o})"
    if problem:
        raise CompileError(
            f"{path}: {problem}, and what is in the cache of compiled models is run; remove it, take the permission away (chmod -R go-w), or "
            "let TAMP_CACHE_DIR name a folder of your own"
        )


def keep_from_others(path: pathlib.Path) -> None:
    """Nobody but the user may write it, whatever the umask is."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS_WRITE)


def _own_folder(name: str = "") -> pathlib.Path:
    """The cache's folder, or one in it; it is made if it is not there."""
    for folder in [cache_folder(), cache_folder() / name]:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _expect_own(folder, folder.stat())
    return cache_folder() / name


def _expect_own_path(path: pathlib.Path) -> None:
    """That what is in the cache under this path is the user's own, and so are the folders in which it lies and the files in it: nobody else
    could have put it there, or can exchange it while it is loaded. What is not there does no harm."""
    root = cache_folder()
    folders = [root / parent for parent in reversed(path.relative_to(root).parents)]
    for each in [*folders, path, *_inside(path)]:
        with contextlib.suppress(FileNotFoundError):
            status = each.stat() if each == root else each.lstat()
            if stat.S_ISLNK(status.st_mode):
                raise CompileError(f"{each}: a link, which tamp has not put into the cache of compiled models; remove it")
            _expect_own(each, status)


def _inside(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return list(folder.rglob("*"))
    except FileNotFoundError:  # removed meanwhile
        return []


@contextlib.contextmanager
def work_folder() -> Iterator[pathlib.Path]:
    """Where to make a folder; beside the cache's, so that it can be renamed."""
    with tempfile.TemporaryDirectory(prefix="work-", dir=_own_folder()) as work:
        yield pathlib.Path(work)


def keep_once(content: object, make: Callable[[pathlib.Path, pathlib.Path], None]) -> pathlib.Path:
    """The folder of that content. If it is not there, `make(folder, work)` fills it, in one of the processes that want it."""
    folder = _folder_of(content)
    _expect_own_path(folder)
    if not folder.is_dir():
        with _lock(hash_of(content)):
            if not folder.is_dir():
                with work_folder() as work:
                    (work / "made").mkdir()
                    make(work / "made", work)
                    return _put(work / "made", folder)
    _note_use(folder)
    return folder


def _lock(name: str) -> filelock.BaseFileLock:
    return filelock.FileLock(_own_folder("locks") / f"{name}.lock")


def _note_use(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError):  # of a cache that is root's
        os.utime(folder)


def _make_room(kept: pathlib.Path) -> None:
    """Removes what has not been used for longest until the rest fits into the limit; never `kept`. A folder goes as a whole, so that others find
    it or do not. A file that several folders share counts once, for the one that was used last."""
    limit = cache_limit()
    with _lock("room"), work_folder() as work:
        stamps = {}
        for folder in kept.parent.iterdir():
            with contextlib.suppress(FileNotFoundError):
                stamps[folder] = float("inf") if folder == kept else folder.stat().st_mtime
        total, counted = 0, set[tuple[int, int]]()
        for folder in sorted(stamps, key=lambda folder: stamps[folder], reverse=True):
            files = {}
            for path in _inside(folder):
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    files[status.st_dev, status.st_ino] = status.st_size
            size = sum(size for file, size in files.items() if file not in counted)
            if folder != kept and total + size > limit:
                with contextlib.suppress(OSError):  # of a cache that is root's, or removed by its owner meanwhile
                    folder.rename(work / folder.name)
                continue
            total += size
            counted |= set(files)
        for left in cache_folder().glob("work-*"):  # by processes that were killed
            with contextlib.suppress(OSError):
                if left.stat().st_mtime < time.time() - 86400:
                    shutil.rmtree(left, ignore_errors=True)


def keep_by_content(made: pathlib.Path, content: object) -> pathlib.Path:
    """Puts a folder into the cache, under a hash of what tells it from all others."""
    return _put(made, _folder_of(content))


def _folder_of(content: object) -> pathlib.Path:
    return cache_folder() / "models" / hash_of(content)[:40]


def _put(made: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    _own_folder("models")
    for path in [made, *made.rglob("*")]:
        keep_from_others(path)
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():  # else somebody was faster, with the same
            raise
        _expect_own_path(folder)
    _note_use(folder)
    _make_room(folder)
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
        self._external = cache_folder() / "external" / f"{self._model_hash}.json"

    def find(self) -> pathlib.Path | None:
        """The folder, if it is there."""
        _expect_own_path(self._external)
        try:
            names = json.loads(self._external.read_text())
            folder = self._folder(names)
        except (OSError, ValueError):  # not compiled yet, or a file of weights is gone: the compiler says it better
            return None
        _expect_own_path(folder)
        _note_use(folder)
        return folder if folder.is_dir() else None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with _lock(hash_of([self._model_hash, self._configuration])):
            yield

    def keep(self, made: pathlib.Path, external: list[str]) -> pathlib.Path:
        """Puts a folder into the cache. `external`: the files of external weights, relative to the model's folder."""
        folder = _put(made, self._folder(external))
        _own_folder("external")
        unfinished = made.parent / "external.json"
        unfinished.write_text(json.dumps(external))
        unfinished.chmod(0o600)
        unfinished.replace(self._external)
        return folder

    def _folder(self, external: list[str]) -> pathlib.Path:
        weights = [[name, hash_file(self._model.parent / name)] for name in external]
        return _folder_of([self._model_hash, self._configuration, weights])

"""A virtual environment with the Python package, for the tests that need one. It lies in the build folder of the program that is in it, and is
made anew when that or the package has changed.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import harness


def run(*args, **kwargs):
    done = subprocess.run([str(arg) for arg in args], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, f"{' '.join(map(str, args))}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def pip_install(python, *what):
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)


def _identity(build):
    digest = hashlib.sha256()
    sources = [path for path in sorted((harness.ROOT / "runtime_stub").rglob("*")) if path.suffix in {".py", ".pyi", ".cpp", ".h", ".txt"}]
    for path in [build / "bin" / "tamp", harness.ROOT / "pyproject.toml", *sources]:
        digest.update(f"{path} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def python_of(tamp):
    """The Python of the environment. The package holds the program `tamp`, and all else of its build folder that CMake installs. Several test
    programs that want one at the same time wait for the first of them to make it."""
    build = pathlib.Path(os.path.abspath(tamp)).parents[1]
    with open(build / "python_package.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        return _made(build, build / "python_package")


def _made(build, folder):
    identity = _identity(build)
    python, stamp = folder / "venv" / "bin" / "python", folder / "identity"
    if stamp.exists() and stamp.read_text() == identity:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(sys.executable, "-m", "venv", folder / "venv")
    settings = [f"build-dir={folder / 'build'}", "cmake.source-dir=runtime_stub/python", f"cmake.define.TAMP_BUILD={build}"]
    pip_install(python, *[f"--config-settings={one}" for one in settings], harness.ROOT)
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")  # onnx, onnxruntime; and torch if it is there
    stamp.write_text(identity)
    return python

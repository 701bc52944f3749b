"""What the end-to-end tests share: starting `tamp`, and running the test_* functions of a file, as many at a time as there
are processors. Every test program is called as `NAME_test.py TAMP [WORD...]` (WORD: only tests whose name contains it) and
ends with the line "N passed, N failed".
"""
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN_SECONDS = 600


class Tamp:
    """The program under test, started in a folder of the test's own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def __call__(self, *args, code=0, says="", env=None, error=None, **kwargs):
        """Runs `tamp ARGS`; checks the exit code, that stderr holds `says`, and that a failure (`error`: unless the exit code
        is 0) is one line "error: ..."; returns the finished process."""
        environment = {**os.environ, **(env or {})}
        done = subprocess.run([self.program, *map(str, args)], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=RUN_SECONDS, **kwargs)
        shown = f"tamp {' '.join(map(str, args))}\n  stdout: {done.stdout[-1500:]}\n  stderr: {done.stderr[-1500:]}"
        assert done.returncode == code, f"exit code {done.returncode}, expected {code}: {shown}"
        assert says in done.stderr, f"does not say {says!r}: {shown}"
        if error if error is not None else code != 0:
            errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            assert len(errors) == 1, f"{len(errors)} lines begin with 'error: ', expected 1: {shown}"
        return done


def has_gpu():
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*")) or pathlib.Path("/dev/dxg").exists()


def with_gxx(tamp, lines):
    """An environment whose g++ first runs `lines` of Python, in the folder with the source; its arguments are the list `words`."""
    wrapper = tamp.folder / "bin" / "g++"
    wrapper.parent.mkdir()
    wrapper.write_text(f"""#!{sys.executable}
import os, pathlib, sys
words = sys.argv[1:]
{lines}
os.environ["PATH"] = {os.environ["PATH"]!r}
os.execvp("g++", ["g++", *words])  # by its own name: it finds its parts from it
""")
    wrapper.chmod(0o755)
    return {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}


def with_nvidia_smi(tamp, lines):
    """An environment whose nvidia-smi is this shell script: a machine with another GPU, or with none that says its name."""
    program = tamp.folder / "gpu" / "nvidia-smi"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def run_one(program, test):
    with tempfile.TemporaryDirectory(prefix="tamp-test-") as folder:
        begin = time.monotonic()
        try:
            test(Tamp(program, folder))
        except Exception as failure:
            where = "" if isinstance(failure, AssertionError) and str(failure) else "\n" + traceback.format_exc()
            print(f"FAILED {test.__name__}: {failure}{where}", flush=True)
            return False
        print(f"passed {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        return True


def jobs_at_once():
    """test/run.sh runs several programs at a time and says how many jobs each may have."""
    return int(os.environ.get("TAMP_TEST_JOBS", os.cpu_count() or 1))


def main(tests, jobs=None):
    program, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    chosen = [test for test in tests if not words or any(word in test.__name__ for word in words)]
    with ThreadPoolExecutor(jobs or jobs_at_once()) as pool:
        passed = sum(pool.map(lambda test: run_one(program, test), chosen))
    print(f"{passed} passed, {len(chosen) - passed} failed")
    return 0 if chosen and passed == len(chosen) else 1


def tests_of(names):
    """The test_* functions of a module's globals(), in the order of the file."""
    return [value for name, value in names.items() if name.startswith("test_") and callable(value)]


def with_arguments(test, *args):
    """The test with what it takes besides `tamp`."""
    @functools.wraps(test)
    def called(tamp):
        test(tamp, *args)
    return called

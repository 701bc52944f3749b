#!/usr/bin/env python3
"""Compiles models with two tamp programs and compares all files that they write, byte by byte.

    replay.py OLD_TAMP NEW_TAMP MODEL...

For changes that must not change what is generated. Each model is compiled for the vDevice h200 in tf32 and fp16, and for cpu in fp32. A
model that the old program refuses must be refused by the new one. Prints one line a model and configuration; the exit status is 1 if
there was any difference."""
import difflib
import pathlib
import subprocess
import sys
import tempfile

CONFIGURATIONS = (("h200", "tf32"), ("h200", "fp16"), ("cpu", "fp32"))
SHOWN = 6  # lines of a difference


def compile_with(tamp, model, vdevice, precision, folder):
    """The files by name, or the message of the refusal."""
    words = [tamp, "compile", model, "-o", folder / model.stem, "--vdevice", vdevice, "--precision", precision]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    return {path.name: path.read_bytes() for path in sorted((folder / model.stem).iterdir())}


def difference(old, new):
    if isinstance(old, list) or isinstance(new, list):
        if isinstance(old, list) and isinstance(new, list):
            return []
        return [f"old: {old if isinstance(old, list) else 'compiles'}", f"new: {new if isinstance(new, list) else 'compiles'}"]
    found = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        found.append(f"{name} differs" if name in old and name in new else f"{name} is only there {'before' if name in old else 'after'}")
        if name in old and name in new and not name.endswith(".weights"):
            texts = [part[name].decode(errors="replace").splitlines() for part in (old, new)]
            found += list(difflib.unified_diff(*texts, lineterm="", n=0))[2:2 + SHOWN]
    return found


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    programs = [pathlib.Path(word).resolve() for word in sys.argv[1:3]]
    differences = 0
    for model in map(pathlib.Path, sys.argv[3:]):
        for vdevice, precision in CONFIGURATIONS:
            with tempfile.TemporaryDirectory() as scratch:
                folders = [pathlib.Path(scratch) / side for side in ("old", "new")]
                for folder in folders:
                    folder.mkdir()
                made = [compile_with(tamp, model, vdevice, precision, folder) for tamp, folder in zip(programs, folders)]
            found = difference(*made)
            state = "differs" if found else f"refused by both: {made[0][0]}" if isinstance(made[0], list) else f"{len(made[0])} files equal"
            print(f"{model.stem} {vdevice} {precision}: {state}", *found, sep="\n    ", flush=True)
            differences += bool(found)
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Models for a fuzzer to start from, all into one folder: ONNX's own test cases (Debian's libonnx-testdata), the broken models of
test/e2e/bad_inputs.py, the small networks of test/e2e/models_test.py, and random ones.

    make_corpus.py FOLDER [RANDOM_MODELS]
"""
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import bad_inputs
import random_model
import races_test

DEBIAN = pathlib.Path("/usr/share/libonnx-testdata/data/node")
MAX_BYTES = 64 * 1024  # large ones are slow, and mostly weights


def models(random_models):
    """Names and bytes."""
    for path in sorted(DEBIAN.glob("*/model.onnx")):
        yield path.parent.name, path.read_bytes()
    for name, make, *_ in races_test.CLEAN:
        yield f"network_{name}", make().SerializeToString()
    for seed in range(random_models):
        yield f"random_{seed}", random_model.make(seed).SerializeToString()
    for case in bad_inputs.CASES:
        with tempfile.TemporaryDirectory() as folder:
            made = case.make(pathlib.Path(folder))
        if made is not None:
            yield f"bad_{case.name}", made if isinstance(made, bytes) else made.SerializeToString()


def main():
    folder, random_models = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = 0
    for name, data in models(random_models):
        if len(data) <= MAX_BYTES:
            (folder / f"{name.replace('/', '_').replace(' ', '_')}.onnx").write_bytes(data)
            count += 1
    print(f"{count} models in {folder}")


if __name__ == "__main__":
    main()

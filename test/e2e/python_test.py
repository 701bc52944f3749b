#!/usr/bin/env python3
"""The Python package: pip installs it into a virtual environment, with the program of the build folder that TAMP lies in; then the tests run
there (python_package.py).

    python_test.py TAMP [WORD...]
"""
import functools
import html
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import threading

import numpy as np
import onnx
import onnxruntime

import harness
import models as m
import python_package
from python_package import run

INSIDE = "TAMP_PYTHON_TEST"


def go_on(folder):
    """This program again, by a Python that has the package."""
    environment = {**os.environ, INSIDE: str(folder), "TAMP_CACHE_DIR": str(folder / "cache")}
    return subprocess.run([python_package.python_of(sys.argv[1]), *sys.argv], env=environment).returncode


def compiled(model, *inputs, **options):
    """All tests are of the stand-in but those that say otherwise."""
    return tamp_package().compile(model, *inputs, device="cpu", **options)


def tamp_package():
    import tamp
    return tamp


def refused(kind, says, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert all(word in str(error) for word in says), f"{says} is not in {error}"
        return error
    raise AssertionError(f"is good, expected {kind.__name__} with {says}")


def reference(model, *inputs):
    session = onnxruntime.InferenceSession(model if isinstance(model, str) else model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([port.name for port in session.get_inputs()], inputs)))


def drawn(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def example(tamp, name):
    run(sys.executable, harness.ROOT / "examples" / "make_weights.py", harness.ROOT / "examples" / "models" / f"{name}.onnx", "--into", tamp.folder)
    return str(tamp.folder / f"{name}.onnx")


def product(weight=2.0, columns=3):
    """y = x w, of any number of rows."""
    return m.model([m.node("MatMul", ["x", "w"], ["y"])], [m.value("x", ["N", 4])], [m.value("y", ["N", columns])],
                   [m.constant("w", np.full((4, columns), weight))])


# --- compiling ---------------------------------------------------------------------------------------------------------

def test_five_lines_compile_and_run_a_network(tamp):
    path = example(tamp, "squeezenet1_0")
    image = drawn(1, 3, 224, 224)
    np.save(tamp.folder / "image.npy", image)
    (tamp.folder / "five.py").write_text("""import numpy as np
import tamp
model = tamp.compile("squeezenet1_0.onnx", precision="fp32")
scores = model(np.load("image.npy"))
np.save("scores.npy", scores)
""")
    run(sys.executable, "five.py", cwd=tamp.folder)
    scores, expected = np.load(tamp.folder / "scores.npy"), reference(path, image)[0]
    assert scores.shape == expected.shape and np.allclose(scores, expected, rtol=1e-3, atol=1e-4), np.abs(scores - expected).max()


def test_what_a_model_says_of_itself(tamp):
    model = compiled(example(tamp, "mnist_mlp"), vdevice="h200", precision="tf32")
    port = tamp_package().Port
    assert model.inputs == (port("input", "f32", (1, 1, 28, 28)),) and model.outputs == (port("output", "f32", (1, 10)),), model
    assert "__global__" in model.source and model.source == (model.folder / "mnist_mlp.cu").read_text()
    assert model.schedule["vdevice"]["name"] == "h200" and len(model.schedule["lanes"]) == 132 and model.schedule["precision"] == "tf32"
    assert repr(model) == "<tamp.Model mnist_mlp: 'input' f32[1,1,28,28] -> 'output' f32[1,10]; h200, tf32, on the stand-in for CUDA>"
    info = model.info
    assert (info.tamp, info.name, info.vdevice, info.precision) == (tamp_package().__version__, "mnist_mlp", "h200", "tf32"), info
    assert info.batch == 1 and info.inputs == model.inputs and info.outputs == model.outputs
    assert f"/*batch=*/1, /*structure=*/0x{info.structure}ull" in model.source
    page = model.page()
    assert page.startswith("<!doctype html>") and "mnist_mlp" in page
    shown = model._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and html.escape(page) in shown and "<script" not in shown


def test_the_batch_of_a_model(tamp):
    assert compiled(two_inputs()).info.batch == 2
    several = m.model([m.node("Relu", ["x"], ["y"]), m.node("Relu", ["z"], ["v"])], [m.value("x", [1, 4]), m.value("z", [2, 4])], [m.value("y", [1, 4])])
    assert compiled(several).info.batch is None


def test_models_from_memory_and_their_options(tamp):
    x = drawn(3, 4)
    model = compiled(product(), x)  # N is 3
    assert model.inputs[0].shape == (3, 4) and np.allclose(model(x), x @ np.full((4, 3), 2.0), atol=1e-5)
    other = compiled(product(columns=5), dims={"N": 2}, name="model")  # of the same name, in one process
    assert other.name == model.name and other(x[:2]).shape == (2, 5) and model(x).shape == (3, 3)
    assert compiled(m.relu(), batch=6, precision="fp32", name="six").outputs[0].shape == (6, 4)
    both = m.model([m.node("Add", ["x", "z"], ["y"])], [m.value("x", [1, 4]), m.value("z", [1, 4])])
    frozen = compiled(both, freeze={"z": np.full((1, 4), 10, np.float32)})
    assert [port.name for port in frozen.inputs] == ["x"] and np.array_equal(frozen(x[:1]), x[:1] + 10)
    refused(ValueError, ["dimension N is 3, elsewhere it is 2"], compiled,
            m.model([m.node("Relu", ["x"], ["y"]), m.node("Relu", ["z"], ["v"])], [m.value("x", ["N"]), m.value("z", ["N"])], [m.value("y", ["N"])]),
            drawn(2), drawn(3))
    tamp_error = tamp_package().CompileError
    refused(tamp_error, ["--dim N="], compiled, product())
    refused(tamp_error, ["precision 'fp7' is not known"], compiled, m.relu(), precision="fp7")
    refused(tamp_error, ["vDevice 'abacus' is not known"], compiled, m.relu(), vdevice="abacus")
    refused(TypeError, ["type int", "onnx.ModelProto"], compiled, 3)
    refused(FileNotFoundError, ["none.onnx: no such file"], compiled, tamp.folder / "none.onnx")


def test_lengths_of_run_time_come_from_the_shapes_of_arrays(tamp):
    nodes = [m.node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), m.node("MatMul", ["t", "z"], ["y"])]
    made = m.model(nodes, [m.value("x", ["N", "M", 4]), m.value("z", ["N", "M", 3])], [m.value("y", ["N", 4, 3])])
    model = compiled(made, dims={"N": "1:3", "M": "2:4,8"})
    length, axis = tamp_package().Length, tamp_package().Axis
    assert model.lengths == model.info.lengths == (length("M", 2, 8, (4, 8)), length("N", 1, 3, (3,))), model.lengths
    assert model.inputs[0].axes == (axis(0, "N"), axis(1, "M")) and model.inputs[0].shape == (3, 8, 4) and model.outputs[0].axes == (axis(0, "N"),)
    assert str(model.inputs[1]) == "'z' f32[N,M,3]" and model.inputs[1].shape_at({"N": 2, "M": 5}) == (2, 5, 3)
    for rows, columns in [(3, 8), (1, 2), (2, 4), (2, 5), (1, 7), (3, 2)]:
        x, z = drawn(rows, columns, 4), drawn(rows, columns, 3)
        y = model(x, z=z)
        assert y.shape == (rows, 4, 3) and np.allclose(y, x.transpose(0, 2, 1) @ z, atol=1e-5), (rows, columns)
    refused(ValueError, ["input 'z' f32[N,M,3]: dimension 1 is 6, allowed is 5, as 'x' has it (M 5)"], model, drawn(1, 5, 4), drawn(1, 6, 3))
    refused(ValueError, ["input 'x' f32[N,M,4]: dimension 1 is 9, allowed are 2 to 8 (M)"], model, drawn(1, 9, 4), drawn(1, 9, 3))
    refused(ValueError, ["dimension 0 is 0, allowed are 1 to 3 (N)"], model, drawn(0, 5, 4), drawn(0, 5, 3))
    refused(ValueError, ["input 'x' f32[N,M,4]: found shape [1,5,3]"], model, drawn(1, 5, 3), drawn(1, 5, 3))
    refused(ValueError, ["found shape [5,4]"], model, drawn(5, 4), drawn(1, 5, 3))
    model.save(tamp.folder / "saved")
    assert np.array_equal(tamp_package().load(tamp.folder / "saved")(x, z), y)
    batched = compiled(m.relu(), batch="1:4", name="batched")
    assert [each.name for each in batched.lengths] == ["batch"] and batched(drawn(3, 4)).shape == (3, 4)


def test_buckets_keep_their_words_apart(tamp):
    """Programs that take values as soon as they are there, and one that does not, run one after another in one arena."""
    a, b = drawn(128, 64), drawn(64, 8)
    nodes = [m.node("MatMul", ["x", "a"], ["h"], "first"), m.node("Relu", ["h"], ["r"]), m.node("MatMul", ["r", "b"], ["y"], "second")]
    made = m.model(nodes, [m.value("x", ["N", 128])], [m.value("y", ["N", 8])], [m.constant("a", a), m.constant("b", b)])
    model = compiled(made, vdevice="h200", precision="fp32", dims={"N": "1,2,40"})
    words = [sum(part["what"] == "words" for part in program["arena"]) for program in [*model.schedule["smaller"], model.schedule]]
    assert words[0] > 0 and words[1] > 0, words
    for rows in [1, 40, 1, 2, 1, 39, 2, 2, 1, 3, 1]:
        x = drawn(rows, 128)
        assert np.allclose(model(x), np.maximum(x @ a, 0) @ b, rtol=1e-4, atol=1e-3), rows


def test_what_is_not_supported_is_data(tamp):
    nodes = [m.node("Frobnicate", ["x"], ["a"], "first"), m.node("Relu", ["x"], ["r"]), m.node("Untangle", ["r"], ["y"], "last")]
    error = refused(tamp_package().CompileError, ["'first' (Frobnicate", "'last' (Untangle"], compiled, m.model(nodes))
    assert [(one["node"], one["operator"]) for one in error.unsupported] == [("first", "Frobnicate"), ("last", "Untangle")], error.unsupported
    assert all(one["reason"].startswith("the operator is not supported") for one in error.unsupported), error.unsupported
    wrong = m.relu()
    wrong.graph.node[0].input[0] = "nobody"
    assert refused(tamp_package().CompileError, ["nobody"], compiled, wrong).unsupported == []


# --- retrained weights -------------------------------------------------------------------------------------------------

def test_weights_of_another_training(tamp):
    x = drawn(2, 4)
    first = compiled(product(weight=2), dims={"N": 2})
    built = (first.folder / "library.so").stat()
    other = first.with_weights(product(weight=5))
    assert np.allclose(first(x), x @ np.full((4, 3), 2.0), atol=1e-5) and np.allclose(other(x), x @ np.full((4, 3), 5.0), atol=1e-5)
    assert other.info == first.info and other.folder != first.folder and other.schedule["weights_hash"] != first.schedule["weights_hash"]
    assert (other.folder / "library.so").stat().st_mtime_ns == built.st_mtime_ns  # nothing was built
    assert first.with_weights(product(weight=5)).folder == other.folder
    assert np.allclose(other.with_weights(product(weight=2))(x), first(x), atol=1e-5)
    path = tamp.folder / "retrained.onnx"
    path.write_bytes(product(weight=7).SerializeToString())
    assert np.allclose(first.with_weights(path)(x), x @ np.full((4, 3), 7.0), atol=1e-4)
    tamp_error = tamp_package().CompileError
    refused(tamp_error, ["does not fit the model 'model': output 0 is 'y' f32[2,5], the program has 'y' f32[2,3]"], first.with_weights, product(columns=5))
    refused(tamp_error, ["--dim N: no input has a dimension of that name"], first.with_weights, m.relu())
    refused(FileNotFoundError, ["none.onnx: no such file"], first.with_weights, tamp.folder / "none.onnx")
    refused(TypeError, ["type int"], first.with_weights, 3)


def test_other_weights_of_a_frozen_model_and_of_a_vdevice_of_a_file(tamp):
    x = drawn(1, 4)
    both = m.model([m.node("Add", ["x", "z"], ["y"])], [m.value("x", [1, 4]), m.value("z", [1, 4])])
    vdevice = json.loads((harness.ROOT / "compiler/ir/vdevices/a100.json").read_text())
    del vdevice["gpus"]
    path = tamp.folder / "mine.json"
    path.write_text(json.dumps({**vdevice, "name": "mine"}))
    first = compiled(both, freeze={"z": np.array([[1, 2, 3, 4]], np.float32)}, vdevice=path, precision="fp32")
    path.unlink()  # the cache has what it needs of it
    refused(tamp_package().CompileError, ["the model 'model' was compiled with --freeze z="], first.with_weights, both)
    other = first.with_weights(both, freeze={"z": np.array([[5, 6, 7, 8]], np.float32)})
    assert other.info.vdevice == "mine" and np.array_equal(other(x), x + np.array([[5, 6, 7, 8]], np.float32))


# --- tokens ------------------------------------------------------------------------------------------------------------


def test_a_model_makes_tokens(tamp):
    from generate_test import decoder, recurrent
    model = compiled(decoder(), generate={"stops": [99 % 37]})
    text = model.generate([3, 1, 4], 12, stops=[])
    seen = []
    assert len(text) == 12 and model.generate([3, 1, 4], 12, stops=[], on_token=seen.append) == text == seen
    assert model.generate([3, 1, 4], 12, stops=[], on_token=lambda token: token == text[2]) == text[:text.index(text[2]) + 1]
    drawn_text = model.generate([3, 1, 4], 12, temperature=2, top_k=30, top_p=0.95, repetition_penalty=1.2, seed=5, stops=())
    assert drawn_text == model.generate([3, 1, 4], 12, temperature=2, top_k=30, top_p=0.95, repetition_penalty=1.2, seed=5, stops=()) != text
    assert model.generate([3, 1, 4], 5, stops=[]) == text[:5] and model.generate(text[4:5], 7, stops=[], position=7) == text[5:]

    def fails(token):
        raise KeyError("enough")
    refused(KeyError, ["enough"], model.generate, [3], on_token=fails)
    refused(ValueError, ["need 29 places, the program has 24"], model.generate, [3, 1, 4], 27)
    refused(ValueError, ["inputs are ['x'], expected []"], model.generate, [3], inputs={"x": 1})
    refused(ValueError, ["compile it with generate=True"], compiled(recurrent()).generate, [3])
    assert len(model.generate([3, 1, 4], 12, stops=[])) == 12  # and is as before
    rows = compiled(recurrent(rows="seq"), generate=True, dims={"seq": "1,7"})
    first = [rows.generate([token], 1, position=token) for token in range(20)]
    assert rows.generate(range(20), 1) == first[19] and rows.generate(range(9), 1) == first[8]


TRANSFORMERS = """
class AutoTokenizer:  # two tokens make a character
    eos_token_id = None
    from_pretrained = staticmethod(lambda source: AutoTokenizer())
    input_ids = property(lambda self: [ord(c) % 37 for c in self.text])
    def __call__(self, text):
        self.text = text
        return self
    def decode(self, tokens):
        return "".join(chr(256 + a * 37 + b) for a, b in zip(tokens[::2], tokens[1::2])) + "\ufffd" * (len(tokens) % 2)
    def apply_chat_template(self, messages, add_generation_prompt, return_dict):
        return [1, *self(messages[0]["content"]).input_ids, 2]
class GenerationConfig:
    from_pretrained = staticmethod(lambda source: AutoTokenizer())
"""


def test_the_example_of_a_checkpoint_writes(tamp):
    from generate_test import decoder
    model = compiled(decoder(), generate={"stops": [99 % 37]})
    model.save(tamp.folder / "step")
    (tamp.folder / "transformers.py").write_text(TRANSFORMERS)
    write = [sys.executable, harness.ROOT / "examples" / "decoder" / "write.py", "step", "checkpoint", "cat", "--device", "cpu", "--max-tokens", "5", "--temperature", "0"]
    environment = {**os.environ, "PYTHONPATH": str(tamp.folder), "PYTHONIOENCODING": "utf-8"}
    for options, prompt, first in [([], [ord(c) % 37 for c in "cat"], "cat"), (["--chat"], [1, *(ord(c) % 37 for c in "cat"), 2], "")]:
        a, b, c, d, _ = model.generate(prompt, 5, stops=[])
        text = run(*write, *options, cwd=tamp.folder, env=environment, encoding="utf-8")
        assert text.startswith(f"{first}{chr(256 + a * 37 + b)}{chr(256 + c * 37 + d)}\ufffd\n\n{len(prompt)} and 5 tokens in "), (text, a, b, c, d)


# --- the cache ---------------------------------------------------------------------------------------------------------

def with_external_weights(folder, weight):
    model = m.model([m.node("Add", ["x", "w"], ["y"])], initializers=[m.external("w", [1, 4], "some: weights.bin")])
    (folder / "-added $1 #2.onnx").write_bytes(model.SerializeToString())
    np.full(4, weight, np.float32).tofile(folder / "some: weights.bin")
    return folder / "-added $1 #2.onnx"


def test_what_was_compiled_is_found_again_and_what_changed_is_not(tamp):
    x = drawn(1, 4)
    path = with_external_weights(tamp.folder, 2)
    first = compiled(path)
    made = (first.folder / "library.so").stat().st_mtime_ns
    again = compiled(str(path))
    assert again.folder == first.folder and (again.folder / "library.so").stat().st_mtime_ns == made
    assert compiled(path, vdevice="h200", precision="fp32").folder != first.folder and compiled(path, name="other").folder != first.folder
    with_external_weights(tamp.folder, 5)  # the model itself is as it was
    changed = compiled(path)
    assert changed.folder != first.folder and np.array_equal(changed(x), x + 5) and np.array_equal(first(x), x + 2)
    with_external_weights(tamp.folder, 2)
    assert compiled(path).folder == first.folder
    (tamp.folder / "some: weights.bin").unlink()
    refused(tamp_package().CompileError, ["some: weights.bin"], compiled, path)


def environment_with(tamp, lines):
    return {**os.environ, **harness.with_gxx(tamp, lines), "TAMP_CACHE_DIR": str(tamp.folder / "cache")}


SCRIPT = """import numpy as np, tamp
model = tamp.compile("relu.onnx", device="cpu")
assert model(np.full((1, 4), -1, np.float32)).sum() == 0
print(model.folder)
"""


def test_of_several_processes_one_compiles(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    count = tamp.folder / "builds"
    environment = environment_with(tamp, f"open({str(count)!r}, 'a').write('1')")
    started = [subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=tamp.folder, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    folders = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0] and len(set(folders)) == 1, folders
    assert count.read_text() == "1"
    assert sorted(path.name for path in (tamp.folder / "cache").iterdir()) == ["external", "locks", "models"]
    run(sys.executable, "-c", "import tamp; tamp.clear_cache()", env=environment)
    run(sys.executable, "-c", SCRIPT, cwd=tamp.folder, env=environment)
    assert count.read_text() == "11"


def test_a_cache_that_others_can_write_is_not_loaded(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    cache, environment = tamp.folder / "cache", {**os.environ, "TAMP_CACHE_DIR": str(tamp.folder / "cache")}
    script = f"import os; os.umask(0)\n{SCRIPT}"
    folder = pathlib.Path(run(sys.executable, "-c", script, cwd=tamp.folder, env=environment).strip())
    for path in [cache, *cache.rglob("*")]:
        assert path.stat().st_mode & 0o022 == 0 or path.name.endswith(".lock"), f"{path} can be written by others"
    assert cache.stat().st_mode & 0o777 == 0o700
    assert run(sys.executable, "-c", script, cwd=tamp.folder, env=environment).strip() == str(folder)
    attempt = script.replace("model =", "\ntry: model =").replace("\nassert", "\nexcept tamp.CompileError as e: print(e); raise SystemExit\nassert")

    def expect(says, code=attempt):
        found = run(sys.executable, "-c", code, cwd=tamp.folder, env=environment)
        assert says in found and "what is in the cache of compiled models is run" in found, found

    for path in [cache, cache / "models", folder, folder / "library.so", cache / "external"]:
        mode = path.stat().st_mode
        for more in (0o020, 0o002):
            path.chmod(mode | more)
            expect(f"{path}: can be written by others (its mode is {mode & 0o777 | more:04o})")
        path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(folder / "library.so", 12345, -1)
        expect(f"{folder / 'library.so'}: belongs to user 12345")
        os.chown(folder / "library.so", 0, -1)
    else:
        expect(f"belongs to user {os.geteuid()}", attempt.replace("import os", "import os; os.geteuid = lambda: 12345", 1))
    folder.rename(cache / "elsewhere")
    folder.symlink_to(cache / "elsewhere")
    assert f"{folder}: a link" in run(sys.executable, "-c", attempt, cwd=tamp.folder, env=environment)


def test_a_failed_build_leaves_nothing(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    environment = environment_with(tamp, "sys.exit('g++: no space is left')")
    code = SCRIPT.replace("model =", "\ntry: model =").replace("\nassert", '\nexcept tamp.CompileError as e: print(e); raise SystemExit\nassert')
    assert "cannot build the generated source: g++: no space is left" in run(sys.executable, "-c", code, cwd=tamp.folder, env=environment)
    assert sorted(path.name for path in (tamp.folder / "cache").iterdir()) == ["locks"]
    refused_here = run(sys.executable, "-c", code, cwd=tamp.folder, env={**environment, "PATH": ""})
    assert "g++ 11 or newer and libboost-context-dev" in refused_here, refused_here


def test_damaged_weights_in_the_cache(tamp):
    path = tamp.folder / "damaged.onnx"
    path.write_bytes(product(weight=3).SerializeToString())
    weights = compiled(path, dims={"N": 1}).folder / "damaged.weights"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    error = refused(tamp_package().RunError, ["damaged.weights: damaged, the checksum"], compiled, path, dims={"N": 1})
    assert isinstance(error, RuntimeError) and isinstance(error, tamp_package().Error)


KEEP = """import sys, tamp._cache as cache
def make(folder, work):
    (folder / "data").write_bytes(bytes(1000))
for name in sys.argv[1:]:
    cache.keep_once(name, make)
"""


def test_the_cache_keeps_what_was_used_last(tamp):
    cache = tamp.folder / "cache"
    environment = {**os.environ, "TAMP_CACHE_DIR": str(cache), "TAMP_CACHE_MAX_BYTES": "2500"}
    keep = lambda *names: run(sys.executable, "-c", KEEP, *names, env=environment)
    is_there = lambda name: (cache / "models" / tamp_package()._cache.hash_of(name)[:40]).is_dir()
    keep("first", "second", "first")
    old = cache / "work-old"  # of a process that was killed
    old.mkdir()
    os.utime(old, (0, 0))
    keep("third")
    assert is_there("first") and is_there("third") and not is_there("second")
    os.link(next(cache.glob("models/*/data")), cache / "models" / tamp_package()._cache.hash_of("first")[:40] / "link")  # is no more data
    environment["TAMP_CACHE_MAX_BYTES"] = "1K"
    started = [subprocess.Popen([sys.executable, "-c", KEEP, *"abcdefgh" * 5], env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    keep("last")
    assert is_there("last") and len(list((cache / "models").iterdir())) == 1 and not list(cache.glob("work-*"))
    for limit, expected in [("much", "TAMP_CACHE_MAX_BYTES is 'much', expected a number of bytes"), ("3M", "limit 3145728"), ("", "limit 21474836480")]:
        code = "import tamp\nprint('limit', tamp.cache_limit())"
        done = subprocess.run([sys.executable, "-c", code], env={**environment, "TAMP_CACHE_MAX_BYTES": limit}, capture_output=True, text=True)
        assert expected in done.stdout + done.stderr, done


def test_what_another_process_removed_is_made_again(tamp):
    made = []

    def find():
        made.append(tamp.folder / f"{len(made)}")
        if len(made) == 3:
            made[-1].mkdir()
        return made[-1]

    def open_it(folder):
        return list(folder.iterdir())

    opened = tamp_package()._library.opened
    assert opened(find, open_it) == [] and len(made) == 3
    refused(FileNotFoundError, ["no_file"], opened, lambda: tamp.folder, lambda folder: (folder / "no_file").read_text())


# --- folders -----------------------------------------------------------------------------------------------------------

LOAD = """import numpy as np, sys, tamp
model = tamp.load(sys.argv[1], **dict(word.split("=") for word in sys.argv[2:]))
print(model.info.name, model.device, *model(np.full((1, 4), -1, np.float32), np.full((1, 4), 3, np.float32)).ravel())
"""


def two_added(tamp):
    (tamp.folder / "added.onnx").write_bytes(m.model([m.node("Add", ["x", "z"], ["y"])], [m.value("x", [1, 4]), m.value("z", [1, 4])]).SerializeToString())


def test_a_folder_is_built_once_and_loaded_without_a_compiler(tamp):
    two_added(tamp)
    tamp("compile", "added.onnx", "-o", "added", "--vdevice", "cpu")
    count = tamp.folder / "builds"
    environment = environment_with(tamp, f"open({str(count)!r}, 'a').write('1')")
    without = {**environment, "PATH": ""}
    load = lambda *words, env=environment: run(sys.executable, "-c", LOAD, *words, cwd=tamp.folder, env=env)
    before = sorted(path.name for path in (tamp.folder / "added").iterdir())
    says = subprocess.run([sys.executable, "-c", LOAD, "added"], cwd=tamp.folder, env=without, capture_output=True, text=True).stderr
    assert "g++ 11 or newer and libboost-context-dev, which is not found" in says and "tamp.build(folder)" in says, says
    assert load("added") == load("added") == "added cpu 2.0 2.0 2.0 2.0\n" and count.read_text() == "1"
    assert sorted(path.name for path in (tamp.folder / "added").iterdir()) == before  # it is the cache's
    run(sys.executable, "-c", "import tamp; print(tamp.build('added'))", cwd=tamp.folder, env=environment)
    (tamp.folder / "added").rename(tamp.folder / "moved")
    without["TAMP_CACHE_DIR"] = str(tamp.folder / "empty")
    assert load("moved", env=without) == load("moved/library.so", env=without) == "added cpu 2.0 2.0 2.0 2.0\n" and not (tamp.folder / "empty").exists()
    run(sys.executable, "-c", "import tamp; tamp.load('moved').save('saved')", cwd=tamp.folder, env=without)
    assert sorted(path.name for path in (tamp.folder / "saved").iterdir()) == sorted([*before, "library.so"])
    assert load("saved", env=without) == "added cpu 2.0 2.0 2.0 2.0\n" and count.read_text() == "11"
    assert tamp("run", "saved", "--device", "cpu").returncode == 0


def test_what_load_refuses_and_other_weights_of_a_loaded_model(tamp):
    package, x = tamp_package(), drawn(2, 4)
    path = tamp.folder / "product.onnx"
    path.write_bytes(product(weight=2).SerializeToString())
    compiled(path, dims={"N": 2}).save(tamp.folder / "saved")
    loaded = package.load(tamp.folder / "saved")
    assert loaded.info == compiled(path, dims={"N": 2}).info and loaded.schedule["name"] == "product" and "__global__" in loaded.source
    assert loaded.page().startswith("<!doctype html>") and not (tamp.folder / "saved" / "page.html").exists()
    assert np.allclose(loaded.with_weights(product(weight=5))(x), x @ np.full((4, 3), 5.0), atol=1e-4)
    assert np.allclose(loaded(x), x @ np.full((4, 3), 2.0), atol=1e-5)
    refused(FileExistsError, ["saved: is not empty"], loaded.save, tamp.folder / "saved")
    tamp("compile", "product.onnx", "-o", "saved", "--dim", "N=3", "--vdevice", "cpu")  # the library stays
    refused(package.CompileError, ["library.so: was built from another program than", "tamp.build(folder)"], package.load, tamp.folder / "saved")
    (tamp.folder / "libproduct.a").write_text("")
    (tamp.folder / "other.so").write_text("")
    (tamp.folder / "empty").mkdir()
    refused(FileNotFoundError, ["none: no such folder or library"], package.load, tamp.folder / "none")
    refused(ValueError, ["tamp.compile takes models"], package.load, path)
    refused(ValueError, ["a static library is for programs in C and C++"], package.load, tamp.folder / "libproduct.a")
    refused(package.RunError, ["other.so: is no whole library"], package.load, tamp.folder / "other.so")
    whole = (tamp.folder / "saved" / "library.so").read_bytes()
    shutil.copytree(tamp.folder / "saved", tamp.folder / "cut")  # the library in "saved" is loaded: this process runs what lies there
    for size in (10, 5000, len(whole) - 1):
        (tamp.folder / "cut" / "library.so").write_bytes(whole[:size])
        refused(package.RunError, ["library.so: is no whole library", "tamp.build(folder)"], package.load, tamp.folder / "cut")
    refused(package.CompileError, ["holds no NAME.rprogram.json"], package.load, tamp.folder / "empty")
    refused(package.CompileError, ["holds no NAME.rprogram.json"], package.build, tamp.folder / "empty")
    refused(package.CompileError, ["was compiled for the stand-in"], package.build, tamp.folder / "saved", "cuda")


def test_a_gpu_that_is_not_there(tamp):
    """Without a GPU or nvcc a model that names neither runs on the stand-in, and a warning says so; one for a GPU is an error."""
    two_added(tamp)
    tamp("compile", "added.onnx", "-o", "added", "--vdevice", "h200", "--precision", "fp32")
    environment = {**os.environ, "TAMP_CACHE_DIR": str(tamp.folder / "cache")}
    python = lambda code: subprocess.run([sys.executable, "-c", f"import tamp\n{code}"], cwd=tamp.folder, env=environment, capture_output=True, text=True)
    done = python("tamp.compile('added.onnx')")
    assert done.returncode == 0 and "RuntimeWarning: " in done.stderr and "found: the model runs on the CPU, on a stand-in for CUDA" in done.stderr, done.stderr
    assert "<string>:2: RuntimeWarning" in done.stderr, done.stderr
    for quiet in ("device='cpu'", "vdevice='cpu'"):
        done = python(f"tamp.compile('added.onnx', {quiet})")
        assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "CompileError: no" in python("tamp.compile('added.onnx', vdevice='h200')").stderr
    said = python("tamp.load('added')").stderr
    assert "was compiled for h200, and there is no GPU; device=\"cpu\" runs it" in said, said
    assert run(sys.executable, "-c", LOAD, "added", "device=cpu", cwd=tamp.folder, env=environment) == "added cpu 2.0 2.0 2.0 2.0\n"


def test_progress(tamp):
    """With `verbose` what is done and what the compiler says; on a terminal one line."""
    import pty
    two_added(tamp)
    environment = environment_with(tamp, "import time; time.sleep(0.6)")
    code = "import sys, tamp\ntamp.compile('added.onnx', device='cpu', verbose=eval(sys.argv[1]), name=sys.argv[2])"
    words = lambda *more: [sys.executable, "-c", code, *more]
    done = subprocess.run(words("True", "told"), cwd=tamp.folder, env=environment, capture_output=True, text=True)
    for says in ["tamp: compiles added.onnx: ", "info: read added.onnx", "-DTAMP_CUDA_ON_CPU", "tamp: builds told with g++: "]:
        assert says in done.stderr, done.stderr
    assert done.stdout == "" and "is in the cache" in subprocess.run(words("True", "told"), cwd=tamp.folder, env=environment, capture_output=True, text=True).stderr
    controller, terminal = pty.openpty()
    shown = subprocess.Popen(words("None", "shown"), cwd=tamp.folder, env=environment, stderr=terminal)
    os.close(terminal)
    text = b""
    while shown.poll() is None or select.select([controller], [], [], 0)[0]:
        try:
            text += os.read(controller, 4096)
        except OSError:  # its other end is closed
            break
    assert shown.wait() == 0 and b"\r\x1b[Ktamp: builds shown with g++: " in text and text.endswith(b"\r\x1b[K"), text


def test_what_types_allow_is_what_the_compiler_takes(tamp):
    import typing
    hints = typing.get_type_hints(tamp_package().compile)
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    for option in ["precision", "activations", "execution", "policy"]:
        literal = typing.get_args(hints[option])[0]
        known = tamp("compile", "relu.onnx", "-o", "out", f"--{option}", "nothing", code=1).stderr
        assert all(value in known for value in typing.get_args(literal)), (option, known)


# --- running -----------------------------------------------------------------------------------------------------------

def two_inputs():
    nodes = [m.node("Add", ["x", "z"], ["sum"]), m.node("Cast", ["i"], ["half"], to=onnx.TensorProto.FLOAT16)]
    return m.model(nodes, [m.value("x", [2, 3]), m.value("z", [2, 3]), m.value("i", [2], onnx.TensorProto.INT64)],
                   [m.value("sum", [2, 3]), m.value("half", [2], onnx.TensorProto.FLOAT16)])


def test_inputs_by_position_and_name_and_several_outputs(tamp):
    model = compiled(two_inputs())
    x, z, i = drawn(2, 3), np.ones((2, 3), np.float32), np.array([1, -2])
    for total, half in [model(x, z, i), model(x, i=i, z=z), model(i=i, x=x, z=z)]:
        assert np.array_equal(total, x + z) and half.dtype == np.float16 and np.array_equal(half, i)
    read_only, apart = x.copy(), np.zeros((4, 6), np.float32)[::2, ::2]
    read_only.flags.writeable = False
    assert np.array_equal(model(read_only, apart, i)[0], x)
    odd = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)  # aligned to nothing
    assert np.array_equal(model(x, odd, i)[0], x) and np.array_equal(model(x.astype(">f4"), odd, i)[0], x)


def test_wrong_inputs(tamp):
    model = compiled(two_inputs())
    x, i = drawn(2, 3), np.array([1, 2])
    for kind, says, args, named in [
        (TypeError, ["input 'z' f32[2,3]: found elements of type f64"], (x, np.zeros((2, 3)), i), {}),
        (TypeError, ["input 'i' i64[2]: found elements of type i32"], (x, x, i.astype(np.int32)), {}),
        (ValueError, ["input 'z' f32[2,3]: found shape [3,2]"], (x, x.T, i), {}),
        (ValueError, ["input 'x' f32[2,3]: found shape []"], (np.float32(1), x, i), {}),
        (TypeError, ["input 'x' f32[2,3]: found an object of type list, expected a numpy array"], ([1.0], x, i), {}),
        (ValueError, ["input 'z' f32[2,3], 'i' i64[2] is missing"], (x,), {}),
        (ValueError, ["4 inputs, expected 3: 'x' f32[2,3], 'z'"], (x, x, i, i), {}),
        (ValueError, ["no input is called 'w'; expected: 'x'"], (x, x, i), {"w": x}),
        (ValueError, ["input 'x' is given twice"], (x, x, i), {"x": x}),
    ]:
        refused(kind, says, model, *args, **named)


class Foreign:
    """An array of a library that has nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_there_and_back(tamp):
    model = compiled(m.relu())
    x = drawn(1, 4)
    result = model(Foreign(x))
    assert not isinstance(result, np.ndarray) and result.__dlpack_device__() == (1, 0)
    again = model(result)  # what it gives it takes
    del model
    back = np.from_dlpack(again)
    assert np.array_equal(back, np.maximum(x, 0)) and back.ctypes.data % 16 == 0
    model = compiled(m.relu())
    refused(TypeError, ["found elements of type f64"], model, Foreign(x.astype(np.float64)))
    refused(ValueError, ["found shape [4]"], model, Foreign(x[0]))
    wide = compiled(m.relu(), batch=2)
    refused(ValueError, ["not dense and row-major"], wide, Foreign(np.asfortranarray(drawn(2, 4))))


def test_calls_from_several_threads(tamp):
    model, x = compiled(product(), dims={"N": 64}), drawn(64, 4)
    found = [None] * 4

    def call(i):
        found[i] = model(x + np.float32(i))

    threads = [threading.Thread(target=call, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.allclose(found[i], (x + i) @ np.full((4, 3), 2.0), atol=1e-4) for i in range(4))


def test_the_command_is_installed_too(tamp):
    command = pathlib.Path(sys.executable).with_name("tamp")
    assert run(command, "--version") == tamp("--version").stdout == f"tamp {tamp_package().__version__}\n"
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    assert "check" in run(command, "run", "relu.onnx", "--check", "--device", "cpu", cwd=tamp.folder)


# --- torch, where it is ------------------------------------------------------------------------------------------------

def one_at_a_time(test, lock=threading.Lock()):
    """torch's exporter and compiler are not for several threads."""
    @functools.wraps(test)
    def alone(tamp):
        with lock:
            test(tamp)
    return alone


def network(torch):
    nn = torch.nn
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(), nn.Flatten(), nn.Linear(2048, 10))
    layers[1].running_mean.uniform_(-1, 1)
    return layers


@one_at_a_time
def test_torch_modules_and_tensors(tamp):
    import torch
    layers, x = network(torch), torch.randn(2, 3, 16, 16)
    model = compiled(layers, x)
    assert all(part.training for part in layers.modules())  # as they were
    expected = layers.eval()(x).detach()
    y = model(x.requires_grad_())
    assert isinstance(y, torch.Tensor) and not y.requires_grad and torch.allclose(y, expected, atol=1e-4)
    assert isinstance(model(x.detach().numpy()), np.ndarray)
    assert torch.allclose(model(x.detach().permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)), expected, atol=1e-4)
    bf16 = compiled(m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [4], onnx.TensorProto.BFLOAT16)], [m.value("y", [4], onnx.TensorProto.BFLOAT16)]))
    assert bf16(torch.tensor([1, -1, 2, -2], dtype=torch.bfloat16)).tolist() == [1, 0, 2, 0]
    refused(TypeError, ["exported with inputs"], compiled, layers)

    class Unknown(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    error = refused(tamp_package().CompileError, ["_linalg_svd", "torch.onnx.export"], compiled, Unknown(), torch.randn(3, 3))
    assert len(error.unsupported) == 1 and "svd" in error.unsupported[0]["operator"], error.unsupported


def with_warnings(torch, function, *inputs, **options):
    """What torch.compile's function gives when it is called twice, and what tamp warns of."""
    import warnings
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        torch._dynamo.reset()
        fast = torch.compile(function, backend="tamp", options={"device": "cpu", **options})
        results = [fast(*inputs), fast(*inputs)]
    return results, [str(one.message) for one in caught if "tamp" in str(one.message)], fast


@one_at_a_time
def test_torch_compile(tamp):
    import torch
    layers, x = network(torch).eval(), torch.randn(2, 3, 16, 16)
    expected = layers(x).detach()
    results, warned, fast = with_warnings(torch, layers, x, precision="fp32")
    assert warned == [] and all(torch.allclose(y, expected, atol=1e-4) for y in results), warned
    with torch.no_grad():
        layers[5].bias.add_(1)  # the compiled model has the old one
        assert torch.allclose(fast(x), expected + 1, atol=1e-4)
    for function, inputs, names in [
        (lambda x: torch.linalg.svdvals(x), [torch.randn(3, 3)], "node '_linalg_svd'"),
        (lambda x: torch.linalg.det(x), [torch.randn(3, 3)], "(Det)"),
    ]:
        results, warned, _ = with_warnings(torch, function, *inputs)
        assert len(warned) == 1 and names in warned[0], warned
        assert torch.allclose(results[0], function(*inputs)) and torch.allclose(results[1], function(*inputs))
    for function, inputs in [(lambda x, y: y.copy_(x), [torch.randn(3), torch.randn(3)]), (network(torch), [x])]:  # this one is in training mode
        _, warned, _ = with_warnings(torch, function, *inputs)
        assert len(warned) == 1 and "in place" in warned[0], warned


# --- a GPU, where one is -----------------------------------------------------------------------------------------------

@one_at_a_time
def test_torch_on_a_gpu(tamp):
    import torch
    layers = network(torch).eval().cuda()
    x = torch.randn(2, 3, 16, 16, device="cuda")
    model = tamp_package().compile(layers, x, precision="fp32")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    expected = layers(x).detach()
    y = model(x)
    assert y.is_cuda and torch.allclose(y, expected, atol=1e-3)
    assert np.allclose(model(x.cpu().numpy()), expected.cpu().numpy(), atol=1e-3) and not model(x.cpu()).is_cuda
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        z = torch.zeros_like(x)
        torch.cuda._sleep(100_000_000)
        z += x  # behind the sleep, as the model must be
        late = model(z)
    assert torch.allclose(model(x), expected, atol=1e-3)  # behind that one, in another stream
    torch.cuda.synchronize()
    assert torch.allclose(late, expected, atol=1e-3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(z)
    z.copy_(x * 2)
    graph.replay()
    assert torch.allclose(captured, layers(x * 2), atol=1e-3)
    model.check()
    with torch.no_grad():
        torch._dynamo.reset()
        assert torch.allclose(torch.compile(layers, backend="tamp", options={"precision": "fp32"})(x), expected, atol=1e-3)


def main():
    if INSIDE not in os.environ:
        with tempfile.TemporaryDirectory(prefix="tamp-python-") as folder:
            return go_on(pathlib.Path(folder))
    tests = harness.tests_of(globals())
    try:
        import torch
        has_cuda = torch.cuda.is_available()
    except ImportError:
        print("no torch: what needs it is left out")
        tests = [test for test in tests if "torch" not in test.__name__]
        has_cuda = False
    import tamp
    if tamp._program.machine("auto").device == "cuda":  # left out, not passed
        tests.remove(test_a_gpu_that_is_not_there)
    if not has_cuda and test_torch_on_a_gpu in tests:
        tests.remove(test_torch_on_a_gpu)
    return harness.main(tests)


if __name__ == "__main__":
    sys.exit(main())

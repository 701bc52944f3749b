#!/usr/bin/env python3
"""On a GPU: the example models, right, repeatable, replayed as a CUDA graph, and as two instances at once; the recurrent networks of
recurrent_test.py, the transformers and decoders of transformers_test.py, those of decoders_test.py, and the quantised ones of quantised_models.py.

    gpu_test.py TAMP [WORD...]
"""
import json
import subprocess
import sys

import numpy as np

import decoders
import decoders_test
import generate_test
import harness
import lengths_test
import loops_test
import models as m
import models_test
import bytes_rows_test as rows_in_bytes
import bytes_test as in_bytes
import quantised_models as quantised
import races_test
import recurrent_test
import transformers_test


def example(tamp, name):
    subprocess.run([sys.executable, harness.ROOT / "examples" / "make_weights.py", harness.ROOT / "examples" / "models" / f"{name}.onnx", "--into", tamp.folder],
                   check=True, stdout=subprocess.DEVNULL)
    return tamp.folder / f"{name}.onnx"


def gpu_test(name, precision, options):
    def test(tamp):
        done = tamp("run", example(tamp, name), "--device", "cuda", "--precision", precision, "--check", "--repeat", 200, *options)
        assert "of 200 runs, all bitwise equal" in done.stdout, done.stdout
    test.__name__ = "_".join(["test", name, precision, *(option.strip("-") for option in options)])
    return test


TESTS = [gpu_test(name, precision, options)
         for name in ("mnist_mlp", "squeezenet1_0", "resnet18") for precision in ("fp32", "tf32")
         for options in ((), ("--graph",), ("--instances", "2"), ("--policy", "sequential"), ("--execution", "graph"), ("--execution", "graph", "--graph"))]


def smooth_test(precision):
    def test(tamp):
        path = tamp.folder / "smooth.onnx"
        path.write_bytes(models_test.smooth().SerializeToString())
        models_test.check_model(tamp, path, precision=precision)
    test.__name__ = f"test_smooth_activations_{precision}"
    return test


TESTS += [smooth_test(precision) for precision in ("tf32", "fp16", "bf16")]


def bytes_test(name, make, vdevice):
    """Equal to the bit to integers that numpy has computed."""
    def test(tamp):
        chain = make()
        model, right = chain.finished()
        (tamp.folder / "net.onnx").write_bytes(model.SerializeToString())
        np.save(tamp.folder / "x.npy", chain.x)
        done = tamp("run", "net.onnx", "--device", "cuda", "--input", "x=x.npy", "--output-dir", "out", "--repeat", 50, "--vdevice", vdevice(tamp))
        assert "of 50 runs, all bitwise equal" in done.stdout, done.stdout
        found, = (np.load(path) for path in (tamp.folder / "out").glob("*.npy"))
        assert found.shape == right.shape and (found == right).all(), f"{(found != right).sum()} of {right.size} differ"
    test.__name__ = f"test_bytes_{name}"
    return test


def quantised_test(network, way, precision, **sizes):
    """--check counts in steps of the output's quantisation."""
    def test(tamp):
        net, floats = getattr(quantised, network)(**sizes)
        (tamp.folder / "net.onnx").write_bytes(quantised.quantised(net, floats, way).SerializeToString())
        done = tamp("run", "net.onnx", "--device", "cuda", "--precision", precision, "--check", "--repeat", 50)
        assert "of 50 runs, all bitwise equal" in done.stdout, done.stdout
    test.__name__ = "_".join(["test_quantised", network, *map(str, sizes.values()), *way.split(), precision])
    return test


TESTS += [quantised_test("blocks", "qdq s8 s8 channel", precision) for precision in ("fp32", "tf32", "fp16", "bf16")]
TESTS += [quantised_test("blocks", "qdq s8 s8", precision, batch=16) for precision in ("tf32", "fp16")]
TESTS += [quantised_test(network, "qdq u8 s8 channel", "fp16") for network in ("classifier", "segmenter", "perceptron", "transformer")]
TESTS += [quantised_test(network, "dynamic s8", precision) for network in ("blocks", "transformer", "perceptron") for precision in ("tf32", "fp16")]
TESTS += [quantised_test("blocks", "qdq u8 s8 channel", "fp16", batch=48)]
TESTS += [bytes_test(*case[:2], lambda tamp: in_bytes.few_sms(tamp.folder)) for case in in_bytes.CASES]
TESTS += [bytes_test(*case[:2], lambda tamp: "h200") for case in in_bytes.MANY_CHANNELS]
TESTS += [bytes_test(*case[:2], lambda tamp: in_bytes.few_sms(tamp.folder)) for case in rows_in_bytes.INTEGERS]


def rows_test(name, make, way):
    """Normalisations, chains and attention in bytes; --check counts in steps of the output's quantisation."""
    def test(tamp):
        (tamp.folder / "net.onnx").write_bytes(rows_in_bytes.quantised(make, way)[0].SerializeToString())
        done = tamp("run", "net.onnx", "--device", "cuda", "--precision", "fp16", "--check", "--repeat", 50)
        assert "of 50 runs, all bitwise equal" in done.stdout, done.stdout
    test.__name__ = f"test_rows_in_bytes_{name}"
    return test


TESTS += [rows_test(*case[:3]) for case in rows_in_bytes.ROWS]
TESTS += [quantised_test("excited", way, "fp16") for way in ("qdq s8 s8 channel", "dynamic s8")]


def few_bits_test(precision, bits, hidden, layers, rkernels, **form):
    """A token's products by weights of few bits, small ones, too."""
    def test(tamp):
        (tamp.folder / "net.onnx").write_bytes(quantised.in_few_bits(transformers_test.one_token(hidden, layers), bits, **form).SerializeToString())
        done = tamp("run", "net.onnx", "--device", "cuda", "--vdevice", races_test.slow_memory(tamp), "--precision", precision, "--check", "--repeat", 50, "--keep", "kept")
        assert "of 50 runs, all bitwise equal" in done.stdout, done.stdout
        names = " ".join(rop["rkernel"] for rop in json.loads((tamp.folder / "kept" / "net.rprogram.json").read_text())["rops"])
        assert all(name in names for name in rkernels), names
    test.__name__ = "_".join(["test_few_bits", str(bits), str(hidden), *form, precision])
    return test


TESTS += [few_bits_test("fp16", 4, 256, 2, ["gemv_row_4bit"]), few_bits_test("tf32", 8, 256, 2, ["gemv_row_8bit"], zeros=True), few_bits_test("bf16", 4, 288, 1, ["gemv_row_4bit"], zeros=True),
          few_bits_test("fp16", 4, 2560, 1, ["row_feed_forward_4bit"]), few_bits_test("fp16", 8, 2560, 1, ["row_feed_forward_8bit"], zeros=True)]


def test_the_gpu_is_measured(tamp):
    """What comes of it is a vDevice that this GPU runs."""
    tamp("devices", "--measure", "mine.json")
    mine = json.loads((tamp.folder / "mine.json").read_text())
    assert 0.1 < mine["edge_us"] < 20 and mine["edge_spread_us"] <= mine["edge_us"] and mine["dram_gb_per_s"] < mine["l2_gb_per_s"] * 2, mine
    (tamp.folder / "conv.onnx").write_bytes(m.conv().SerializeToString())
    tamp("run", "conv.onnx", "--check", "--device", "cuda", "--vdevice", "mine.json")


TESTS += [test_the_gpu_is_measured]
models_test.DEVICE = "cuda"
OF_THE_STAND_IN = {"test_vit_in_batches", "test_heads_of_a_rtask"}  # these name a vDevice that is made from the stand-in's
TESTS += [getattr(module, name) for module in (recurrent_test, transformers_test) for name in dir(module)
          if name.startswith("test_") and name not in OF_THE_STAND_IN]


def test_lengths_of_run_time(tamp):
    lengths_test.check_all(tamp, "h200", "tf32")


TESTS += [decoders_test.test_decoders_for_h200, test_lengths_of_run_time, loops_test.test_greedy_search, loops_test.test_if, loops_test.test_loops_in_loops]


def tokens_test(name, model, precision, *dims, prompt="3,1,4"):
    """Tokens that the kernel makes, run after run, are those of single runs; over and over."""
    def test(tamp):
        tamp("compile", generate_test.save(tamp, model()), "-o", "step", "--vdevice", "h200", "--precision", precision, "--generate", *dims)
        for how in [[], generate_test.SAMPLED]:
            done = tamp("run", "step", "--device", "cuda", "--prompt", prompt, "--max-tokens", 20, "--repeat", 20, "--check", "--json", *how)
            made = json.loads(done.stdout)["tokens"]
            assert len(made) == 20 and len(set(made)) > 2, made
    test.__name__ = f"test_tokens_of_{name}_{precision}"
    return test


TESTS += [tokens_test(name, model, precision)
          for name, model in [("decoder", lambda: generate_test.decoder(layers=2)), ("many_words", lambda: generate_test.decoder(words=128256)),
                              ("gru", generate_test.recurrent), ("large_lstm", lambda: generate_test.recurrent("LSTM", hidden=512))]
          for precision in ("fp32", "fp16")]
TESTS += [tokens_test(f"prompt_{form}", lambda form=form: getattr(decoders, form)("llama"), precision, "--dim", "seq=1,4,16", *(["--dim", f"total={decoders.PLACES}"] if form == "genai" else []),
                      prompt=",".join(map(str, range(40))))
          for form in ("exported", "standard", "genai") for precision in ("fp32", "fp16")]
TESTS += [tokens_test("prompt_gru", lambda: generate_test.recurrent(rows="seq"), "fp32", "--dim", "seq=1,7", prompt=",".join(map(str, range(20))))]


if __name__ == "__main__":
    sys.exit(harness.main(TESTS))

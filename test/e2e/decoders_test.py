#!/usr/bin/env python3
"""Decoders as users export them (decoders.py), on the stand-in: a prompt fills the caches, then come tokens and more prompts, in one program with the dimension seq; every step
against ONNX Runtime. All decoders of a form are parts of one program, since most of a test's time is its compilation.

    decoders_test.py TAMP [WORD...]
"""
import json
import sys

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto

import decoders
import harness
import many
import models_test
from decoders import PLACES
from transformers_test import in_type

LIMIT = {"fp32": 2e-5, "tf32": 5e-3, "fp16": 1e-2, "bf16": 6e-2}
TYPES = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}
STEPS = (19, 1, 6, 1)  # rows: a prompt, a token, another prompt, a token


def merged(models):
    """One model; all have the dimensions seq and total, as far as they have them."""
    whole = many.merge([many.Part(name, made, []) for name, made in models.items()])
    whole.ir_version = 11
    for entry in (*whole.graph.input, *whole.graph.output):
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = dim.dim_param.split("/")[-1]
    return whole


def behind(cache, at):
    """Whether an element is of a place from `at` on, of [1,heads,places,size] or [1,places,width]."""
    return np.broadcast_to(np.arange(PLACES)[:, None] >= at, cache.shape)


class Program:
    """All the models in one program. `narrow`: the types of models that are of 16 bits there, caches too; they are compared with those of f32."""

    def __init__(self, tamp, models, vdevice, precision, narrow={}):
        self.folder, self.models, self.precision = tamp.folder, models, precision
        self.types = {name: TYPES[narrow.get(name, TensorProto.FLOAT)] for name in models}
        models = {name: in_type(made, narrow[name]) if name in narrow else made for name, made in models.items()}
        (tamp.folder / "many.onnx").write_bytes(merged(models).SerializeToString())
        tamp("compile", "many.onnx", "-o", "made", "--name", "many", "-q", "--vdevice", vdevice, "--precision", precision, "--dim", "seq=1,32", "--dim", f"total=1:{PLACES}")
        (tamp.folder / "main.cu").write_text(f'#define TAMP_LENGTHS\n#define TAMP_MODEL_HEADER "many.h"\n#define TAMP_MODEL many\n#include "made/many.cu"\n#include "{harness.ROOT}/runtime_stub/host/runner.cpp"\n')
        build = ["g++", "-std=c++20", "-O0", "-march=native", "-Wno-unknown-pragmas", "-DTAMP_CUDA_ON_CPU", "-I", harness.ROOT / "runtime_stub/cuda_on_cpu", "-I", "made", "-o", "runner",
                 "-x", "c++", "main.cu", "-x", "none", "-lboost_context"]
        if models_test.DEVICE == "cuda":  # gpu_test.py
            build = ["nvcc", "-std=c++20", "-O1", "-arch=sm_90a", "-w", "-I", harness.ROOT, "-I", "made", "-o", "runner", "main.cu"]
        done = many.call(build, tamp.folder, many.COMPILE_SECONDS)
        assert done.returncode == 0, done.stderr[-2000:]
        self.sessions = {name: onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]) for name, made in self.models.items()}

    def outputs(self, rows):
        """Name, type and shape of each output of each model."""
        for name, session in self.sessions.items():
            for entry in session.get_outputs():
                yield name, entry.name, [rows if d == "seq" else d for d in entry.shape]

    def run(self, feeds, rows, total):
        words = ["./runner", "--weights", "made/many.weights", "--wait-budget", "3600", "--lengths", f"{rows},{total}"]
        for i, (name, values) in enumerate((name, feeds[name][entry.name]) for name, made in self.models.items() for entry in made.graph.input):
            values = values.astype(self.types[name]) if values.dtype == np.float32 else values
            (self.folder / f"in{i}").write_bytes(np.ascontiguousarray(values).tobytes())
            words += ["--input", f"in{i}"]
        outputs = list(self.outputs(rows))
        for i in range(len(outputs)):
            words += ["--output", f"out{i}"]
        done = many.call(words, self.folder, many.RUN_SECONDS)
        assert done.returncode == 0, f"{rows} rows: {done.returncode}: {done.stderr[-1000:]}"
        found = {name: {} for name in self.models}
        for i, (name, output, shape) in enumerate(outputs):
            found[name][output] = np.frombuffer((self.folder / f"out{i}").read_bytes(), self.types[name]).reshape(shape).astype(np.float32)
        return found

    def check(self, steps=STEPS, start=0, unread=()):
        """From the first place, or behind `start` tokens. Caches begin as noise; what lies behind the tokens is in no answer, and stays. `unread`: models that must not even
        read it; there it is NaN."""
        rng, at, problems = np.random.default_rng(1), start, []
        rounded = lambda name, values: values.astype(self.types[name]).astype(np.float32)
        caches = {name: {port: rounded(name, values) for port, values in decoders.carried(made, rng).items()} for name, made in self.models.items()}
        for rows in steps:
            feeds = {name: decoders.feeds(made, at, rows, rng) | caches[name] for name, made in self.models.items()}
            at += rows
            given = dict(feeds)
            for name in unread:
                given[name] = feeds[name] | {port: np.where(behind(values, at), np.float32(np.nan), values) for port, values in feeds[name].items() if port.startswith("past_")}
            found = self.run(given, rows, at)
            for name, session in self.sessions.items():
                wanted = dict(zip((entry.name for entry in session.get_outputs()), session.run(None, feeds[name])))
                for output, values in wanted.items():
                    got = found[name][output]
                    if output.startswith("present_"):
                        past, is_behind = output.replace("present", "past"), behind(values, at)
                        if not np.array_equal(got[is_behind], given[name][past][is_behind], equal_nan=True):
                            problems.append(f"{name}: {output} of {rows} rows up to place {at} has other rows behind it than before")
                        caches[name][past] = np.where(is_behind, feeds[name][past], rounded(name, values))
                        got, values = got[~is_behind], values[~is_behind]
                    error = np.linalg.norm((got - values).ravel()) / np.linalg.norm(values.ravel())
                    if not error <= LIMIT["bf16" if self.types[name] == ml_dtypes.bfloat16 else self.precision]:
                        problems.append(f"{name}: {output} of {rows} rows up to place {at}: relative distance {error:.1e}")
        assert not problems, "\n  ".join(["answers differ from ONNX Runtime's:", *problems])


def models_of(**names):
    """Models by the form that makes them, as in exported="llama t5"."""
    return {f"{form} {name}": getattr(decoders, form)(name) for form, words in names.items() for name in words.split()}


def check_all(tamp, models, vdevice, precision, **options):
    program = Program(tamp, models, vdevice, precision, **options)
    program.check()
    program.check((1,), PLACES - 1)
    ports = json.loads((tamp.folder / "made" / "many.rprogram.json").read_text())["outputs"]
    assert precision != "fp32" or all("in_place" in port for port in ports if "present_" in port["name"]), [port["name"] for port in ports if "in_place" not in port]
    # Soft caps and sinks are no part of the attention that looks for the keys that a mask leaves.
    program.check((1,), 40, [name for name in models if not any(word in name for word in ("gpt_oss", "gemma2", "standard gemma3", "genai gemma3"))])


def test_every_decoder_in_every_form(tamp):
    forms = list(decoders.FORMS)
    standard = [name for name in forms if not decoders.FORMS[name].sinks]  # Attention has none
    check_all(tamp, models_of(exported=" ".join(decoders.exports()), standard=" ".join(standard), genai=" ".join(forms)), "cpu", "fp32")


def test_decoders_for_h200(tamp):
    models = models_of(exported="llama qwen3 gpt_oss", standard="llama phi4", genai="qwen3 gemma3 whisper")
    check_all(tamp, models, "h200", "fp16", narrow={"exported qwen3": TensorProto.FLOAT16, "standard llama": TensorProto.BFLOAT16, "genai qwen3": TensorProto.FLOAT16})


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(3)  # it says of each TensorScatter that it copies
    sys.exit(harness.main(harness.tests_of(globals())))

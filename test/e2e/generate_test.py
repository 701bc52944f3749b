#!/usr/bin/env python3
"""Programs that make tokens (docs/adr/0051), on the stand-in: their tokens are those of single runs and of a reference in numpy; texts end
where they should; what has no part in making tokens is refused.

    generate_test.py TAMP [WORD...]
"""
import ctypes
import json
import os
import pathlib
import sys
import threading

import numpy as np
import onnx
from onnx import TensorProto

import decoders
import harness
import models as m
from user_project_test import STAND_IN, run

WORDS, PLACES, HEADS, HEAD = 37, 24, 2, 16
WIDTH = HEADS * HEAD


def decoder(layers=1, words=WORDS, dtype=np.float32):
    """A step with caches of constant size (ONNX 24): rows are put into them, and attention has the valid length."""
    random = np.random.default_rng(3)
    made, nodes, inputs, outputs = [], [], [], []

    def weight(name, *shape, scale=0.5):
        made.append(m.constant(name, (random.standard_normal(shape) * scale).astype(dtype), dtype))
        return name

    def n(op, operands, result, **attributes):
        nodes.append(m.node(op, operands, result, **attributes))
        return result[0]

    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs += [m.value("input_ids", [1, 1], TensorProto.INT64), m.value("position_ids", [1, 1], TensorProto.INT64),
               m.value("write_indices", [1], TensorProto.INT64), m.value("nonpad_kv_seqlen", [1], TensorProto.INT64)]
    word, place = n("Gather", [weight("embed", words, WIDTH, scale=1), "input_ids"], ["word"]), n("Gather", [weight("places", PLACES, WIDTH, scale=1), "position_ids"], ["place"])
    x = n("Add", [word, place], ["x"])
    made.append(m.ints("heads_shape", [1, 1, HEADS, HEAD]))
    made.append(m.ints("row_shape", [1, 1, WIDTH]))
    for layer in range(layers):
        parts = {}
        for part in "qkv":
            flat = n("MatMul", [x, weight(f"{part}{layer}", WIDTH, WIDTH, scale=0.3)], [f"{part}_flat{layer}"])
            parts[part] = n("Transpose", [n("Reshape", [flat, "heads_shape"], [f"{part}_heads{layer}"])], [f"{part}_{layer}"], perm=[0, 2, 1, 3])
        caches = []
        for part, name in [("k", "key"), ("v", "value")]:
            past, present = f"past_key_values.{layer}.{name}", f"present.{layer}.{name}"
            inputs.append(m.value(past, [1, HEADS, PLACES, HEAD], kind))
            outputs.append(m.value(present, [1, HEADS, PLACES, HEAD], kind))
            caches.append(n("TensorScatter", [past, parts[part], "write_indices"], [present]))
        y = n("Attention", [parts["q"], *caches, "", "", "", "nonpad_kv_seqlen"], [f"y{layer}"])
        flat = n("Reshape", [n("Transpose", [y], [f"yt{layer}"], perm=[0, 2, 1, 3]), "row_shape"], [f"yf{layer}"])
        x = n("Add", [x, n("MatMul", [flat, weight(f"o{layer}", WIDTH, WIDTH, scale=0.3)], [f"yo{layer}"])], [f"x{layer}"])
    n("MatMul", [x, weight("head", WIDTH, words, scale=0.7)], ["logits"])
    outputs.append(m.value("logits", [1, 1, words], kind))
    return m.model(nodes, inputs, outputs, made, opset=24, ir=12)


def recurrent(cell="GRU", words=WORDS, hidden=32, rows=1):
    """A character model: its state comes out and goes in, in memory of its own."""
    random = np.random.default_rng(5)
    made = [m.constant("embed", random.standard_normal((words, 1, hidden)).astype(np.float32)), m.constant("head", (0.8 * random.standard_normal((hidden, words))).astype(np.float32)),
            m.ints("flat", [1, hidden])]
    gates = 3 if cell == "GRU" else 4
    made += [m.constant(name, (0.6 * random.standard_normal((1, gates * hidden, hidden))).astype(np.float32)) for name in ("w", "r")]
    states = ["h"] if cell == "GRU" else ["h", "c"]
    nodes = [m.node("Gather", ["embed", "token"], ["row3"]), m.node(cell, ["row3", "w", "r", "", "", *(f"{s}_in" for s in states)], ["", *(f"{s}_out" for s in states)], hidden_size=hidden),
             m.node("Reshape", ["h_out", "flat"], ["last"]), m.node("MatMul", ["last", "head"], ["scores"])]
    # token [1]: the gathered row is [1, 1, hidden], a sequence of one, or of `rows`.
    shape = [1, 1, hidden]
    return m.model(nodes, [m.value("token", [rows], TensorProto.INT64), *(m.value(f"{s}_in", shape) for s in states)],
                   [*(m.value(f"{s}_out", shape) for s in states), m.value("scores", [1, words])], made)


def save(tamp, model, name="step"):
    (tamp.folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    return f"{name}.onnx"


def tokens(tamp, *args, **kwargs):
    return json.loads(tamp("run", *args, "--device", "cpu", "--json", **kwargs).stdout)["tokens"]


SAMPLED = ["--temperature", "1.5", "--top-k", "20", "--top-p", "0.9", "--repetition-penalty", "1.3", "--seed", "7"]


def check_steps(tamp, model, *options):
    path = save(tamp, model)
    tamp("compile", path, "-o", "step", "--vdevice", "cpu", "--generate", *options)
    for how in [[], SAMPLED]:
        made = tokens(tamp, "step", "--prompt", "3,1,4", "--max-tokens", "12", "--check", *how)
        assert len(made) == 12 and len(set(made)) > 2, made


def test_tokens_of_a_decoder_are_those_of_single_runs(tamp):
    check_steps(tamp, decoder(layers=2))


def test_tokens_of_a_decoder_in_words_are_those_of_single_runs(tamp):
    check_steps(tamp, decoder(), "--precision", "fp16")


def test_tokens_of_a_recurrent_network_are_those_of_single_runs(tamp):
    check_steps(tamp, recurrent())


def library(tamp, name="step", optimise="-O1"):
    """The C functions of a program, as Python's ctypes calls them."""
    folder = tamp.folder / name
    run("g++", "-std=c++20", optimise, "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC", "-fno-gnu-unique", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-o", folder / "lib.so", "-x", "c++", folder / f"{name}.cu",
        "-lboost_context")
    loaded = ctypes.CDLL(str(folder / "lib.so"))
    getattr(loaded, f"{name}_message").restype = ctypes.c_char_p
    return loaded


ON_TOKEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)


class Wanted(ctypes.Structure):
    _fields_ = [("prompt", ctypes.POINTER(ctypes.c_int64)), ("prompt_count", ctypes.c_int32), ("max_tokens", ctypes.c_int32), ("temperature", ctypes.c_float), ("top_k", ctypes.c_int32),
                ("top_p", ctypes.c_float), ("repetition_penalty", ctypes.c_float), ("seed", ctypes.c_uint64), ("stops", ctypes.POINTER(ctypes.c_int64)), ("stop_count", ctypes.c_int32),
                ("position", ctypes.c_int64), ("inputs", ctypes.c_void_p), ("on_token", ON_TOKEN), ("user", ctypes.c_void_p), ("lengths", ctypes.c_void_p)]


class Program:
    def __init__(self, tamp, name="step", **options):
        self.name, self.loaded, self.context = name, library(tamp, name, **options), ctypes.c_void_p()
        assert self.function("create")(None, ctypes.byref(self.context)) == 0, self.function("message")(None)

    def function(self, name):
        return getattr(self.loaded, f"{self.name}_{name}")

    def generate(self, prompt, max_tokens=10, stops=None, on_token=None, says=None, **options):
        numbers = lambda values: (ctypes.c_int64 * len(values))(*values)
        wanted = Wanted(prompt=numbers(prompt), prompt_count=len(prompt), max_tokens=max_tokens, **options)
        if stops is not None:
            wanted.stops, wanted.stop_count = numbers(stops), len(stops)
        callback = ON_TOKEN(lambda _, token: int(bool(on_token(token)))) if on_token else ON_TOKEN()
        wanted.on_token = callback
        made, count = (ctypes.c_int64 * max(max_tokens, 1))(), ctypes.c_int32()
        status = self.function("generate")(self.context, ctypes.byref(wanted), made, ctypes.byref(count), None)
        message = self.function("message")(self.context).decode()
        assert (status == 0) == (says is None) and (says is None or says in message), message
        return list(made[:count.value])


def test_texts_end_where_they_should(tamp):
    path = save(tamp, decoder())
    (tamp.folder / "roles.json").write_text('{"stops": [36]}')
    tamp("compile", path, "-o", "step", "--vdevice", "cpu", "--generate", "roles.json")
    program = Program(tamp)
    text = program.generate([3, 1, 4], 15, stops=[])
    assert len(text) == 15
    assert program.generate([3, 1, 4], 15, stops=[text[0]]) == text[:1]  # at once
    assert program.generate([3, 1, 4], 1, stops=[]) == text[:1]
    ends = text.index(text[6])
    assert program.generate([3, 1, 4], 15, stops=[99, text[6]]) == text[:ends + 1]
    own = text[:text.index(36) + 1] if 36 in text else text
    assert program.generate([3, 1, 4], 15) == own
    # A text goes on: what was made last is the prompt, at its position.
    first = program.generate([3, 1, 4], 5, stops=[])
    assert first == text[:5] and program.generate(first[-1:], 10, stops=[], position=3 + 5 - 1) == text[5:]
    # The caller has had enough, by what on_token returns, and from another thread.
    seen = []
    assert program.generate([3, 1, 4], 15, stops=[], on_token=lambda token: seen.append(token) or len(seen) == 4) == text[:4] == seen

    def cancel(token):
        other = threading.Thread(target=program.function("cancel"), args=[program.context])
        other.start()
        other.join()

    cut = program.generate([3, 1, 4], 15, stops=[], on_token=cancel)
    assert 1 <= len(cut) <= 15 and cut == text[:len(cut)]
    assert program.generate([3, 1, 4], 15, stops=[]) == text  # and all that left nothing behind
    for options, says in [({"max_tokens": 0}, "max_tokens is 0"), ({"max_tokens": 23}, "need 25 places, the program has 24"), ({"position": -1}, "position is -1, supported"),
                          ({"temperature": -1}, "temperature"), ({"temperature": float("nan")}, "temperature"), ({"top_p": 1.5}, "top_p"), ({"top_k": -1}, "top_k"),
                          ({"repetition_penalty": -1}, "penalty"), ({"stops": list(range(17))}, "17 tokens end the text")]:
        program.generate([3, 1, 4], says=says, **options)
    program.generate([], says="the prompt has no token")
    program.generate([3, WORDS], says=f"token 1 of the prompt is {WORDS}, there are {WORDS} words")
    program.function("destroy")(program.context)


def check_prompts(tamp, model, *dims):
    """A prompt in parts makes the tokens that it makes token by token; texts go on as ever."""
    tamp("compile", save(tamp, model), "-o", "step", "--vdevice", "cpu", "--generate", *dims)
    program, most = Program(tamp, optimise="-O0"), 40
    prompt = [int(token) for token in np.random.default_rng(2).integers(0, WORDS, most)]
    steps = {n: program.generate(prompt[n - 1:n], 4 if n == most else 1, position=n - 1) for n in range(1, most + 1)}
    for n in (1, 5, 17, most):
        assert program.generate(prompt[:n], len(steps[n])) == steps[n], n
    assert program.generate(prompt[:17], 1) == steps[17] and program.generate(prompt[17:], 4, position=17) == steps[most]
    seen, first = [], steps[5]  # a text may end with the token that its prompt's last run has made
    assert program.generate(prompt[:5], 4, stops=first) == program.generate(prompt[:5], 4, on_token=lambda token: seen.append(token) or True) == seen == first
    assert program.generate(prompt[:5], 4, on_token=lambda token: program.function("cancel")(program.context) and 0) == first
    program.function("destroy")(program.context)


def test_prompts_fill_a_static_cache(tamp):
    check_prompts(tamp, decoders.exported("llama"), "--dim", "seq=1,4,16")


def test_prompts_fill_caches_by_tensor_scatter(tamp):
    check_prompts(tamp, decoders.standard("llama"), "--dim", "seq=1,16")


def test_prompts_fill_caches_of_group_query_attention(tamp):
    check_prompts(tamp, decoders.genai("qwen3"), "--dim", "seq=1,16", "--dim", f"total={decoders.PLACES}")


def test_prompts_of_a_state_that_changes_places(tamp):
    check_prompts(tamp, recurrent(rows="seq"), "--dim", "seq=1,7")


def test_states_of_an_encoder_have_a_length_of_their_own(tamp):
    model = decoders.standard("whisper")
    memory = next(port for port in model.graph.input if port.name == "memory")
    memory.type.tensor_type.shape.dim[1].dim_param = "states"
    path, prompt = save(tamp, model), ",".join(map(str, range(20)))
    np.save(tamp.folder / "memory.npy", np.random.default_rng(4).standard_normal((1, 6, 32)).astype(np.float32))
    made = []
    for dims in [["seq=1", "states=6"], ["seq=1,8", "states=2:10"]]:
        tamp("compile", path, "-o", "step", "--vdevice", "cpu", "--generate", '{"held": ["memory"]}', *(f"--dim={dim}" for dim in dims))
        made.append(tokens(tamp, "step", "--prompt", prompt, "--max-tokens", "6", "--check", "--input", "memory=memory.npy", *SAMPLED))
    assert made[0] == made[1] and len(set(made[0])) > 2, made
    tamp("run", "step", "--prompt", "1", "--device", "cpu", "--at", "seq=4", code=1, says="--at 'seq=4': says how many tokens a run has")
    tamp("compile", path, "-o", "step", "--generate", "--dim=seq=1,8", "--dim=states=2:10", code=2, says="input 'memory': has no part")
    tamp("compile", path, "-o", "step", "--generate", '{"held": ["memory"]}', "--dim=seq=1", "--dim=states=4,10", code=2, says="buckets of another dimension than that of the tokens")


def test_prompts_are_those_of_single_runs(tamp):
    """Also with a penalty on words of the prompt; in words of 16 bits sums depend on the bucket, and single runs are of the same ones."""
    tamp("compile", save(tamp, decoders.standard("llama")), "-o", "step", "--vdevice", "cpu", "--generate", "--dim", "seq=1,16", "--precision", "fp16")
    prompt = ",".join(map(str, range(1, 36)))
    made = tokens(tamp, "step", "--prompt", prompt, "--max-tokens", "8", "--check", *SAMPLED)
    assert len(made) == 8 and len(set(made)) > 2, made
    for wrong in ["1,,2", "1,", ",1", "1,2x", "-1", "1, 2", "99999999999999999999"]:
        tamp("run", "step", f"--prompt={wrong}", "--device", "cpu", code=1, says=f"--prompt '{wrong}': token ")


def test_a_prompt_is_not_needed_twice(tamp):
    """The state of a recurrent network is in memory that changes places; after odd and even numbers of runs a text goes on."""
    tamp("compile", save(tamp, recurrent("LSTM")), "-o", "step", "--vdevice", "cpu", "--generate", "--embed-weights")
    program = Program(tamp)
    text = program.generate([5, 6], 9)
    for cut in (3, 4):
        assert program.generate([5, 6], cut) == text[:cut]
        assert program.generate(text[cut - 1:cut], 9 - cut, position=2 + cut - 1) == text[cut:]
    program.function("destroy")(program.context)


def test_masks_positions_and_what_each_call_gives(tamp):
    """Of several types; what is not found by name is said in the file."""
    random, places = np.random.default_rng(9), 16
    table, a, b = (3 * random.standard_normal(shape).astype(np.float32) for shape in [(WORDS, WORDS), (places, WORDS), (places, WORDS)])
    nodes = [m.node("Gather", ["table", "ids"], ["row3"]), m.node("Reshape", ["row3", "flat"], ["row"]), m.node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
             m.node("MatMul", ["mask", "a"], ["of_mask"]), m.node("MatMul", ["used", "b"], ["of_used"]), m.node("Cast", ["step"], ["at"], to=TensorProto.FLOAT),
             m.node("Sum", ["row", "of_mask", "of_used", "bias", "at"], ["logits"])]
    inputs = [m.value("ids", [1, 1], TensorProto.INT32), m.value("attention_mask", [1, places], TensorProto.INT64), m.value("used", [1, places]), m.value("step", [1], TensorProto.INT32), m.value("bias", [1, WORDS])]
    model = m.model(nodes, inputs, [m.value("logits", [1, WORDS])], [m.constant("table", table), m.constant("a", a), m.constant("b", b), m.ints("flat", [1, WORDS])])
    path = save(tamp, model)
    tamp("compile", path, "-o", "step", "--vdevice", "cpu", "--generate", code=2, says="input 'used': has no part")
    roles = {"token": "ids", "positions": {"step": 3}, "masks": ["used"], "held": ["bias"]}
    tamp("compile", path, "-o", "step", "--vdevice", "cpu", "--generate", json.dumps(roles))
    bias = random.standard_normal((1, WORDS)).astype(np.float32)
    np.save(tamp.folder / "bias.npy", bias)
    made = tokens(tamp, "step", "--prompt", "3,1,4", "--max-tokens", "12", "--check", "--input", "bias=bias.npy")
    text = [3, 1, 4]
    for position in range(14):
        scores = table[text[position]] + a[:position + 1].sum(0) + b[:position + 1].sum(0) + bias[0] + position + 3
        if position >= 2:
            text.append(int(scores.argmax()))
    assert made == text[3:], (made, text)


def test_a_decision_that_never_comes_names_the_token(tamp):
    tamp("compile", save(tamp, recurrent(), "hangs"), "-o", "hangs", "--vdevice", "cpu", "--generate", "--embed-weights")
    source = tamp.folder / "hangs" / "hangs.cu"
    published = "publish_decision(line + kDecisionWord,"
    assert source.read_text().count(published) == 1
    source.write_text(source.read_text().replace(published, f"if (runs != 3) {published}"))
    program = Program(tamp, "hangs")
    program.generate([1, 2], 9, says="waited in vain for whether another token follows")
    program.generate([1, 2], 9, says="at token 5 of prompt and text")  # again, since the context is spent
    program.function("destroy")(program.context)


def test_draws_are_those_of_the_reference(tamp):
    """A table of scores for each of few tokens: both read the same bits, over several shares of words."""
    words, random = 2500, np.random.default_rng(11)
    table = (4 * random.standard_normal((8, words))).astype(np.float32)
    table[1, ::3], table[2, 7], table[3] = -np.inf, np.nan, 1
    model = m.model([m.node("Gather", ["table", "token"], ["logits"])], [m.value("token", [1], TensorProto.INT64)], [m.value("logits", [1, words])], [m.constant("table", table)])
    path = save(tamp, model)
    tamp("compile", path, "-o", "step", "--vdevice", "cpu", "--generate")
    seen = random.random(words) < 0.2
    np.save(tamp.folder / "seen.npy", seen)
    draws = [((0, 0, 1), (0, 5, 0)), ((1, 0, 1), (0, 5, 0)), ((0.7, 0.9, 1.4), (0, 6, 1)), ((1, 0, 1.2), (40, 7, 2)), ((2, 0.3, 1), (900, 8, 3)), ((1, 1, 1), (words, 9, 4)), ((30, 0.999, 1), (2499, 1 << 40, 5))]
    for i, (amounts, draw) in enumerate(draws):
        np.save(tamp.folder / "amounts.npy", np.array(amounts, np.float32))
        np.save(tamp.folder / "draw.npy", np.array(draw, np.int64))
        np.save(tamp.folder / "token.npy", np.array([i % 4], np.int64))
        tamp("run", "step", "--device", "cpu", "--check", "--model", path, *(f"--input={name}={file}.npy" for name, file in [("token", "token"), ("tamp.amounts", "amounts"), ("tamp.draw", "draw"), ("tamp.seen", "seen")]))


def test_bodies_of_a_draw_do_what_they_declare(tamp):
    path = save(tamp, decoder(words=1500))
    np.save(tamp.folder / "amounts.npy", np.array([1, 0.9, 1.2], np.float32))
    np.save(tamp.folder / "draw.npy", np.array([50, 1, 1], np.int64))
    tamp("run", path, "--generate", "--device", "cpu", "--races", "--input", "tamp.amounts=amounts.npy", "--input", "tamp.draw=draw.npy")


def test_what_cannot_make_tokens_is_refused(tamp):
    path = save(tamp, decoder())
    tamp("compile", path, "-o", "step", "--execution", "graph", "--generate", code=2, says="--generate: not supported with --execution graph")
    (tamp.folder / "roles.json").write_text('{"tokens": "input_ids"}')
    tamp("compile", path, "-o", "step", "--generate", "roles.json", code=1, says="field 'tokens' is not known")
    tamp("compile", save(tamp, m.relu(), "relu"), "-o", "relu", "--generate", code=2, says="which input is the token's number is not clear")
    rows = save(tamp, decoders.standard("llama"), "rows")
    for dims in ["seq=4,16", "seq=1:16", "seq=5", "seq=2:16"]:
        tamp("compile", rows, "-o", "step", "--generate", "--dim", dims, code=2, says="the number of one, or buckets of which the first is one token")
    tamp("compile", save(tamp, decoders.genai("llama"), "total"), "-o", "step", "--generate", "--dim", "seq=1,4", "--dim", "total=1:160", code=2, says="input 'attention_mask': ends at length 'total'")
    tamp("compile", path, "-o", "step", "--vdevice", "cpu")
    tamp("run", "step", "--prompt", "1", "--device", "cpu", code=1, says="makes no tokens; compile it with --generate")
    tamp("run", path, "--prompt", "1", "--device", "cpu", code=1, says="--prompt: give --generate, too")
    tamp("run", path, "--temperature", "1", "--device", "cpu", code=1, says="are of --prompt")


def test_the_header_is_c_and_cpp(tamp):
    for options in [[], ["--dim", "seq=1,4"]]:
        tamp("compile", save(tamp, recurrent(rows="seq" if options else 1)), "-o", "step", "--generate", *options)
        check_header(tamp)


def check_header(tamp):
    head = '#include <cuda_runtime.h>\n#include "step.h"\n'
    for compiler, standard, text in [("gcc", "c11", "int main(void) { tamp_tokens wanted = {0}; step_cancel(0); return step_generate(0, &wanted, 0, 0, 0) == TAMP_OK; }"),
                                     ("g++", "c++11", "int main() { step::Model model; return model.generate({1, 2}, tamp_tokens{}, [](int64_t) { return true; }).empty(); }"),
                                     ("g++", "c++20", "int main() { step::Model model; model.cancel(); return model.generate({1}, {.max_tokens = 3, .temperature = 0.5F}).empty(); }")]:
        (tamp.folder / "main").write_text(f"{head if compiler == 'g++' else head.splitlines()[1]}\n{text}\n")
        language = "c++" if compiler == "g++" else "c"
        run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", *(["-Wno-missing-field-initializers"] if standard == "c++20" else []), "-fsyntax-only", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-I", "step", "-x", language, "main", cwd=tamp.folder)


def test_the_example_writes(tamp):
    example, folder = harness.ROOT / "examples" / "generate", tamp.folder / "words"
    run(sys.executable, example / "train.py", folder, "--updates", "4")
    path = {"PATH": f"{pathlib.Path(tamp.program).absolute().parent}:{os.environ['PATH']}"}
    text = run(sys.executable, example / "write.py", "The graph (as it is", "--tokens", "12", "--device", "cpu", "--folder", folder, env=path)
    assert text.startswith("The graph (as it is") and "12 tokens in" in text, text


def test_weights_of_a_program_of_tokens_can_be_replaced(tamp):
    tamp("compile", save(tamp, decoders.standard("llama")), "-o", "step", "--vdevice", "cpu", "--generate", "--dim", "seq=1,16")
    before = (tamp.folder / "step" / "step.weights").read_bytes()
    tamp("weights", "step.onnx", "--like", "step", "-o", "other.weights")
    assert (tamp.folder / "other.weights").read_bytes() == before


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))

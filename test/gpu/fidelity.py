#!/usr/bin/env python3
"""How far a decoder in 16 bits is from itself in fp32: the distribution of the next token at each of many positions of a text.

    python3 test/gpu/fidelity.py --tamp build/release/bin/tamp [--model FOLDER | --onnx STEP.onnx] [--text FILE] [--positions 512] [--device cuda|cpu] [--out FILE.json]

--model is a checkpoint of Hugging Face with its tokenizer. Without it a small Llama is trained that reads bytes, on this project's docs, about a minute on a GPU;
--text is then what it has not read. Both need torch, transformers and onnxscript. Each row of the table is compared with the model in fp32 on the CPU:

  tamp fp16, tamp bf16         the step of examples/decoder/export.py in that type, compiled, token by token with its caches
  tamp fp16, file of fp32      the step in fp32, compiled with --precision fp16
  PyTorch fp16, bf16           the model in that type, token by token with its cache

KL is that of the row's distribution from that in fp32, mean and largest, in nats; perplexity is that of the text; the last column counts how often the most likely token
is the same. --onnx takes a step in fp32 as it is, and needs numpy, onnx and onnxruntime alone: rows of tamp, beside ONNX Runtime, for tokens that are drawn."""
import argparse
import importlib.util
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto

import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
HELD_OUT = 1 / 20  # of the docs


# --- steps in ONNX -----------------------------------------------------------------------------------------------------


class Step:
    """A decoder's step with caches of constant size: integers are the token and its position, floats are caches; the first output is the scores, the others are the caches."""

    def __init__(self, path):
        self.graph = onnx.load(path, load_external_data=False).graph
        integers = [port.name for port in self.graph.input if port.type.tensor_type.elem_type == TensorProto.INT64]
        self.token = next(name for name in integers if "ids" in name and "position" not in name)
        self.caches = [port.name for port in self.graph.input if port.name not in integers]
        self.words = self.shape(self.graph.output[0])[-1]

    @staticmethod
    def shape(port):
        return [d.dim_value or 1 for d in port.type.tensor_type.shape.dim]

    def integers_at(self, position, token):
        return {port.name: np.full(self.shape(port), token if port.name == self.token else position) for port in self.graph.input if port.name not in self.caches}

    def storage(self, port):
        """Zeros; bf16 as its bits."""
        kind = port.type.tensor_type.elem_type
        return np.zeros(self.shape(port), np.int16 if kind == TensorProto.BFLOAT16 else onnx.helper.tensor_dtype_to_np_dtype(kind))


def floats_of(values):
    return (values.astype(np.uint16).astype(np.uint32) << 16).view(np.float32) if values.dtype == np.int16 else values.astype(np.float32)


def scores_of_runtime(path, tokens, first):
    import onnxruntime

    step, session = Step(path), onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    caches = {port.name: step.storage(port) for port in step.graph.input if port.name in step.caches}
    made = []
    for position, token in enumerate(tokens, first):
        scores, *rest = session.run(None, step.integers_at(position, token) | caches)
        caches = dict(zip(step.caches, rest))
        made.append(scores.ravel())
    return np.stack(made)


class Memory:
    """Arrays where the program runs."""

    def __init__(self, device):
        self.on_gpu = device == "cuda"
        if self.on_gpu:
            import torch

            self.torch = torch

    def place(self, array):
        return self.torch.from_numpy(array).cuda() if self.on_gpu else array

    def address(self, placed):
        return placed.data_ptr() if self.on_gpu else placed.ctypes.data

    def set(self, placed, array):
        placed.copy_(self.torch.from_numpy(array)) if self.on_gpu else np.copyto(placed, array)

    def values(self, placed):
        return placed.cpu().numpy() if self.on_gpu else placed

    def stream(self):
        return self.torch.cuda.current_stream().cuda_stream if self.on_gpu else None


def scores_of_tamp(tamp, path, precision, tokens, device, first=0):
    step, memory = Step(path), Memory(device)
    open_rows = any(d.dim_param == "seq" for port in step.graph.input for d in port.type.tensor_type.shape.dim)
    with tempfile.TemporaryDirectory() as folder:
        programs.compile_and_build(tamp, path, pathlib.Path(folder), device, "--precision", precision, *(["--dim", "seq=1"] if open_rows else []))
        program = programs.Program(pathlib.Path(folder))
        inputs = {port.name: memory.place(step.storage(port)) for port in step.graph.input}
        scores = memory.place(step.storage(step.graph.output[0]))
        outputs, made = [scores, *(inputs[name] for name in step.caches)], []  # caches stay in place
        for position, token in enumerate(tokens, first):
            for name, value in step.integers_at(position, token).items():
                memory.set(inputs[name], value)
            program.run([memory.address(a) for a in inputs.values()], [memory.address(a) for a in outputs], memory.stream())
            made.append(floats_of(memory.values(scores)).ravel())  # waits for the run
            program.require_good()
        program.close()
    return np.stack(made)


# --- PyTorch -----------------------------------------------------------------------------------------------------------


def scores_of_torch(folder, kind, tokens, device):
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, TORCH_NAMES[kind])).eval().to(device)
    made, past = [], None
    with torch.no_grad():
        for token in tokens:
            step = model(torch.tensor([[token]], device=device), past_key_values=past, use_cache=True)
            past = step.past_key_values
            made.append(step.logits[0, -1].float().cpu().numpy())
    return np.stack(made)


def exporter():
    spec = importlib.util.spec_from_file_location("decoder_export", ROOT / "examples" / "decoder" / "export.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def docs():
    """What the small model learns, and what it does not see before it is asked."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))).encode()
    cut = int(len(text) * (1 - HELD_OUT))
    return text[:cut], text[cut:]


def train(folder, device, updates, width, layers):
    """A Llama that reads bytes."""
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers, num_attention_heads=width // 32, num_key_value_heads=width // 64,
                                      max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=None, bos_token_id=0, eos_token_id=0)  # fmt: skip
    model, text = transformers.LlamaForCausalLM(config).to(device), torch.frombuffer(bytearray(docs()[0]), dtype=torch.uint8).long().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.01)
    rows, length = (32, 513) if device == "cuda" else (8, 129)
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min(1, (update + 1) / 50) * (1 - update / updates)
        begins = torch.randint(len(text) - length, (rows,)).tolist()
        batch = torch.stack([text[begin:begin + length] for begin in begins])
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if (update + 1) % 100 == 0:
            print(f"trained {update + 1} updates: {loss.item():.2f} nats a byte", file=sys.stderr, flush=True)
    model.float().cpu().save_pretrained(folder)


# --- measured ----------------------------------------------------------------------------------------------------------


def log_shares(scores):
    scores = scores.astype(np.float64)
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def compared(scores, wanted, following):
    """-> mean and largest KL from `wanted`, perplexity of the following tokens, share of positions with the same most likely token."""
    if not np.isfinite(scores).all():
        raise RuntimeError("scores are not finite")
    got, want = log_shares(scores), log_shares(wanted)
    distances = (np.exp(want) * (want - got)).sum(-1)
    loss = -got[np.arange(len(following)), following].mean()
    return {"kl": distances.mean(), "largest_kl": distances.max(), "perplexity": np.exp(loss), "same": (got.argmax(-1) == want.argmax(-1)).mean()}


def rows_of_model(args, folder):
    """-> scores in fp32, and (name, a function that makes the scores)."""
    if args.model:
        import transformers

        text = (args.text or ROOT / "docs" / "architecture.md").read_text()
        tokens, checkpoint = transformers.AutoTokenizer.from_pretrained(args.model)(text).input_ids, args.model
    else:
        checkpoint = folder / "checkpoint"
        train(checkpoint, args.device, args.updates, args.width, args.layers)
        tokens = list(args.text.read_bytes() if args.text else docs()[1])
    tokens = tokens[:args.positions + 1]
    export = exporter()

    def of_tamp(precision, kind):
        path = folder / f"{kind}.onnx"
        export.export(export.load(checkpoint, TORCH_NAMES[kind]), path, args.positions)
        return scores_of_tamp(args.tamp, path, precision, tokens[:-1], args.device)

    rows = [("tamp fp16", lambda: of_tamp("fp16", "fp16")), ("tamp bf16", lambda: of_tamp("bf16", "bf16")), ("tamp fp16, file of fp32", lambda: of_tamp("fp16", "fp32")),
            ("tamp bf16, file of fp32", lambda: of_tamp("bf16", "fp32")), *((f"PyTorch {kind}", lambda kind=kind: scores_of_torch(checkpoint, kind, tokens[:-1], args.device)) for kind in ("fp16", "bf16"))]  # fmt: skip
    return tokens, scores_of_torch(checkpoint, "fp32", tokens[:-1], "cpu"), rows


def rows_of_step(args):
    words = Step(args.onnx).words
    tokens = np.random.default_rng(1).integers(0, words, args.positions + 1).tolist()
    of_tamp = lambda precision: scores_of_tamp(args.tamp, args.onnx, precision, tokens[:-1], args.device, args.first)
    return tokens, scores_of_runtime(args.onnx, tokens[:-1], args.first), [("tamp fp16", lambda: of_tamp("fp16")), ("tamp bf16", lambda: of_tamp("bf16"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True, type=pathlib.Path)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--model", type=pathlib.Path, help="a folder that save_pretrained wrote")
    source.add_argument("--onnx", type=pathlib.Path, help="a step in fp32")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--positions", type=int, default=512)
    parser.add_argument("--first", type=int, default=0, help="with --onnx: the position of the first token; places before it hold zeros")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--updates", type=int, default=1000, help="of the training")
    parser.add_argument("--width", type=int, default=384, help="of the model that is trained, a multiple of 64")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    args.tamp = args.tamp.resolve()
    with tempfile.TemporaryDirectory() as folder:
        tokens, wanted, rows = rows_of_step(args) if args.onnx else rows_of_model(args, pathlib.Path(folder))
        results, failed = {"fp32 on the CPU": compared(wanted, wanted, tokens[1:])}, 0
        for name, scores in rows:
            try:
                results[name] = compared(scores(), wanted, tokens[1:])
            except Exception as problem:  # the others may work
                print(f"{name}: {type(problem).__name__}: {str(problem)[-1500:]}", file=sys.stderr, flush=True)
                failed += 1
    print(f"| {len(wanted)} positions | KL | largest | perplexity | same |\n|---|---|---|---|---|")
    for name, row in results.items():
        print(f"| {name} | {row['kl']:.2e} | {row['largest_kl']:.2e} | {row['perplexity']:.4f} | {row['same'] * 100:.1f} % |")
    if args.out:
        args.out.write_text(json.dumps({name: {key: float(value) for key, value in row.items()} for name, row in results.items()}, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

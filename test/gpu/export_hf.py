#!/usr/bin/env python3
"""Writes models of the transformers package, two layers each and with random weights, as ONNX files that test/gpu/measure.py can measure.

    python3 test/gpu/export_hf.py FOLDER [--layers N] [--dynamo] [NAME...]     (without names: all)

For each NAME the files of test/gpu/export.py. Encoders and prompts have 128 tokens and a mask; NAME_step makes one token behind 127. All are as their users export
them: with attention_mask as an input, and keys and values of all tokens as results. --dynamo: by torch's newer exporter (needs onnxscript)."""
import argparse, json, pathlib, sys, warnings

import numpy as np
import onnxruntime
import torch
import transformers as hf
from torch import nn
from transformers.cache_utils import DynamicCache

import export

TOKENS, WORDS = 128, 4000


class Called(nn.Module):
    """A module called with named arguments, for one of its results."""

    def __init__(self, module, arguments, result=0):
        super().__init__()
        self.module, self.arguments, self.result = module, arguments, result

    def forward(self, *values):
        return self.module(**dict(zip(self.arguments, values)), return_dict=True)[self.result]


class Step(nn.Module):
    """One token of a decoder: its id, a mask, keys and values of each layer -> scores, and keys and values with the token's own."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, ids, mask, *past):
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        made = self.module(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        return made.logits, *(values for layer in made.past_key_values.layers for values in (layer.keys, layer.values))


def ids(count):
    return torch.randint(0, WORDS, (1, count))


def mask(count):
    return torch.ones(1, count, dtype=torch.int64)


def text(module, result=0):
    return Called(module, ["input_ids", "attention_mask"], result), [ids(TOKENS), mask(TOKENS)]


def image(module):
    return Called(module, ["pixel_values"]), [torch.randn(1, 3, 224, 224)]


def step(module, layers, heads, size):
    return Step(module), [ids(1), mask(TOKENS), *(torch.randn(1, heads, TOKENS - 1, size) for _ in range(2 * layers))]


def models(n):
    llama = dict(hidden_size=576, intermediate_size=1536, num_hidden_layers=n, num_attention_heads=9, num_key_value_heads=3, vocab_size=WORDS)
    qwen = dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=n, num_attention_heads=14, num_key_value_heads=2, vocab_size=WORDS)
    return {
        "bert": lambda: text(hf.BertModel(hf.BertConfig(num_hidden_layers=n))),
        "distilbert": lambda: text(hf.DistilBertModel(hf.DistilBertConfig(n_layers=n))),
        "roberta": lambda: text(hf.RobertaModel(hf.RobertaConfig(num_hidden_layers=n))),
        "clip_text": lambda: (Called(hf.CLIPTextModel(hf.CLIPTextConfig(num_hidden_layers=n)), ["input_ids", "attention_mask"]), [ids(77), mask(77)]),
        "vit": lambda: image(hf.ViTModel(hf.ViTConfig(num_hidden_layers=n))),
        "dinov2": lambda: image(hf.Dinov2Model(hf.Dinov2Config(num_hidden_layers=n))),
        "gpt2_prompt": lambda: text(hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=n, use_cache=False)), "logits"),
        "llama_prompt": lambda: text(hf.LlamaForCausalLM(hf.LlamaConfig(**llama, use_cache=False)), "logits"),
        "gpt2_step": lambda: step(hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=n)), n, 12, 64),
        "llama_step": lambda: step(hf.LlamaForCausalLM(hf.LlamaConfig(**llama)), n, 3, 64),
        "qwen2_step": lambda: step(hf.Qwen2ForCausalLM(hf.Qwen2Config(**qwen)), n, 2, 64),
        "opt_step": lambda: step(hf.OPTForCausalLM(hf.OPTConfig(num_hidden_layers=n, vocab_size=WORDS)), n, 12, 64),
    }


def write(folder, name, module, inputs, dynamo):
    names = [f"input{i}" for i in range(len(inputs))]
    results = module(*inputs)
    outputs = [f"output{i}" if i else "output" for i in range(len(results) if isinstance(results, tuple) else 1)]
    path = folder / f"{name}.onnx"
    torch.onnx.export(module, tuple(inputs), path, input_names=names, output_names=outputs, opset_version=18 if dynamo else 17, dynamo=dynamo, external_data=False)
    arrays = {n: x.numpy() for n, x in zip(names, inputs)}
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, arrays)
    np.savez(folder / f"{name}.expected.npz", **dict(zip(outputs, expected)))
    np.savez(folder / f"{name}.inputs.npz", **arrays)
    wanted = torch.cat([torch.from_numpy(value).flatten() for value in expected])
    noise = {precision: export.noise_of(module, inputs, wanted, precision) for precision in export.MANTISSA_BITS}
    kinds = [[n, list(x.shape), "f" if x.is_floating_point() else "one"] for n, x in zip(names, inputs)]
    (folder / f"{name}.weights.json").write_text(json.dumps({"inputs": kinds, "noise": noise}))
    print(f"{name}: {path.stat().st_size / 1e6:.1f} MB, noise {noise}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dynamo", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    hf.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    known = models(args.layers)
    for name in args.names or known:
        torch.manual_seed(1)
        module, inputs = known[name]()
        write(args.folder, name, module.eval(), inputs, args.dynamo)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes a decoder of Hugging Face (Llama, Qwen, Gemma, Phi, GPT-2, ...) as an ONNX file that `tamp compile` makes tokens of:
input_ids, position_ids and caches of constant size go in; logits and the caches come out.

    export.py FOLDER|NAME -o llama.onnx [--places 2048] [--dtype float16|bfloat16|float32]

FOLDER is what save_pretrained wrote, NAME a model of the Hugging Face Hub. --places is the longest text with its prompt; --dtype is what weights and caches have, by
default as the checkpoint, float16 where that has float32. Needs torch, transformers and onnxscript."""
import argparse
import pathlib

import onnx
import torch
import transformers
from transformers.cache_utils import StaticCache, StaticLayer


class Places(StaticLayer):
    """Keys and values of a layer in their places; the new ones go behind `position`. All layers have all places: windows are masks then."""

    def __init__(self, keys, values, position):
        super().__init__(keys.shape[2])
        self.keys, self.values, self.position, self.is_initialized = keys, values, position, True

    def update(self, keys, values, *args, **kwargs):
        places = self.position + torch.arange(keys.shape[2], device=keys.device)
        self.keys, self.values = self.keys.index_copy(2, places, keys), self.values.index_copy(2, places, values)
        return self.keys, self.values

    def get_seq_length(self, *args):
        return self.position


class Step(torch.nn.Module):
    """New tokens of a text, and the keys and values of those before in their places -> scores of the last token, and the places with the new ones in them."""

    def __init__(self, model, places):
        super().__init__()
        self.model, self.places = model, places

    def forward(self, input_ids, position_ids, past):
        cache = StaticCache(config=self.model.config, max_cache_len=self.places)
        cache.layers = [Places(keys, values, position_ids[0, 0]) for keys, values in zip(past[::2], past[1::2])]
        logits = self.model(input_ids=input_ids, position_ids=position_ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        return logits, *(values for layer in cache.layers for values in (layer.keys, layer.values))


def load(source, dtype=None):
    """The model, in eval mode."""
    config = transformers.AutoConfig.from_pretrained(source)
    stored = getattr(config, "dtype", None)
    stored = getattr(torch, stored) if isinstance(stored, str) else stored
    chosen = getattr(torch, dtype) if dtype else torch.float16 if stored in (None, torch.float32) else stored
    return transformers.AutoModelForCausalLM.from_pretrained(source, dtype=chosen, attn_implementation="eager").eval()


def cache_shapes(config, places):
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return [(1, heads, places, size)] * (2 * text.num_hidden_layers)


def export(model, path, places):
    shapes, rows = cache_shapes(model.config, places), torch.export.Dim("seq", min=1, max=places - 1)
    names = [f"{layer}.{part}" for layer in range(len(shapes) // 2) for part in ("key", "value")]
    inputs = [torch.ones(1, 5, dtype=torch.int64), torch.arange(5)[None], [torch.zeros(shape, dtype=model.dtype) for shape in shapes]]
    with torch.no_grad():
        torch.onnx.export(Step(model, places), tuple(inputs), path, dynamo=True, external_data=True, dynamic_shapes=({1: rows}, {1: rows}, [None] * len(shapes)),
                          input_names=["input_ids", "position_ids", *(f"past_key_values.{name}" for name in names)], output_names=["logits", *(f"present.{name}" for name in names)])  # fmt: skip
    name_rows(path)


def name_rows(path):
    """Calls the number of new tokens `seq`: the exporter leaves it without a name where inputs are a list."""
    made = onnx.load(path, load_external_data=False)
    unnamed = made.graph.input[0].type.tensor_type.shape.dim[1].dim_param
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == unnamed:
                dimension.dim_param = "seq"
    onnx.save(made, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a folder or a name")
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path)
    parser.add_argument("--places", type=int, default=2048)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"))
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    export(load(arguments.source, arguments.dtype), arguments.output, arguments.places)


if __name__ == "__main__":
    main()

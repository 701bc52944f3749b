#!/usr/bin/env python3
"""Writes the graphs of this folder: decoders of transformers with a StaticCache by torch's dynamo exporter, without their weights (decoders.py draws some). Needs torch,
transformers and onnxscript; written with torch 2.15 and transformers 5.24.

    export.py FOLDER [NAME...]
"""
import pathlib
import sys

import onnx
import torch
import transformers as hf
from torch import nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache, StaticLayer
from transformers.models.t5.modeling_t5 import T5Stack
from transformers.models.whisper.modeling_whisper import WhisperDecoder

PLACES, WORDS, MEMORY, POSITIONS, LAYERS, HIDDEN, WIDE, HEADS, KV, SIZE = 160, 40, 10, 256, 2, 32, 48, 4, 2, 16
FEW = 16  # as many numbers of a tensor of floats stay, such as frequencies


class Gate(nn.Module):
    """In the place of a mixture of experts, which has no export."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, WIDE), nn.Linear(WIDE, HIDDEN)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x))), None


def gpt_oss(**common):
    made = hf.GptOssForCausalLM(hf.GptOssConfig(**common, head_dim=SIZE, sliding_window=8, layer_types=["sliding_attention", "full_attention"], num_local_experts=2,
                                                rope_scaling=None, attn_implementation="eager"))
    for layer in made.model.layers:
        layer.mlp = Gate()
    return made


def whisper():
    return WhisperDecoder(hf.WhisperConfig(d_model=HIDDEN, decoder_layers=LAYERS, decoder_attention_heads=HEADS, decoder_ffn_dim=WIDE, vocab_size=WORDS,
                                           max_target_positions=POSITIONS, max_source_positions=MEMORY, pad_token_id=0, bos_token_id=0, eos_token_id=0))


def t5():
    config = hf.T5Config(d_model=HIDDEN, d_kv=HIDDEN // HEADS, d_ff=WIDE, num_layers=LAYERS, num_heads=HEADS, vocab_size=WORDS, feed_forward_proj="gated-gelu", is_decoder=True)
    made = T5Stack(config)
    made.set_input_embeddings(nn.Embedding(WORDS, HIDDEN))
    return made


def models():
    common = dict(hidden_size=HIDDEN, intermediate_size=WIDE, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV, vocab_size=WORDS,
                  max_position_embeddings=POSITIONS, pad_token_id=None, bos_token_id=0, eos_token_id=1)
    scaled = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
    return {
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**common, tie_word_embeddings=True, rope_scaling=scaled)),
        "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**common, head_dim=SIZE, tie_word_embeddings=True)),
        "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**common, head_dim=SIZE, sliding_window=8, layer_types=["sliding_attention", "full_attention"],
                                                                   final_logit_softcapping=30.0, query_pre_attn_scalar=SIZE)),
        "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**common, head_dim=SIZE, sliding_window=8, query_pre_attn_scalar=SIZE, attn_implementation="eager")),
        "phi4": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**common, original_max_position_embeddings=POSITIONS, partial_rotary_factor=0.5)),
        "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, vocab_size=WORDS, n_positions=POSITIONS)),
        "smollm2": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**common | dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=1), tie_word_embeddings=True)),
        "gpt_oss": lambda: gpt_oss(**common),
        "whisper": whisper,
        "t5": t5,
    }


class Step(nn.Module):
    """Ids and their positions, keys and values of each layer -> scores, or hidden states of a decoder with a memory; keys and values with the new ones in their places."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, ids, position, k0, v0, k1, v1):
        cache = self.cache(position, [(k0, v0), (k1, v1)])
        return self.module(input_ids=ids, position_ids=position[None], past_key_values=cache, use_cache=True)[0], *self.kept(cache)

    def cache(self, position, past):
        """A StaticCache that is filled so far. Windows are masks: each layer has all places."""
        cache = StaticCache(config=self.module.config, max_cache_len=PLACES)
        cache.layers = []
        for keys, values in past:
            layer = StaticLayer(PLACES)
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values, layer.cumulative_length = keys.clone(), values.clone(), position[0].clone()
            cache.layers.append(layer)
        return cache

    @staticmethod
    def kept(cache):
        return (values for layer in cache.layers for values in (layer.keys, layer.values))


class StepWithMemory(Step):
    def forward(self, ids, position, memory, k0, v0, k1, v1):
        cache = self.cache(position, [(k0, v0), (k1, v1)])
        positions = {"position_ids": position[None]} if isinstance(self.module, WhisperDecoder) else {}
        caches = EncoderDecoderCache(cache, DynamicCache())
        return self.module(input_ids=ids, encoder_hidden_states=memory, past_key_values=caches, use_cache=True, **positions)[0], *self.kept(cache)


def without_weights(made):
    graph, names = made.graph, {}
    ports = {entry.name for entry in (*graph.input, *graph.output)}

    def short(name):
        return name if name in ports or not name else names.setdefault(name, f"v{len(names)}" + (".bias" if "bias" in name else ""))

    for node in graph.node:
        node.input[:], node.output[:] = [short(name) for name in node.input], [short(name) for name in node.output]
        for field in ("name", "doc_string", "metadata_props"):
            node.ClearField(field)
    for tensor in graph.initializer:
        tensor.name = short(tensor.name)
        count = 1
        for extent in tensor.dims:
            count *= extent
        if tensor.data_type == onnx.TensorProto.FLOAT and count > FEW:
            tensor.ClearField("raw_data")
    for entry in (*graph.input, *graph.output):
        entry.ClearField("metadata_props")
    for holder, fields in ((graph, ("value_info", "metadata_props", "doc_string")), (made, ("metadata_props", "functions", "doc_string"))):
        for field in fields:
            holder.ClearField(field)
    return made


def write(path, module):
    torch.manual_seed(1)
    config = module.config
    has_memory = isinstance(module, (WhisperDecoder, T5Stack))
    kv = HEADS if has_memory else getattr(config, "num_key_value_heads", HEADS)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads if not has_memory else HIDDEN // HEADS
    rows = torch.export.Dim("seq", min=1, max=PLACES)
    inputs = {"ids": torch.randint(0, WORDS, (1, 5)), "position": torch.arange(5), **({"memory": torch.randn(1, MEMORY, HIDDEN)} if has_memory else {}),
              **{f"past_{w}{layer}": torch.randn(1, kv, PLACES, size) for layer in range(LAYERS) for w in "kv"}}
    outputs = ["hidden" if has_memory else "logits", *(f"present_{w}{layer}" for layer in range(LAYERS) for w in "kv")]
    torch.onnx.export((StepWithMemory if has_memory else Step)(module.eval()), tuple(inputs.values()), path, input_names=list(inputs), output_names=outputs, opset_version=18,
                      dynamo=True, external_data=False, dynamic_shapes=({1: rows}, {0: rows}, *(None for _ in list(inputs)[2:])))
    onnx.save(without_weights(onnx.load(path)), path)


def main():
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    torch.set_grad_enabled(False)
    for name in names or models():
        write(folder / f"{name}.onnx", models()[name]())


if __name__ == "__main__":
    main()

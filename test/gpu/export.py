#!/usr/bin/env python3
"""Writes networks of torchvision, or of test/gpu/networks.py, as ONNX files that test/gpu/measure.py can measure.

    python3 test/gpu/export.py FOLDER [--batch N] [--half] NAME...

For each NAME: NAME.onnx (opset 17, by torch.onnx.export, weights inside), NAME.inputs.npz, NAME.expected.npz (by ONNX Runtime on the CPU) and
NAME.weights.json with `inputs` and `noise`. Weights are random with a fixed seed; statistics of batch normalisations are those of random images, so
that values keep their size through a deep network. Scales of layers, which torchvision starts at 1e-6, are 0.5: with 1e-6 a block would add nothing
that a test could see. With --half the model is one of f16, as
`module.half()` exports it, and what is expected is what a module of f32 with the same weights makes. `noise` is the network's relative L2 error when only inputs and weights of every convolution and Linear are rounded to the
precision; of a model of f16 at least its own error."""
import argparse, copy, json, pathlib, sys

import numpy as np
import onnxruntime
import torch
from torch import nn

import networks

MANTISSA_BITS = {"tf32": 10, "fp16": 10, "bf16": 7}


def rounded(values, precision):
    """fp32 values rounded to the precision's bits behind the point, to nearest even."""
    dropped = 23 - MANTISSA_BITS[precision]
    bits = values.detach().contiguous().view(torch.int32)
    half = (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1)
    return ((bits + half) & ~((1 << dropped) - 1)).view(torch.float32)


def prepare(module, shapes):
    for name, parameter in module.named_parameters():
        if name.endswith("layer_scale"):
            parameter.fill_(0.5)
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any():  # torchvision's heads of transformers, whose answer would be 0
            nn.init.normal_(layer.weight, std=layer.in_features ** -0.5)
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    if norms:
        module(*[torch.randn(8, *shape[1:]) for shape in shapes])
    return module.eval()


def joined(results):
    """All values of one result or several, one after another."""
    return torch.cat([value.flatten() for value in (results if isinstance(results, tuple) else (results,))])


def noise_of(module, inputs, wanted, precision):
    layers = [layer for layer in module.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    kept = [layer.weight.data for layer in layers]
    hooks = [layer.register_forward_pre_hook(lambda _, args: (rounded(args[0], precision), *args[1:])) for layer in layers]
    for layer in layers:
        layer.weight.data = rounded(layer.weight.data, precision)
    got = joined(module(*inputs))
    for layer, weight in zip(layers, kept):
        layer.weight.data = weight
    for hook in hooks:
        hook.remove()
    return float((got - wanted).norm() / wanted.norm())


def export(folder, name, batch, half):
    torch.manual_seed(1)
    module, shapes = networks.build(name)
    module = prepare(module.eval(), shapes)
    inputs = [torch.randn(batch or shape[0], *shape[1:]) for shape in shapes]
    if half:
        module, inputs = module.half().float(), [x.half().float() for x in inputs]
    names = [f"input{i}" for i in range(len(inputs))]
    results = module(*inputs)
    outputs = [f"output{i}" if i else "output" for i in range(len(results) if isinstance(results, tuple) else 1)]
    path = folder / f"{name}.onnx"
    written, given = (copy.deepcopy(module).half(), [x.half() for x in inputs]) if half else (module, inputs)
    torch.onnx.export(written, tuple(given), path, input_names=names, output_names=outputs, opset_version=17, dynamo=False)
    if half:
        expected = [value.numpy() for value in (results if isinstance(results, tuple) else (results,))]
    else:
        expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {n: x.numpy() for n, x in zip(names, inputs)})
    np.savez(folder / f"{name}.expected.npz", **dict(zip(outputs, expected)))
    np.savez(folder / f"{name}.inputs.npz", **{n: x.numpy() for n, x in zip(names, given)})
    wanted = torch.cat([torch.from_numpy(value).flatten() for value in expected])
    noise = {precision: noise_of(module, inputs, wanted, precision) for precision in MANTISSA_BITS}
    if half:  # the model's own: it rounds after every operator
        own = joined(written(*given)).float()
        noise = {precision: max(value, float((own - wanted).norm() / wanted.norm())) for precision, value in noise.items()}
    (folder / f"{name}.weights.json").write_text(json.dumps({"inputs": [[n, list(x.shape), "f"] for n, x in zip(names, inputs)], "noise": noise}))
    print(f"{name}: {path.stat().st_size / 1e6:.1f} MB, noise {noise}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--half", action="store_true", help="a model of f16")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.set_grad_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)  # it has no form in ONNX
    for name in args.names:
        export(args.folder, name, args.batch, args.half)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The networks that tamp is compared on, as PyTorch modules: the same layers, shapes and connections as the ONNX files. Weights are random,
since they do not matter for time. Networks are torchvision's where it has them, NASNet has timm's cells, and the rest is defined here."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


# --- recurrent networks ----------------------------------------------------------------------------------------------------


class CellLstm(nn.Module):
    """LSTM layers made of matrix products and elementwise operators, unrolled over the steps."""

    def __init__(self, hidden, layers):
        super().__init__()
        scale = hidden ** -0.5
        make = lambda *shape: nn.Parameter(torch.empty(*shape).uniform_(-scale, scale))
        self.hidden, self.layers = hidden, layers
        self.wx = nn.ParameterList([make(hidden, 4 * hidden) for _ in range(layers)])
        self.wh = nn.ParameterList([make(hidden, 4 * hidden) for _ in range(layers)])
        self.bias = nn.ParameterList([make(4 * hidden) for _ in range(layers)])

    def forward(self, x):
        h = [torch.zeros(1, self.hidden, device=x.device, dtype=x.dtype) for _ in range(self.layers)]
        c = list(h)
        for step in range(x.shape[0]):
            y = x[step]
            for layer in range(self.layers):
                gates = y @ self.wx[layer] + h[layer] @ self.wh[layer] + self.bias[layer]
                i, f, g, o = gates.chunk(4, 1)
                c[layer] = torch.sigmoid(f) * c[layer] + torch.sigmoid(i) * torch.tanh(g)
                y = h[layer] = torch.sigmoid(o) * torch.tanh(c[layer])
        return y


class StackedLstm(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        self.rnn = nn.LSTM(hidden, hidden, layers)

    def forward(self, x):
        return self.rnn(x)[0][-1]


class Seq2Seq(nn.Module):
    """Eight layers over the source, whose final states start eight layers over the target, then a projection."""

    def __init__(self, hidden=128, layers=8, words=1000):
        super().__init__()
        self.encoder, self.decoder, self.project = nn.LSTM(hidden, hidden, layers), nn.LSTM(hidden, hidden, layers), nn.Linear(hidden, words)

    def forward(self, source, target):
        return self.project(self.decoder(target, self.encoder(source)[1])[0])


class DeepSpeech2(nn.Module):
    """Two convolutions over [1, 1, frequencies, time], then seven recurrent layers over time."""

    def __init__(self, hidden=256, layers=7, letters=29):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
                                  nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        self.rnn, self.letters = nn.LSTM(32 * 41, hidden, layers), nn.Linear(hidden, letters)

    def forward(self, x):
        x = self.conv(x)
        x = x.reshape(x.shape[0], -1, x.shape[3]).permute(2, 0, 1)
        return self.letters(self.rnn(x)[0])


# --- convolutional networks ------------------------------------------------------------------------------------------------


def conv_norm(inputs, outputs, kernel, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs))


class CifarBlock(nn.Module):
    """Bottleneck of ResNeXt-29 16x64d (Xie et al. 2017): the middle convolution has 16 groups, 64 wide in the first stage."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        width = 16 * 64 * outputs // 256
        self.reduce, self.grouped, self.expand = conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride, groups=16), conv_norm(width, outputs, 1)
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.expand(F.relu(self.grouped(F.relu(self.reduce(x))))) + self.shortcut(x))


class ResNext29(nn.Module):
    def __init__(self):
        super().__init__()
        channels = [64, 256, 256, 256, 512, 512, 512, 1024, 1024, 1024]
        blocks = [CifarBlock(a, b, 2 if 64 < a < b else 1) for a, b in zip(channels, channels[1:])]
        self.features, self.classes = nn.Sequential(conv_norm(3, 64, 3), nn.ReLU(), *blocks), nn.Linear(1024, 10)

    def forward(self, x):
        return self.classes(self.features(x).mean((2, 3)))


class NasnetCifar(nn.Module):
    """NASNet-A (6 @ 768) on 32x32 images: three stages of six cells, 32 filters in the first, a reduction cell before each other."""

    def __init__(self, filters=32, cells=6):
        super().__init__()
        from timm.models.nasnet import FirstCell, NormalCell, ReductionCell0, ReductionCell1

        self.stem = conv_norm(3, 96, 3)
        normal = lambda before, beside, width: NormalCell(before, width, beside, width)
        a, b, c = filters, 2 * filters, 4 * filters
        stages = [[normal(96, 96, a), normal(96, 6 * a, a)] + [normal(6 * a, 6 * a, a) for _ in range(cells - 2)]]
        for width, half in ((b, a), (c, b)):
            stages.append([FirstCell(6 * half, half, 4 * width, width), normal(4 * width, 6 * width, width)] + [normal(6 * width, 6 * width, width) for _ in range(cells - 2)])
        self.stages = nn.ModuleList(nn.ModuleList(stage) for stage in stages)
        self.reductions = nn.ModuleList([ReductionCell0(6 * a, b, 6 * a, b), ReductionCell1(6 * b, c, 6 * b, c)])
        self.classes = nn.Linear(6 * c, 10)

    def forward(self, x):
        before = now = self.stem(x)
        for i, stage in enumerate(self.stages):
            if i > 0:
                before, now = now, self.reductions[i - 1](now, before)
            for cell in stage:
                before, now = now, cell(now, before)
        return self.classes(F.relu(now).mean((2, 3)))


class SeparableNode(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.Conv2d(inputs, outputs, 1, bias=False),
                                  nn.BatchNorm2d(outputs))

    def forward(self, x):
        return self.body(x)


def small_world(draw, nodes=32, neighbours=4, rewired=0.75):
    """Watts-Strogatz graph, edges from the lower to the higher number; -> for each node the nodes before it."""
    edges = set()
    for node in range(nodes):
        for distance in range(1, neighbours // 2 + 1):
            other = (node + distance) % nodes
            if draw.random() < rewired:
                taken = True
                while taken:
                    other = draw.randrange(nodes)
                    taken = other == node or (min(node, other), max(node, other)) in edges
            edges.add((min(node, other), max(node, other)))
    return [sorted(a for a, b in edges if b == node) for node in range(nodes)]


class RandWire(nn.Module):
    """Randomly wired network (Xie et al. 2019), small regime: three stages of 32 nodes, 78 channels, seed 1."""

    def __init__(self, channels=78, seed=1):
        super().__init__()
        draw = random.Random(seed)
        self.stem = nn.Sequential(conv_norm(3, channels // 2, 3, 2), SeparableNode(channels // 2, channels, 2))
        self.wiring, self.stages = [], nn.ModuleList()
        for inputs, outputs in ((channels, channels), (channels, 2 * channels), (2 * channels, 4 * channels)):
            wiring = small_world(draw)
            self.wiring.append(wiring)
            self.stages.append(nn.ModuleList(SeparableNode(outputs if sources else inputs, outputs, 1 if sources else 2) for sources in wiring))
        self.head, self.classes = nn.Sequential(conv_norm(4 * channels, 1280, 1), nn.ReLU()), nn.Linear(1280, 1000)

    def forward(self, x):
        x = self.stem(x)
        for wiring, nodes in zip(self.wiring, self.stages):
            values = []
            for sources, node in zip(wiring, nodes):
                values.append(node(sum((values[s] for s in sources[1:]), values[sources[0]]) if sources else x))
            read = {source for sources in wiring for source in sources}
            ends = [value for i, value in enumerate(values) if i not in read]
            x = sum(ends[1:], ends[0]) / len(ends)
        return self.classes(self.head(x).mean((2, 3)))


# --- by name ---------------------------------------------------------------------------------------------------------------

IMAGE, SMALL_IMAGE = (1, 3, 224, 224), (1, 3, 32, 32)


# --- transformers ----------------------------------------------------------------------------------------------------------


class Ids(tuple):
    """A shape of token ids below `words`."""

    words = 30000


class EncoderLayer(nn.Module):
    """BERT's: normalised behind attention and behind the two products."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.narrow(F.gelu(self.wide(x))))


class BertBase(nn.Module):
    """Without pooler; q, k and v are one product and there is no mask, which favours this peer: the ONNX file has three products and a mask."""

    def __init__(self, layers=12, width=768, heads=12, inner=3072, words=30522, positions=512):
        super().__init__()
        self.words, self.positions, self.kinds = nn.Embedding(words, width), nn.Embedding(positions, width), nn.Embedding(2, width)
        self.norm, self.layers = nn.LayerNorm(width), nn.ModuleList(EncoderLayer(width, heads, inner) for _ in range(layers))

    def forward(self, ids):
        x = self.norm(self.words(ids) + self.positions.weight[:ids.shape[1]] + self.kinds.weight[0])
        for layer in self.layers:
            x = layer(x)
        return x


class RootMeanSquareNorm(nn.Module):
    """Llama's, in operators: torch.nn.RMSNorm has no form in opset 17."""

    def __init__(self, width, epsilon=1e-5):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


class DecoderLayer(nn.Module):
    """One layer of a decoder for one new token: GPT-2's (LayerNorm, gelu) or Llama's (RMSNorm, rotated positions, grouped heads, a gate)."""

    def __init__(self, width, heads, kv_heads, inner, llama):
        super().__init__()
        self.heads, self.kv_heads, self.head, self.llama = heads, kv_heads, width // heads, llama
        norm = RootMeanSquareNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(width), norm(width)
        self.q, self.k, self.v = (nn.Linear(width, n * self.head, bias=not llama) for n in (heads, kv_heads, kv_heads))
        self.out, self.up, self.down = nn.Linear(width, width, bias=not llama), nn.Linear(width, inner, bias=not llama), nn.Linear(inner, width, bias=not llama)
        self.gate = nn.Linear(width, inner, bias=False) if llama else None

    def forward(self, x, rotation, past_k, past_v):
        y = self.norm1(x)
        split = lambda layer, n: layer(y).view(1, 1, n, self.head).transpose(1, 2)
        q, k, v = split(self.q, self.heads), split(self.k, self.kv_heads), split(self.v, self.kv_heads)
        if self.llama:
            turn = lambda t: t * rotation[0] + torch.cat([-t[..., self.head // 2:], t[..., :self.head // 2]], -1) * rotation[1]
            q, k = turn(q), turn(k)
        keys, values = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        if self.kv_heads < self.heads:  # a view: each head of keys for several of queries
            shared = lambda t: t[:, :, None].expand(-1, -1, self.heads // self.kv_heads, -1, -1).reshape(1, self.heads, -1, self.head)
            keys, values = shared(keys), shared(values)
        mixed = torch.softmax(q @ keys.transpose(2, 3) * self.head ** -0.5, -1) @ values
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y) if self.llama else F.gelu(self.up(y), approximate="tanh")), k, v


class DecoderStep(nn.Module):
    """One token of a decoder: its embedding and `past` keys and values of each layer -> the scores of all words, and the token's own keys and values."""

    def __init__(self, layers, width, heads, kv_heads, inner, words, past, llama):
        super().__init__()
        self.past, self.llama, self.cache = past, llama, (1, kv_heads, past, width // heads)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, kv_heads, inner, llama) for _ in range(layers))
        self.norm, self.words = (RootMeanSquareNorm if llama else nn.LayerNorm)(width), nn.Linear(width, words, bias=False)

    def shapes(self):
        rotation = [(1, 1, 1, self.cache[3])] * 2 if self.llama else []
        return [(1, 1, self.words.in_features), *rotation, *[self.cache] * (2 * len(self.layers))]

    def forward(self, x, *more):
        rotation, past = more[:2] if self.llama else (), more[2:] if self.llama else more
        made = []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, rotation, past[2 * i], past[2 * i + 1])
            made += [k, v]
        return self.words(self.norm(x)), *made


# layers, width, heads, heads of keys, inner width, words, tokens before this one, as in Llama
DECODERS = {"gpt2_decode_p127": (12, 768, 12, 12, 3072, 50257, 127, False), "gpt2_decode_p1023": (12, 768, 12, 12, 3072, 50257, 1023, False),
            "smollm_135m_decode_p127": (30, 576, 9, 3, 1536, 49152, 127, True)}


class UNet(nn.Module):
    """The U-Net of Ronneberger et al. with padded convolutions and BatchNorm: four levels down by max pooling, four up by transposed convolutions."""

    def __init__(self, width=64, classes=2):
        super().__init__()
        channels = [width << level for level in range(5)]
        up = channels[-2::-1]
        twice = lambda i, o: nn.Sequential(*[layer for c in (i, o) for layer in (nn.Conv2d(c, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())])
        self.down = nn.ModuleList([twice(i, o) for i, o in zip([3, *channels], channels)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * c, c, 2, 2) for c in up])
        self.joined = nn.ModuleList([twice(2 * c, c) for c in up])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        maps = []
        for level, layer in enumerate(self.down):
            x = layer(x if level == 0 else F.max_pool2d(x, 2))
            maps.append(x)
        for up, layer, before in zip(self.up, self.joined, maps[-2::-1]):
            x = layer(torch.cat([before, up(x)], 1))
        return self.head(x)


class Segmented(nn.Module):
    """A segmentation network of torchvision without the dictionary around its result."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)["out"]


def build(name):
    """-> (module, input shapes)"""
    module, *shapes = build_one(name)
    return module, shapes


def build_one(name):
    import torchvision.models as models

    if name == "mnist_mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 1, 28, 28)
    if name == "lstm_cells_l2_h256_t8":
        return CellLstm(256, 2), (8, 1, 256)
    if name == "lstm_cells_l10_h256_t100":
        return CellLstm(256, 10), (100, 1, 256)
    if name.startswith("lstm_l10_h256_t100"):
        return StackedLstm(256, 10), (100, 1, 256)
    if name == "seq2seq":
        return Seq2Seq(), (100, 1, 128), (30, 1, 128)
    if name == "deepspeech2":
        return DeepSpeech2(), (1, 1, 161, 300)
    if name == "bert_base_s128":
        return BertBase(), Ids((1, 128))
    if name in DECODERS:
        module = DecoderStep(*DECODERS[name])
        return module, *module.shapes()
    if name == "resnext29_16x64d":
        return ResNext29(), SMALL_IMAGE
    if name == "nasnet_a_cifar":
        return NasnetCifar(), SMALL_IMAGE
    if name == "randwire_ws32":
        return RandWire(), IMAGE
    if name == "inception_v3":
        return models.inception_v3(weights=None, aux_logits=False, init_weights=False), (1, 3, 299, 299)
    if name == "unet":
        return UNet(), (1, 3, 256, 256)
    if hasattr(models, name):
        return getattr(models, name)(weights=None), IMAGE
    if hasattr(models.segmentation, name):
        return Segmented(getattr(models.segmentation, name)(weights=None, weights_backbone=None)), (1, 3, 520, 520)
    import timm

    if not timm.is_model(name):
        raise ValueError(f"no PyTorch definition of '{name}'")
    module = timm.create_model(name)
    return module, (1, *module.pretrained_cfg["input_size"])


def flops_of(module, inputs):
    """Multiply-adds times two of the convolutions and fully connected layers in one run, to check that the module is the network of the ONNX file."""
    total = 0

    def add(layer, _, output):
        nonlocal total
        weight = layer.weight
        total += 2 * output.numel() * weight[0].numel()

    def add_attention(layer, _, outputs):  # this layer multiplies by its weights without calling its Linear: Q, K and V, and the output
        nonlocal total
        total += 2 * outputs[0].numel() * 4 * layer.embed_dim

    hooks = [layer.register_forward_hook(add) for layer in module.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    hooks += [layer.register_forward_hook(add_attention) for layer in module.modules() if isinstance(layer, nn.MultiheadAttention)]
    module(*inputs)
    for hook in hooks:
        hook.remove()
    return total

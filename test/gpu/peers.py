"""The networks of the zoo as PyTorch modules, for timing PyTorch beside tamp: eager in a CUDA graph (recurrent layers are cuDNN's)
and torch.compile. Weights do not matter for time."""
import torch
import torch.nn as nn


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
    if name == "inception_v3":
        return models.inception_v3(weights=None, aux_logits=False, init_weights=False), (1, 3, 299, 299)
    return getattr(models, name)(weights=None), (1, 3, 224, 224)


def microseconds(call, runs=50, rounds=7):
    """Median over rounds of the mean of `runs` calls, by CUDA events."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / runs)
    return sorted(times)[len(times) // 2]


def set_precision(precision):
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def ready(name, precision, channels_last):
    """-> (module, inputs) on the GPU, or None where the layout makes no difference."""
    module, shapes = build(name)
    if channels_last and len(shapes[0]) != 4:
        return None
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    module, inputs = module.eval().cuda().to(dtype), [torch.randn(*shape, device="cuda", dtype=dtype) for shape in shapes]
    if channels_last:
        module, inputs = module.to(memory_format=torch.channels_last), [x.to(memory_format=torch.channels_last) for x in inputs]
    return module, inputs


def captured(module, inputs):
    """The call as the replay of a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    return graph.replay


def graph_time(name, precision):
    """Eager PyTorch in a CUDA graph: the better of contiguous and channels-last."""
    set_precision(precision)
    pairs = [ready(name, precision, channels_last) for channels_last in (False, True)]
    return min(microseconds(captured(*pair)) for pair in pairs if pair)


def compiled_time(name, precision):
    """torch.compile, mode reduce-overhead (CUDA graphs): the better of contiguous and channels-last."""
    set_precision(precision)
    times = []
    for channels_last in (False, True):
        pair = ready(name, precision, channels_last)
        if not pair:
            continue
        torch._dynamo.reset()
        call = torch.compile(pair[0], mode="reduce-overhead")
        times.append(microseconds(lambda: call(*pair[1])))
    return min(times)

"""The networks of the zoo as PyTorch modules, for timing eager PyTorch in a CUDA graph beside tamp. Weights do not matter for time."""
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


def build(name):
    """-> (module, input shape)"""
    import torchvision.models as models

    if name == "mnist_mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 1, 28, 28)
    if name == "lstm_cells_l2_h256_t8":
        return CellLstm(256, 2), (8, 1, 256)
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


def graph_time(name, precision):
    """Eager PyTorch in a CUDA graph, batch 1: the better of contiguous and channels-last."""
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    best = None
    for channels_last in (False, True):
        module, shape = build(name)
        if channels_last and len(shape) != 4:
            continue
        module, x = module.eval().cuda(), torch.randn(*shape, device="cuda")
        if channels_last:
            module, x = module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                module(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            module(x)
        time = microseconds(graph.replay)
        best = time if best is None else min(best, time)
    return best

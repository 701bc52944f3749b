"""The four networks of the IOS paper, as its authors' repository defines them (python/ios/models of mit-han-lab/inter-operator-scheduler, MIT
licence; described here in this builder's words): batch 1, every convolution with a bias and a ReLU unless said otherwise, no batch
normalisation, no dense layer at the end. They differ from the networks of the same names elsewhere.
"""
from network import Network


def conv_relu(net, x, channels, kernel, stride=1, pad=0):
    return net.relu(net.conv(x, channels, kernel, stride, pad))


# --- Inception V3 ------------------------------------------------------------------------------------------------------------


def inception_v3():
    net = Network("ios_inception_v3")
    conv = lambda x, *args, **kwargs: conv_relu(net, x, *args, **kwargs)
    x = conv(net.input("input", [1, 3, 299, 299]), 32, 3, 2)
    x = net.max_pool(conv(conv(x, 32, 3), 64, 3, pad=1))
    x = net.max_pool(conv(conv(x, 80, 1), 192, 3))
    for pooled in (32, 64, 64):
        x = net.concat(conv(x, 64, 1), conv(conv(x, 48, 1), 64, 5, pad=2), conv(conv(conv(x, 64, 1), 96, 3, pad=1), 96, 3, pad=1),
                       conv(net.average_pool(x), pooled, 1))
    x = net.concat(conv(x, 384, 3, 2), conv(conv(conv(x, 64, 1), 96, 3, pad=1), 96, 3, 2), net.max_pool(x))
    wide, tall = dict(kernel=(1, 7), pad=(0, 3)), dict(kernel=(7, 1), pad=(3, 0))
    for c in (128, 160, 160, 192):
        one = conv(conv(conv(x, c, 1), c, **wide), 192, **tall)
        two = conv(conv(conv(conv(conv(x, c, 1), c, **tall), c, **wide), c, **tall), 192, **wide)
        x = net.concat(conv(x, 192, 1), one, two, conv(net.average_pool(x), 192, 1))
    x = net.concat(conv(conv(x, 192, 1), 320, 3, 2), conv(conv(conv(conv(x, 192, 1), 192, **wide), 192, **tall), 192, 3, 2), net.max_pool(x))
    for _ in range(2):
        fork = lambda y: (conv(y, 384, (1, 3), pad=(0, 1)), conv(y, 384, (3, 1), pad=(1, 0)))
        x = net.concat(conv(x, 320, 1), *fork(conv(x, 384, 1)), *fork(conv(conv(x, 448, 1), 384, 3, pad=1)), conv(net.average_pool(x), 192, 1))
    net.output(net.global_average_pool(x))
    return net


# --- SqueezeNet with the complex bypass --------------------------------------------------------------------------------------


def squeezenet():
    net = Network("ios_squeezenet")
    conv = lambda x, *args, **kwargs: conv_relu(net, x, *args, **kwargs)

    def fire(x, squeezed, expanded):
        s = conv(x, squeezed, 1)
        y = net.concat(conv(s, expanded, 3, pad=1), conv(s, expanded, 1))
        return net.add(y, x if net.shapes[x] == net.shapes[y] else conv(x, 2 * expanded, 1))

    x = net.max_pool(conv(net.input("input", [1, 3, 224, 224]), 96, 7, 2, 3))
    for sizes in ((16, 64), (16, 64), (32, 128)):
        x = fire(x, *sizes)
    x = net.max_pool(x)
    for sizes in ((32, 128), (48, 192), (48, 192), (64, 256)):
        x = fire(x, *sizes)
    x = fire(net.max_pool(x), 64, 256)
    net.output(net.global_average_pool(conv(x, 1000, 1)))
    return net


# --- RandWire ----------------------------------------------------------------------------------------------------------------

# Edges of the random graphs (Watts-Strogatz, k 4, p 0.75) that the published numbers are of, "from: to to ..", one graph a stage.
WIRES = [
    """0: 6 7 9; 1: 6 7 15; 2: 6 10 11; 3: 9 13; 4: 6 9 13 14 15; 5: 8 10 15; 6: 8 9 12; 7: 11 15; 8: 11; 9: 11; 10: 14; 11: 14; 12: 14;
       13: 14 15; 14: 15""",
    """0: 2 13 25 30; 1: 8 20 22; 2: 3 16 24 30; 3: 6 7 26; 4: 12 22; 5: 15 21 27; 6: 11 21 31; 7: 8 9 15; 8: 23 27; 9: 10 11 19; 10: 12 30;
       11: 13 15 17 28; 12: 14 26 31; 13: 14 16 21 31; 14: 16 28 29; 15: 19 22; 16: 18; 17: 18 19; 18: 24 31; 20: 21 22; 21: 23 26; 22: 31;
       24: 31; 25: 26; 26: 31; 27: 29; 29: 30 31""",
    """0: 9 11 14 17 31; 1: 2 3 31; 2: 4 11 12 14 30; 3: 4 25; 4: 9 20 29; 5: 6 27; 6: 7 21 27; 7: 30 31; 8: 10 25; 9: 10 14; 10: 11 16 22 28;
       11: 16 24; 12: 13 14 15 16; 13: 14 22 26; 14: 23; 15: 29; 16: 21; 17: 26; 18: 19 20; 19: 22 27; 20: 22; 22: 25 30; 23: 27; 24: 25 26;
       25: 28; 26: 28; 27: 28 29; 28: 29; 29: 30 31; 30: 31""",
    """0: 17 20 24; 1: 10 22 26 29; 2: 19 22 28; 3: 6 7 8 9; 4: 5 7 26; 5: 6 23 24; 6: 8; 7: 8 11 18 23; 8: 11 25; 9: 11 19 27 29; 10: 12 17 30;
       11: 14 23 30; 12: 13 25 31; 13: 16 27 28; 14: 24; 15: 16 18 21; 16: 17 22; 17: 21; 18: 24; 19: 22; 20: 23 28 29; 22: 25; 23: 30; 24: 26;
       25: 28; 27: 28 29 30; 29: 31; 30: 31""",
]


def edges_of(wires):
    for line in wires.split(";"):
        source, targets = line.split(":")
        for target in targets.split():
            yield int(source), int(target)


def separable(net, x, channels, kernel, stride):
    """ReLU, depthwise, pointwise."""
    x = net.conv(net.relu(x), net.shapes[x][1], kernel, stride, kernel // 2, groups=net.shapes[x][1], name="depthwise")
    return net.conv(x, channels, 1, name="pointwise")


def randwire():
    net = Network("ios_randwire")
    x = net.conv(net.input("input", [1, 3, 224, 224]), 77, 3, 2, 1)
    for wires, channels in zip(WIRES, (154, 308, 616, 1232)):
        edges = list(edges_of(wires))
        made = []
        for node in range(1 + max(target for _, target in edges)):
            sources = [made[source] for source, target in edges if target == node]
            made.append(separable(net, net.add(*sources) if sources else x, channels, 3, 1 if sources else 2))
        needed = {source for source, _ in edges}
        x = net.add(*[y for node, y in enumerate(made) if node not in needed])
    net.output(net.global_average_pool(net.conv(net.relu(x), 1280, 1)))
    return net


# --- NASNet-A large ----------------------------------------------------------------------------------------------------------


def nasnet():
    net = Network("ios_nasnet")
    point = lambda x, channels, stride=1: net.conv(net.relu(x), channels, 1, stride, name="pointwise")

    def sep(kernel, x, channels, stride=1, stem=False):
        x = separable(net, x, channels if stem else net.shapes[x][1], kernel, stride)
        return separable(net, x, channels, kernel, 1)

    pool = lambda x: net.max_pool(x, pad=1)
    average = lambda x, stride=1: net.average_pool(x, stride=stride)

    def stem0(x, f):
        left = point(x, f)
        c0 = net.add(sep(5, left, f, 2), sep(7, x, f, 2, stem=True))
        c1 = net.add(pool(left), sep(7, x, f, 2, stem=True))
        return net.concat(c1, net.add(average(left, 2), sep(5, x, f, 2, stem=True)), net.add(average(c0), c0), net.add(sep(3, c0, f), pool(left)))

    def stem1(x, before, f):
        left = point(x, f)
        right = net.add(point(before, f // 2, 2), point(before, f // 2, 2))
        c0 = net.add(sep(5, left, f, 2), sep(7, right, f, 2))
        c1 = net.add(pool(left), sep(7, right, f, 2))
        return net.concat(c1, net.add(average(left, 2), sep(5, right, f, 2)), net.add(average(c0), c1), net.add(sep(3, c0, f), pool(left)))

    def behind(left, right, f):
        return [net.add(sep(5, left, f), sep(3, left, f)), net.add(average(right), left), net.add(average(left), average(left)),
                net.add(sep(3, right, f), right)]

    def first(x, before, half, f):
        left, right = net.concat(point(before, half, 2), point(before, half, 2)), point(x, f)
        return net.concat(left, net.add(sep(5, right, f), sep(3, right, f)), *behind(left, right, f))

    def normal(x, before, f):
        left, right = point(before, f), point(x, f)
        return net.concat(net.add(sep(5, right, f), sep(3, left, f)), *behind(left, right, f))

    def reduction(x, before, f):
        left, right = point(before, f), point(x, f)
        c0 = net.add(sep(5, right, f, 2), sep(7, left, f, 2))
        c1 = net.add(pool(right), sep(7, left, f, 2))
        return net.concat(c1, net.add(average(right, 2), sep(5, left, f, 2)), net.add(c1, average(c0)), net.add(sep(3, c0, f), pool(right)))

    f = 168
    v = [net.conv(net.input("input", [1, 3, 331, 331]), 96, 3, 2)]
    v.append(stem0(v[0], 42))
    v.append(stem1(v[1], v[0], 84))
    v.append(first(v[2], v[1], f // 2, f))
    for _ in range(5):
        v.append(normal(v[-1], v[-2], f))
    for width in (2 * f, 4 * f):
        v.append(reduction(v[-1], v[-2], width))
        v.append(first(v[-1], v[-3], width // 2, width))
        for _ in range(5):
            v.append(normal(v[-1], v[-2], width))
    net.output(net.global_average_pool(net.relu(v[-1])))
    return net


NETWORKS = {"inception_v3": inception_v3, "randwire": randwire, "nasnet": nasnet, "squeezenet": squeezenet}

#!/usr/bin/env python3
"""Values of PyTorch for small networks, layer kind by layer kind: what tests/numerics/layers holds ours against.

usage: layers.py FILE [--random SEED]    (without --random: the cases whose values are committed)

Both sides draw parameters, buffers and images from PyTorch's generator, seeded with the case's number, so that only results are
written. PyTorch computes in double on the same f32 numbers: what differs is ours. Each case is trained on forward and backward
for some batches, without a step between, and evaluated for others; written are the loss and counts of each batch, the gradients
of each trainable tensor (some of it and the norm of all), and the running statistics at the end. With each go "terms", the largest
sum of absolute values that cancelled into an element of it, and "off" and "noise", by how much PyTorch's own f32 is off: a tolerance
has to know what f32 can do.
"""
import argparse
import copy
import json
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

POINTS_MAX = 12  # of a tensor, in the committed file
LIVE_POINTS_MAX = 1000
RANDOM_CASES = 40
CLASSES = 7


def conv(name, out, kernel, stride=1, pad=0, bias=True, **more):
    return {"op": "conv2d", "name": name, "out": out, "kernel": kernel, "stride": stride, "pad": pad, "bias": bias, **more}


def norm(name, **more):
    return {"op": "batch_norm", "name": name, **more}


def relu(name, **more):
    return {"op": "relu", "name": name, **more}


def pool(name, kernel, stride, pad=0, **more):
    return {"op": "max_pool", "name": name, "kernel": kernel, "stride": stride, "pad": pad, **more}


def linear(name, out, bias=True, **more):
    return {"op": "linear", "name": name, "out": out, "bias": bias, **more}


def flatten(name, **more):
    return {"op": "flatten", "name": name, **more}


def head(bias=True, classes=CLASSES):
    return [flatten("flat"), linear("fc", classes, bias)]


class Degenerate(Exception):
    """A case whose result hangs on rounding: a channel that hardly varies, so that its norm divides rounding by rounding, or a
    ReLU or a maximum within rounding of its other side."""


class Net(nn.Module):
    """The layers of a case, one after the other; "input" names another than the one before."""

    def __init__(self, case):
        super().__init__()
        self.layers = case["layers"]
        self.smoothing = case.get("smoothing", 0.0)
        self.strict = False
        self.parts = nn.ModuleDict()
        shapes = {"input": torch.Size(case["input"])}
        self.order = []
        before = "input"
        for layer in self.layers:
            name, source = layer["name"], layer.get("input", before)
            self.order.append((name, source))
            part = self.make(layer, shapes[source])
            if part is not None:
                self.parts[name] = part
            with torch.no_grad():
                values = {k: torch.zeros(2, *shape) for k, shape in shapes.items()}
                shapes[name] = self.run(layer, source, values).shape[1:]
            before = name

    @staticmethod
    def make(layer, shape):
        if layer["op"] == "conv2d":
            return nn.Conv2d(shape[0], layer["out"], layer["kernel"], layer["stride"], layer["pad"], bias=layer["bias"])
        if layer["op"] == "batch_norm":
            return nn.BatchNorm2d(shape[0]) if len(shape) == 3 else nn.BatchNorm1d(shape[0])
        if layer["op"] == "linear":
            return nn.Linear(shape[0], layer["out"], layer["bias"])
        return None

    def run(self, layer, source, values):
        x, op = values[source], layer["op"]
        if op == "relu":
            self.check_margins(x.abs())
            return F.relu(x)
        if op == "max_pool":
            window = (layer["kernel"], layer["stride"], layer["pad"])
            if self.strict:
                padded = F.pad(x, [window[2]] * 4, value=-1e30)
                best = padded.unfold(2, window[0], window[1]).unfold(3, window[0], window[1]).flatten(-2).topk(2).values
                self.check_margins(best[..., 0] - best[..., 1])
            return F.max_pool2d(x, *window)
        if op == "avg_pool":
            return F.adaptive_avg_pool2d(x, 1)
        if op == "flatten":
            return x.flatten(1)
        if op == "add":
            return x + values[layer["second"]]
        return self.parts[layer["name"]](x)

    def check_margins(self, margins):
        if self.strict and ((margins > 0) & (margins < 1e-5)).any():
            raise Degenerate

    def forward(self, x):
        values = {"input": x}
        for layer, (name, source) in zip(self.layers, self.order):
            values[name] = self.run(layer, source, values)
        return values[self.layers[-1]["name"]]

    def tensors(self):
        """In the order of the layers, weight before bias before running statistics."""
        for name, part in self.parts.items():
            for suffix in ("weight", "bias", "running_mean", "running_var"):
                tensor = getattr(part, suffix, None)
                if tensor is not None:
                    yield f"{name}.{suffix}", tensor


def draw(generator, shape, low, high, quantum):
    values = torch.empty(math.prod(shape)).uniform_(low, high, generator=generator)
    if quantum:
        values = torch.round(values / quantum) * quantum
    return values.reshape(shape)


def brief(value):
    return float(f"{value:.2e}")


def spread(values, points):
    """The norm of all, and every k-th so that at most `points` are kept."""
    flat = values.detach().double().flatten()
    stride = (flat.numel() + points - 1) // points
    return {"norm": flat.norm().item(), "stride": stride, "values": [float(f"{v:.8g}") for v in flat[::stride].tolist()]}


def counts(scores, labels):
    """Top-1 and top-5. topk orders equal scores as it likes; ours puts the lower class first."""
    own = scores.gather(1, labels[:, None])
    lower = torch.arange(scores.shape[1]) < labels[:, None]
    before = ((scores > own) | ((scores == own) & lower)).sum(1)
    found = [int((before < k).sum()) for k in (1, 5)]
    if all(len(row.unique()) == len(row) for row in scores):
        top = scores.topk(min(5, scores.shape[1])).indices == labels[:, None]
        assert found == [int(top[:, 0].sum()), int(top.sum())]
    return found


def term_sums(part, x, g):
    """Of a layer's gradients, the largest sum of their terms' absolute values: what rounding is proportional to."""
    x, g = x.detach(), g.detach().abs()
    if isinstance(part, nn.Conv2d):
        yield torch.nn.grad.conv2d_weight(x.abs(), part.weight.shape, g, part.stride, part.padding)
        yield g.sum((0, 2, 3))
    elif isinstance(part, nn.Linear):
        yield g.T @ x.abs()
        yield g.sum(0)
    else:
        dims = [0, 2, 3][:1 if x.dim() == 2 else 3]
        centred = x - x.mean(dims, keepdim=True)
        yield (g * (centred / (centred.square().mean(dims, keepdim=True) + part.eps).sqrt()).abs()).sum(dims)
        yield g.sum(dims)


def check_channels(x):
    dims = [0, 2, 3][:1 if x.dim() == 2 else 3]
    if (x.var(dims, unbiased=False) < 1e-3 * x.square().mean(dims) + 1e-4).any():
        raise Degenerate


def watch(net):
    """Fills the returned dictionary in every backward: name of a tensor, its term_sums."""
    found = {}

    def hook(name):
        def forward_hook(part, inputs, output):
            x = inputs[0]
            if part.training and isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                check_channels(x.detach())
            if output.requires_grad:
                output.register_hook(lambda g: found.update(
                    (f"{name}.{suffix}", sums.max().item())
                    for suffix, sums in zip(("weight", "bias"), term_sums(part, x, g))))
        return forward_hook

    for name, part in net.parts.items():
        part.register_forward_hook(hook(name))
    return found


def step(net, batch, images, labels):
    net.train(batch["training"])
    net.zero_grad()
    scores = net(images)
    loss = F.cross_entropy(scores, labels, label_smoothing=net.smoothing if batch["training"] else 0.0)
    if batch["training"]:
        loss.backward()
    return loss, scores


def noise(grads):
    """How far off PyTorch's f32 is anywhere in the net, relative to what it added up: layers hand it on to one another."""
    most = max(grad["terms"] for grad in grads)
    return brief(max((grad["off"] / grad["terms"] for grad in grads if grad["terms"] > 1e-3 * most), default=0.0))


def batch_values(nets, terms, batch, images, labels, points):
    """`nets`: in double and in f32, whose distance is how well conditioned the values are."""
    net, single = nets
    loss, scores = step(net, batch, images.double(), labels)
    single_loss, _ = step(single, batch, images, labels)
    top1, top5 = counts(scores.detach(), labels)
    found = {**batch, "loss": loss.item(), "loss_off": brief(abs(single_loss.item() - loss.item())), "top1": top1, "top5": top5}
    if batch["training"]:
        found["grads"] = {name: {**spread(tensor.grad, points), "terms": brief(terms[name]),
                                 "off": brief((other.grad - tensor.grad).abs().max().item())}
                          for (name, tensor), (_, other) in zip(net.tensors(), single.tensors())
                          if isinstance(tensor, nn.Parameter)}
        # One run of PyTorch may be lucky: large scores alone make the softmax uncertain, and random nets many a thing more.
        floor = 6e-8 * scores.abs().max().item() if points < LIVE_POINTS_MAX else 5e-6
        found["noise"] = max(noise(found["grads"].values()), brief(floor))
    return found


def values_of(case, points):
    torch.manual_seed(0)
    net = Net(case)
    generator = torch.Generator().manual_seed(case["seed"])
    quantum = case.get("quantum", 0)
    with torch.no_grad():
        for name, tensor in net.tensors():
            low, high = (0.5, 1.5) if name.endswith("running_var") else (-0.6, 0.6)
            tensor.copy_(draw(generator, tensor.shape, low, high, quantum / 4))
    single = copy.deepcopy(net)
    net.double()
    net.strict = True
    terms = watch(net)
    classes = net.layers[-1]["out"]
    batches = []
    for batch in case["batches"]:
        images = draw(generator, (batch["n"], *case["input"]), -1.0, 1.0, quantum)
        labels = torch.tensor([(i * 5 + case["seed"]) % classes for i in range(batch["n"])])
        batches.append(batch_values((net, single), terms, batch, images, labels, points))
    buffers = {name: {**spread(tensor, points), "terms": brief(tensor.abs().max().item()),
                      "off": brief((other - tensor).abs().max().item())}
               for (name, tensor), (_, other) in zip(net.tensors(), single.tensors()) if not isinstance(tensor, nn.Parameter)}
    return {**case, "batches": batches, "buffers": buffers}


TRAIN_AND_EVALUATE = [{"n": 5, "training": True}, {"n": 3, "training": True}, {"n": 5, "training": False},
                      {"n": 1, "training": False}]


def case_of(name, shape, layers, **more):
    return {"name": name, "input": shape, "layers": layers, "batches": TRAIN_AND_EVALUATE, **more}


def conv_cases():
    for kernel, stride, pad, bias in ((1, 1, 0, True), (1, 2, 0, False), (3, 1, 1, True), (3, 2, 1, False), (3, 1, 0, False),
                                      (5, 1, 2, True), (5, 2, 2, True), (7, 2, 3, False), (7, 1, 3, True), (2, 1, 0, True)):
        layers = [conv("c0", 5, 1), conv("c1", 6, kernel, stride, pad, bias), *head()]
        yield case_of(f"conv {kernel}x{kernel} stride {stride} pad {pad}{'' if bias else ' no bias'}", [3, 9, 8], layers)
    yield case_of("conv as first layer", [1, 10, 10], [conv("c0", 17, 5, 1, 2), *head()])
    yield case_of("conv 3x3 of 16 to 32 channels", [3, 7, 7], [conv("c0", 16, 3, 1, 1), conv("c1", 32, 3, 2, 1), *head()])


def norm_cases():
    yield case_of("batch norm behind conv", [2, 6, 5], [conv("c0", 5, 3, 1, 1), norm("n0"), *head()])
    yield case_of("batch norm, relu", [2, 6, 6], [conv("c0", 19, 3, 1, 1, False), norm("n0"), relu("r0"), *head()])
    yield case_of("batch norm, relu, pool", [2, 8, 8],
                  [conv("c0", 6, 3, 1, 1), norm("n0"), relu("r0"), pool("p0", 2, 2), *head()])
    yield case_of("batch norm behind pool", [2, 8, 8], [conv("c0", 6, 3, 1, 1), pool("p0", 2, 2), norm("n0"), *head()])
    yield case_of("two blocks as in the ConvNet", [1, 12, 12],
                  [conv("c0", 6, 5, 1, 2), norm("n0"), relu("r0"), pool("p0", 2, 2),
                   conv("c1", 9, 5, 1, 2), norm("n1"), relu("r1"), pool("p1", 2, 2), *head()])


def pool_cases():
    for kernel, stride, pad, quantum in ((2, 2, 0, 0), (3, 2, 1, 0), (2, 2, 0, 0.5), (3, 2, 1, 0.5), (3, 1, 1, 0.5)):
        ties = " with ties" if quantum else ""
        layers = [conv("c0", 4, 1), pool("p0", kernel, stride, pad), *head()]
        yield case_of(f"max pool {kernel}x{kernel} stride {stride} pad {pad}{ties}", [2, 7, 8], layers, quantum=quantum)
    layers = [conv("c0", 4, 1), norm("n0"), relu("r0"), pool("p0", 2, 2), *head()]
    yield case_of("fused pool with ties", [1, 8, 8], layers, quantum=0.5)
    layers = [conv("c0", 4, 1), norm("n0"), relu("r0"), pool("p0", 3, 2, 1), *head()]
    yield case_of("batch norm, relu, pool 3x3 with ties", [1, 9, 8], layers, quantum=0.5)


def linear_cases():
    yield case_of("linear alone", [2, 3, 3], head())
    yield case_of("linear without bias", [2, 3, 3], head(bias=False))
    yield case_of("three linear layers", [1, 4, 4],
                  [flatten("f"), linear("l0", 33), relu("r0"), linear("l1", 18, False), relu("r1"), linear("l2", CLASSES)])
    yield case_of("relu on flat values", [2, 4, 4], [conv("c0", 3, 3), flatten("f"), relu("r0"), linear("l0", CLASSES)])
    yield case_of("two classes", [1, 3, 3], head(classes=2))
    yield case_of("a hundred classes", [1, 4, 4], head(classes=100))
    yield case_of("batch norm of features", [1, 4, 4],
                  [flatten("f"), linear("l0", 21), norm("n0"), relu("r0"), linear("l1", CLASSES, False)])
    yield case_of("batch norm of features, no relu", [2, 3, 3],
                  [flatten("f"), linear("l0", 9, False), norm("n0"), linear("l1", CLASSES)])
    yield case_of("scores that are equal", [1, 3, 3], head(classes=6), quantum=4.0)


def add(name, second, **more):
    return {"op": "add", "name": name, "second": second, **more}


def avg_pool(name, **more):
    return {"op": "avg_pool", "name": name, **more}


def basic_block(i, source, out, stride, in_channels):
    """ResNet's: conv, norm, relu, conv, norm, and the input around them, through a 1x1 where shapes differ."""
    layers = [conv(f"c{i}a", out, 3, stride, 1, False, input=source), norm(f"n{i}a"), relu(f"r{i}a"),
              conv(f"c{i}b", out, 3, 1, 1, False), norm(f"n{i}b")]
    around = source
    if stride != 1 or out != in_channels:
        layers += [conv(f"d{i}", out, 1, stride, 0, False, input=source), norm(f"dn{i}")]
        around = f"dn{i}"
    return layers + [add(f"a{i}", around, input=f"n{i}b"), relu(f"r{i}")]


def residual_cases():
    yield case_of("global average pool", [2, 7, 5], [conv("c0", 19, 3, 1, 1), avg_pool("g"), *head()])
    yield case_of("average pool behind norm and relu", [2, 6, 6],
                  [conv("c0", 6, 3, 1, 1, False), norm("n0"), relu("r0"), avg_pool("g"), *head()])
    yield case_of("a sum", [2, 6, 6], [conv("c0", 5, 1), conv("c1", 5, 3, 1, 1), add("a0", "c0"), *head()])
    yield case_of("a value read three times", [2, 6, 6],
                  [conv("c0", 5, 1), conv("c1", 5, 3, 1, 1), add("a0", "c0"), relu("r0"), add("a1", "c0"), *head()])
    stem = [conv("c0", 8, 3, 1, 1, False), norm("n0"), relu("r0")]
    yield case_of("basic block", [3, 8, 8], [*stem, *basic_block(1, "r0", 8, 1, 8), avg_pool("g"), *head()])
    yield case_of("basic block that halves", [3, 8, 8], [*stem, *basic_block(1, "r0", 18, 2, 8), avg_pool("g"), *head()])
    stem = [conv("c0", 8, 7, 2, 3, False), norm("n0"), relu("r0"), pool("p0", 3, 2, 1)]
    yield case_of("a small ResNet", [3, 26, 26], [*stem, *basic_block(1, "p0", 8, 1, 8), *basic_block(2, "r1", 16, 2, 8),
                                                  *basic_block(3, "r2", 16, 1, 16), avg_pool("g"), *head()])


def smoothing_cases():
    for smoothing in (0.1, 1.0):
        yield case_of(f"label smoothing {smoothing}", [2, 5, 5], [conv("c0", 5, 3), relu("r0"), *head()],
                      smoothing=smoothing)


def committed_cases():
    for family in (conv_cases, norm_cases, pool_cases, linear_cases, residual_cases, smoothing_cases):
        yield from family()


def random_layers(rng):
    """Some layers that may follow one another, for images of at least 8x8."""
    layers, size = [conv("c0", rng.randint(1, 20), rng.choice((1, 3, 5)), 1, 2, rng.random() < 0.5)], 8
    for i in range(1, rng.randint(2, 7)):
        kind = rng.choice(("conv", "norm", "relu", "pool", "block", "residual"))
        if kind == "conv":
            kernel = rng.choice((1, 3, 5, 7))
            stride = rng.choice((1, 1, 2, 3)) if size >= 4 else 1
            pad = kernel // 2 if stride == 1 or rng.random() < 0.7 else kernel - 1
            layers.append(conv(f"c{i}", rng.randint(1, 40), kernel, stride, pad, rng.random() < 0.5))
            size = (size - 1) // stride + 1
        elif kind == "norm":
            layers.append(norm(f"n{i}"))
        elif kind == "relu":
            layers.append(relu(f"r{i}"))
        elif kind == "residual":
            stride = rng.choice((1, 2)) if size >= 4 else 1
            layers += basic_block(i, layers[-1]["name"], rng.randint(1, 24), stride, 0)  # 0: always through a 1x1
            size //= stride
        elif size >= 4:
            if kind == "block":
                layers += [norm(f"n{i}"), relu(f"r{i}")]
            layers.append(pool(f"p{i}", *rng.choice(((2, 2, 0), (3, 2, 1), (3, 1, 1)))))
            size //= 2
    if rng.random() < 0.5:
        layers.append(avg_pool("g"))
    return layers + head(rng.random() < 0.5, rng.randint(2, 30))


def random_cases(seed):
    rng = random.Random(seed)
    for i in range(5 * RANDOM_CASES):  # degenerate ones fall away
        shape = [rng.randint(1, 6), rng.randint(8, 20), rng.randint(8, 20)]
        batches = [{"n": rng.randint(2, 9), "training": rng.random() < 0.7} for _ in range(4)]
        yield {"name": f"random {i} of seed {seed}", "input": shape, "layers": random_layers(rng), "batches": batches,
               "quantum": rng.choice((0, 0, 0, 0.5)), "smoothing": rng.choice((0.0, 0.1))}


def write(path, cases):
    with open(path, "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


def values_or_none(case, points):
    try:
        return values_of(case, points)
    except Degenerate:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--random", type=int, metavar="SEED")
    args = parser.parse_args()
    torch.set_num_threads(1)
    live = args.random is not None
    cases = list(random_cases(args.random) if live else committed_cases())
    found = []
    for number, case in enumerate(cases):
        case["seed"] = number + (args.random % 100000 if live else 0)
        values = values_or_none(case, LIVE_POINTS_MAX if live else POINTS_MAX)
        while values is None and not live:
            case["seed"] += 1000
            values = values_or_none(case, POINTS_MAX)
        if values is not None:
            found.append(values)
        if live and len(found) == RANDOM_CASES:
            break
    write(args.file, found)
    print(f"{len(found)} cases in {args.file}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()

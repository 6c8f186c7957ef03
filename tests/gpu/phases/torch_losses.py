"""How far PyTorch's losses on the GPU are from its own on the CPU: the measure for ours in train.py. The same kinds of nets, batches,
steps and types, the same weights on both devices. usage: torch_losses.py BUILD DATA [DEVICE]

On the CPU 16 bit are fp32 that is rounded where the GPU stores 16 bit, as our CPU backend has it: PyTorch's own fp16 takes minutes on
most CPUs. A line of JSON for each net and level, {"model", "level", "off"}: the worst over some seeds, as a part of the loss; or "why"
there is none. DEVICE is for tests."""
import copy
import json
import os
import struct
import sys

import torch
from torch import nn

import common

DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cuda"
SEEDS = 2
SCALE = 128.0
HALF = {"O1": torch.float16, "O2": torch.float16, "O3": torch.float16, "O2 bf16": torch.bfloat16}
WINDOW = {"kernel": 3, "stride": 1, "padding": 1}


# -- nets, as model files have them (docs/models.md) --

def conv(out_channels, **window):
    return {"op": "conv2d", "out_channels": out_channels, **WINDOW, **window}


def block(out_channels, pools=False, **window):
    layers = [conv(out_channels, **window), {"op": "batch_norm"}, {"op": "relu"}]
    return layers + [{"op": "max_pool", "kernel": 2, "stride": 2}] if pools else layers


END = [{"op": "avg_pool"}, {"op": "flatten"}, {"op": "linear", "out_features": "classes"}]


def resnet18():
    layers = [conv(64, kernel=7, stride=2, padding=3, bias=False), {"op": "batch_norm"}, {"op": "relu"},
              {"op": "max_pool", "kernel": 3, "stride": 2, "padding": 1, "name": "stage0"}]
    before = "stage0"
    for stage, width in enumerate((64, 128, 256, 512)):
        for number in range(2):
            stride, name = (2 if stage > 0 and number == 0 else 1), f"{stage}.{number}"
            layers += [conv(width, stride=stride, bias=False), {"op": "batch_norm"}, {"op": "relu"}, conv(width, bias=False),
                       {"op": "batch_norm", "name": f"{name}.bn2"}]
            shortcut = before
            if stride == 2:
                shortcut = f"{name}.down"
                layers += [{**conv(width, kernel=1, stride=2, padding=0, bias=False), "input": before}, {"op": "batch_norm", "name": shortcut}]
            layers += [{"op": "add", "inputs": [f"{name}.bn2", shortcut]}, {"op": "relu", "name": f"{name}.out"}]
            before = f"{name}.out"
    return layers + END


def layers_of(model, model_file):
    if model == "model file":
        with open(model_file, encoding="utf-8") as file:
            return json.load(file)["layers"]
    if model == "convnet":
        return [*block(16, True, kernel=5, padding=2), *block(32, True, kernel=5, padding=2), *END[1:]]
    if model == "toynet":
        return [*block(64, padding=0), *block(128, True, padding=0), *block(256, padding=0), *block(512, True, padding=0), {"op": "flatten"},
                {"op": "linear", "out_features": 512}, {"op": "batch_norm"}, {"op": "relu"}, END[-1]]
    return resnet18()


class AnyNorm(nn.BatchNorm2d):
    """Of images, and of rows behind a linear layer."""

    def _check_input_dim(self, x):
        pass


class LazyNorm(nn.LazyBatchNorm2d):
    cls_to_become = AnyNorm

    def _check_input_dim(self, x):
        pass


class Net(nn.Module):
    """Modules in order; lazy ones take their input's size from the first batch."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        self.parts = nn.ModuleList([self.part(layer) for layer in layers])

    @staticmethod
    def part(layer):
        window = [layer.get(name, default) for name, default in (("kernel", 1), ("stride", 1), ("padding", 0))]
        if layer["op"] == "conv2d":
            return nn.LazyConv2d(layer["out_channels"], *window, bias=layer.get("bias", True))
        if layer["op"] == "linear":
            return nn.LazyLinear(10 if layer["out_features"] == "classes" else layer["out_features"])
        return {"batch_norm": LazyNorm, "relu": nn.ReLU, "max_pool": lambda: nn.MaxPool2d(*window), "avg_pool": lambda: nn.AdaptiveAvgPool2d(1),
                "flatten": nn.Flatten, "add": nn.Identity}[layer["op"]]()

    def forward(self, x, rounds=lambda value: value):
        values = {}
        x = rounds(x)
        for layer, part in zip(self.layers, self.parts):
            if layer["op"] == "add":
                x = sum(values[name] for name in layer["inputs"])
            else:
                x = part(values[layer["input"]] if "input" in layer else x)
            x = rounds(x)
            values[layer.get("name")] = x
        return x


# -- training --

class Round(torch.autograd.Function):
    """To 16 bit and back, both ways."""

    @staticmethod
    def forward(ctx, x, half):
        ctx.half = half
        return x.to(half).float()

    @staticmethod
    def backward(ctx, grad):
        return grad.to(ctx.half).float(), None


def half_of(net, level):
    """Names of the parameters that are kept and computed with in 16 bit."""
    norms = {id(p) for module in net.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()}
    return {name for name, p in net.named_parameters() if level in HALF and (level == "O3" or id(p) not in norms)}


class OnGpu:
    """The types themselves: autocast at O1, a net in 16 bit behind masters at O2, all in 16 bit at O3."""

    def __init__(self, net, level):
        self.net, self.level = net, level
        if level in ("O2", "O3", "O2 bf16"):
            net.to(HALF[level])
            for module in net.modules():
                if isinstance(module, nn.BatchNorm2d) and level != "O3":
                    module.float()

    def scores(self, images):
        with torch.autocast(DEVICE, HALF.get(self.level, torch.float16), enabled=self.level == "O1"):
            return self.net(images.to(HALF[self.level]) if self.level in ("O2", "O3", "O2 bf16") else images)


class OnCpu:
    """The same roundings in fp32."""

    def __init__(self, net, level):
        self.net, self.half = net, HALF.get(level)
        for name, p in net.named_parameters():
            if name in half_of(net, level):
                p.register_hook(lambda grad: grad.to(self.half).float())

    def scores(self, images):
        return self.net(images, lambda value: Round.apply(value, self.half)) if self.half else self.net(images)


def losses(net, level, device, is_gpu, batches, lr):
    """Momentum and masters by hand, the same on both devices: fp32, at O3 rounded."""
    halves = half_of(net, level)
    computes = (OnGpu if is_gpu else OnCpu)(copy.deepcopy(net).to(device), level)
    masters = {name: p.detach().to(device).clone() for name, p in net.named_parameters()}
    momenta = {name: torch.zeros_like(p) for name, p in masters.items()}
    scale = SCALE if level in ("O1", "O2") else 1.0
    keeps = (lambda value: value.to(HALF[level]).float()) if level == "O3" else (lambda value: value)
    found = []
    for images, labels in batches:
        with torch.no_grad():
            for name, p in computes.net.named_parameters():
                masters[name] = keeps(masters[name])
                p.copy_(masters[name].to(HALF[level]) if name in halves else masters[name])
        loss = nn.functional.cross_entropy(computes.scores(images.to(device)).float(), labels.to(device))
        computes.net.zero_grad()
        (loss * scale).backward()
        for name, p in computes.net.named_parameters():
            momenta[name] = keeps(0.9 * momenta[name] + p.grad.float() / scale)
            masters[name] = masters[name] - lr * momenta[name]
        found.append(float(loss.detach()))
    return found


def read_batches(folder, batch, steps, channels):
    with open(os.path.join(folder, "train-images-idx3-ubyte"), "rb") as file:
        count, height, width = struct.unpack(">4x3I", file.read(16))
        images = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(count, 1, height, width)
    with open(os.path.join(folder, "train-labels-idx1-ubyte"), "rb") as file:
        labels = torch.frombuffer(bytearray(file.read()[8:]), dtype=torch.uint8).long()
    images = images.float().div(255).expand(-1, channels, -1, -1)
    starts = [step * batch % (count - batch + 1) for step in range(steps)]
    return [(images[at:at + batch].contiguous(), labels[at:at + batch]) for at in starts]


def distance(model, level, layers, data, batch, steps, lr):
    worst = 0.0
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        batches = read_batches(data, batch, steps, 1)
        net = Net(layers).train()
        with torch.no_grad():
            net.eval()(batches[0][0][:1])  # lazy modules know their sizes
        net.train()
        on_cpu, on_gpu = (losses(net, level, device, is_gpu, batches, lr) for device, is_gpu in (("cpu", False), (DEVICE, True)))
        numbered = [[(0, step, loss) for step, loss in enumerate(found)] for found in (on_gpu, on_cpu)]
        worst = max(worst, common.worst_difference(*numbered))
    return worst


def main():
    import train
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for model, args in reversed(train.SMALL if common.IS_STANDIN else train.WHOLE):  # ResNet-18 first: it is the least stable one
        values = dict(zip(args[::2], args[1::2]))
        for level, _ in common.LEVELS:
            try:
                off = distance(model, level, layers_of(model, train.MODEL_FILE), sys.argv[2], int(values["-b"]), int(values["--max-steps"]),
                               float(values.get("--lr", common.SGD[1])))
                entry = {"off": off}
            except (RuntimeError, NotImplementedError) as error:  # a type that this machine's CPU or GPU cannot do
                entry = {"why": str(error).splitlines()[0][:200]}
            print(json.dumps({"model": model, "level": level, **entry}), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # PyTorch aborts at the interpreter's end now and then

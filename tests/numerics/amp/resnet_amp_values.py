#!/usr/bin/env python3
"""Writes resnet_amp_values.json: ResNet-18 in mixed precision on fixed images, by PyTorch in fp32 on the CPU with a rounding
to fp16 (or bf16) wherever a GPU under Apex's amp writes a value of that type, and of its gradient on the way back:

    ~/.cache/ddp/pytorch/bin/python tests/numerics/amp/resnet_amp_values.py > tests/numerics/amp/resnet_amp_values.json

O1: convolutions and the linear layer read and make low, their weights are cast from fp32 in each step, the rest keeps its
input's type. O2: weights low with fp32 masters, batch norms fp32 inside. O3: everything low, optimizer included.
The norms' own arithmetic is fp32 at every level, as cuDNN's is. Parameters are torchvision's from seed 0, then images by
torch.rand and labels 0, 1, 2, ... from the same generator; the last norm of every block is set to 0.1 after the drawing,
as it is small in a trained network: at 1 a change in the last bit comes out as 14 % of a gradient. Written: the losses of the steps, and of the first step's
gradients, unscaled, the norm of each. Every case also has `noise`: how far the same comes out where every convolution's and
matrix product's sum is off by as much as another order of fp32 sums makes it, the honest measure of what can be compared.
"""
import json
import sys

import torch
import torch.nn.functional as F
import torchvision

STEPS, BATCH, SIZE, CLASSES, LR, MOMENTUM, SCALE, GAMMA = 3, 8, 64, 10, 0.01, 0.9, 1024.0, 0.1
CASES = [("O1", "fp16"), ("O2", "fp16"), ("O3", "fp16"), ("O1", "bf16"), ("O2", "bf16"), ("O3", "bf16")]
LOW = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Round(torch.autograd.Function):
    """Rounds a value, and its gradient."""
    @staticmethod
    def forward(ctx, x, low):
        ctx.low = low
        return x.to(low).float()

    @staticmethod
    def backward(ctx, grad):
        return grad.to(ctx.low).float(), None


class Net:
    def __init__(self, level, low, jitter):
        torch.manual_seed(0)
        model = torchvision.models.resnet18(num_classes=CLASSES)
        self.images = torch.rand(BATCH, 3, SIZE, SIZE)
        self.labels = torch.arange(BATCH)
        self.level, self.low, self.jitter = level, low, jitter
        self.params = {name: p.detach().clone() for name, p in model.named_parameters()}
        for name, p in self.params.items():
            if name.endswith(".bn2.weight"):
                p.fill_(GAMMA)
        if level == "O3":
            self.params = {name: self.cut(p) for name, p in self.params.items()}
        self.buffers = {name: None for name in self.params}
        self.generator = torch.Generator().manual_seed(1)

    def cut(self, x):
        return x.to(self.low).float()

    def r(self, x):
        return Round.apply(x, self.low)

    def noisy(self, x):
        if not self.jitter:
            return x
        return x * (1 + 2.0 ** -22 * torch.randn(x.shape, generator=self.generator))

    def weight(self, name):
        return self.r(self.leaves[name])

    def conv(self, x, name, stride, pad):
        return self.r(self.noisy(F.conv2d(x, self.weight(name + ".weight"), None, stride, pad)))

    def norm(self, x, name):
        gamma, beta = self.leaves[name + ".weight"], self.leaves[name + ".bias"]
        if self.level == "O3":
            gamma, beta = self.r(gamma), self.r(beta)
        return self.r(F.batch_norm(x, None, None, gamma, beta, True))

    def block(self, x, name, stride):
        y = F.relu(self.norm(self.conv(x, name + ".conv1", stride, 1), name + ".bn1"))
        y = self.norm(self.conv(y, name + ".conv2", 1, 1), name + ".bn2")
        if name + ".downsample.0.weight" in self.params:
            x = self.norm(self.conv(x, name + ".downsample.0", stride, 0), name + ".downsample.1")
        return F.relu(self.r(y + x))

    def forward(self):
        self.leaves = {name: p.clone().requires_grad_() for name, p in self.params.items()}
        x = self.r(self.images)
        x = F.max_pool2d(F.relu(self.norm(self.conv(x, "conv1", 2, 3), "bn1")), 3, 2, 1)
        for layer in range(1, 5):
            x = self.block(x, f"layer{layer}.0", 1 if layer == 1 else 2)
            x = self.block(x, f"layer{layer}.1", 1)
        x = self.r(x.mean((2, 3)))
        x = self.r(self.noisy(F.linear(x, self.weight("fc.weight"), self.weight("fc.bias"))))
        return F.cross_entropy(x, self.labels)

    def step(self):
        loss = self.forward()
        scale = SCALE if self.level != "O3" else 1.0
        (loss * scale).backward()
        grads = {name: leaf.grad / scale for name, leaf in self.leaves.items()}
        for name, grad in grads.items():
            buffer = self.buffers[name]
            buffer = grad if buffer is None else MOMENTUM * buffer + grad
            self.params[name] = self.params[name] - LR * buffer
            self.buffers[name] = buffer
            if self.level == "O3":
                self.params[name], self.buffers[name] = self.cut(self.params[name]), self.cut(buffer)
        return float(loss.detach()), grads


def run(level, low, jitter):
    net = Net(level, LOW[low], jitter)
    losses, first = [], None
    for _ in range(STEPS):
        loss, grads = net.step()
        losses.append(loss)
        first = first or grads
    return losses, first


def summary(tensor):
    flat = tensor.flatten()
    last = flat.numel() - 1
    return [float(flat.double().norm())] + [float(flat[i]) for i in (0, last // 3, 2 * last // 3, last)]


def case(level, low):
    losses, grads = run(level, low, False)
    others, off = run(level, low, True)
    return {"level": level, "low": low, "losses": losses,
            "loss_noise": [abs(a - b) for a, b in zip(losses, others)],
            "grads": [{"name": name, "grad": summary(g), "noise": float((g - off[name]).double().norm())}
                      for name, g in grads.items()]}


def main():
    torch.set_num_threads(1)
    head = {"steps": STEPS, "batch": BATCH, "size": SIZE, "classes": CLASSES, "lr": LR, "momentum": MOMENTUM,
            "scale": SCALE, "gamma": GAMMA, "cases": [case(*c) for c in CASES]}
    text = json.dumps(json.loads(json.dumps(head), parse_float=lambda x: float(f"{float(x):.9g}")), separators=(",", ":"))
    sys.stdout.write(text.replace('{"name"', '\n{"name"').replace('{"level"', '\n{"level"') + "\n")


main()

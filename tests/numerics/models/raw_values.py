#!/usr/bin/env python3
"""Writes raw_values.json: ResNet-50 as torchvision draws it, one backward pass of some batches in float64, and how far
PyTorch's fp32 is from that.

    ~/.cache/ddp/pytorch/bin/python tests/numerics/models/raw_values.py > tests/numerics/models/raw_values.json

Parameters from seed 0, then the images of each batch by torch.rand from the same generator, labels 0, 1, 2, ..., all in
fp32; float64 begins with the very same numbers. With raw weights a change in the last bit comes out as per cents of a
gradient, and which per cents is luck: one fp32 run of PyTorch is up to 3000 times as far off in a tensor as another that
only adds in another order. So a distance here is a root mean square over the batches, and PyTorch's also over ORDERS.

Written: `own`, that distance by float64's norm, for the loss and for every gradient; of each batch the loss in float64, and
of its gradients the norm and the products with SIGNS vectors of 1 and -1. Element i of parameter p has the signs of the low
bits of mix(p << 32 | i), bit k for vector k: set is 1. The mean square of a difference's products is the square of its
norm, but for the luck of the signs.
"""
import json
import sys

import numpy
import torch
import torchvision

ARCH, BATCHES, BATCH, SIZE, SIGNS = "resnet50", 4, 8, 64, 8
ORDERS = ["NCHW", "NHWC", "without oneDNN"]


def mix(x):
    """The finalizer of splitmix64, on numpy.uint64 with its wrap-around."""
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def products(index, values):
    words = mix((numpy.uint64(index) << numpy.uint64(32)) | numpy.arange(values.size, dtype=numpy.uint64))
    return [float(values @ (((words >> numpy.uint64(k)) & numpy.uint64(1)).astype(numpy.float64) * 2 - 1))
            for k in range(SIGNS)]


def step(images, dtype, order="NCHW"):
    torch.manual_seed(0)
    model = getattr(torchvision.models, ARCH)(num_classes=1000).to(dtype).train()
    images = images.to(dtype)
    if order == "NHWC":
        model, images = (x.to(memory_format=torch.channels_last) for x in (model, images))
    with torch.backends.mkldnn.flags(enabled=order != "without oneDNN"):
        loss = torch.nn.functional.cross_entropy(model(images), torch.arange(BATCH))
        loss.backward()
    grads = {n: p.grad.double().flatten().numpy() for n, p in model.named_parameters()}
    return float(loss.detach()), grads


def batches():
    torch.manual_seed(0)
    getattr(torchvision.models, ARCH)(num_classes=1000)
    return [torch.rand(BATCH, 3, SIZE, SIZE) for _ in range(BATCHES)]


def distances(exact, other):
    """Of the loss, then of every gradient, each by its norm."""
    norm = numpy.linalg.norm
    return [abs(other[0] - exact[0]) / exact[0]] + [norm(other[1][n] - g) / norm(g) for n, g in exact[1].items()]


def main():
    torch.set_num_threads(1)
    losses, off, entries = [], [], {}
    for images in batches():
        exact = step(images, torch.float64)
        off += [distances(exact, step(images, torch.float32, order)) for order in ORDERS]
        losses.append(exact[0])
        for i, (name, grad) in enumerate(exact[1].items()):
            entry = entries.setdefault(name, {"name": name, "own": 0.0, "norms": [], "products": []})
            entry["norms"].append(float(f"{numpy.linalg.norm(grad):.8g}"))
            entry["products"] += [float(f"{v:.8g}") for v in products(i, grad)]
    own = [float(f"{v:.4g}") for v in numpy.sqrt(numpy.mean(numpy.square(off), axis=0))]
    for entry, distance in zip(entries.values(), own[1:]):
        entry["own"] = distance
    values = {"arch": ARCH, "batch": BATCH, "size": SIZE, "losses": losses, "own": own[0], "parameters": list(entries.values())}
    sys.stdout.write(json.dumps(values, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()

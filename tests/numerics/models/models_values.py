#!/usr/bin/env python3
"""Writes models_values.json: what torchvision's ResNets make of fixed images in fp32.

    ~/.cache/ddp/pytorch/bin/python tests/numerics/models/models_values.py > models_values.json

For each network: parameters from seed 0, then images by torch.rand and labels 0, 1, 2, ... from the
same generator. The last norm of each of ResNet-50's bottlenecks is set to 0.1 after the drawing, as
it is small in a trained network: at its initial 1 PyTorch's own fp32 gradients are 2 % off those of
its float64 (with 0.1: 4e-6), so nothing could be compared there. Written are the loss, and of every parameter the Euclidean norm and four spread entries, of the
parameter itself as drawn and of its gradient.
"""
import json
import sys

import torch
import torchvision

CASES = [("resnet18", 4, 64, 1.0), ("resnet50", 4, 64, 0.1)]


def summary(tensor):
    flat = tensor.detach().flatten()
    last = flat.numel() - 1
    places = [0, last // 3, 2 * last // 3, last]
    return [float(flat.double().norm())] + [float(flat[i]) for i in places]


def case(arch, batch, size, gamma):
    torch.manual_seed(0)
    model = getattr(torchvision.models, arch)(num_classes=1000)
    drawn = {name: summary(p) for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        if name.endswith("bn3.weight"):
            parameter.data.fill_(gamma)
    images = torch.rand(batch, 3, size, size)
    model.train()
    output = model(images)
    loss = torch.nn.functional.cross_entropy(output, torch.arange(batch))
    loss.backward()
    entries = [{"name": name, "value": drawn[name], "grad": summary(p.grad)}
               for name, p in model.named_parameters()]
    return {"arch": arch, "batch": batch, "size": size, "gamma": gamma, "loss": float(loss.detach()),
            "state": list(model.state_dict().keys()), "parameters": entries}


def main():
    torch.set_num_threads(1)
    cases = [case(*c) for c in CASES]
    text = json.dumps(cases, separators=(",", ":"))
    sys.stdout.write(text.replace('{"name"', '\n{"name"') + "\n")


main()

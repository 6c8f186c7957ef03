#!/usr/bin/env python3
"""Prints tests/numerics/train/accumulate_values.h: gradient accumulation by PyTorch's DistributedDataParallel over Gloo, two
ranks with two batches a step, the first of them under no_sync().

    ~/.cache/ddp/pytorch/bin/python tests/numerics/train/accumulate_values.py > tests/numerics/train/accumulate_values.h

Pixels and then labels by torch.randint from seed 5, in DistributedSampler's order for seed 0; the ConvNet of seed 0; SGD
with momentum. Written: every rank's mean loss of every step, and of rank 0's state behind the last step the norm and four
spread entries of each parameter, its momentum and each running statistic.
"""
import contextlib
import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD, BATCHES, BATCH, STEPS, LR, MOMENTUM = 2, 2, 8, 6, 0.01, 0.9
IMAGES = WORLD * BATCHES * BATCH * STEPS


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2, 2))
        self.layer2 = nn.Sequential(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2, 2))
        self.fc = nn.Linear(7 * 7 * 32, 10)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


def data():
    generator = torch.Generator().manual_seed(5)
    pixels = torch.randint(256, (IMAGES, 1, 28, 28), generator=generator)
    return torch.utils.data.TensorDataset(pixels / 255.0, torch.randint(10, (IMAGES,), generator=generator))


def summary(tensor):
    flat = tensor.detach().flatten()
    last = flat.numel() - 1
    return [float(flat.double().norm())] + [float(flat[i]) for i in (0, last // 3, 2 * last // 3, last)]


def train(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = DistributedDataParallel(ConvNet())
    sgd = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM)
    images = data()
    sampler = torch.utils.data.distributed.DistributedSampler(images, WORLD, rank, seed=0)
    batches = iter(torch.utils.data.DataLoader(images, BATCH, sampler=sampler))
    losses = []
    for _ in range(STEPS):
        mean = 0.0
        sgd.zero_grad()
        for k in range(BATCHES):
            x, labels = next(batches)
            with model.no_sync() if k < BATCHES - 1 else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(x), labels)
                (loss / BATCHES).backward()
            mean += float(loss.detach()) / BATCHES
        sgd.step()
        losses.append(mean)
    state = {n: summary(t) for n, t in model.module.state_dict().items() if not n.endswith("num_batches_tracked")}
    momentum = {n: summary(sgd.state[p]["momentum_buffer"]) for n, p in model.module.named_parameters()}
    torch.save((losses, state, momentum), f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


def row(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


def show(results):
    guard = "TESTS_NUMERICS_TRAIN_ACCUMULATE_VALUES_H"
    print("/* Made by tests/numerics/train/accumulate_values.py: values of PyTorch. */")
    print(f"#ifndef {guard}\n#define {guard}\n\n#include <stdbool.h>\n")
    print(f"enum {{ WORLD = {WORLD}, BATCHES = {BATCHES}, BATCH = {BATCH}, STEPS = {STEPS}, IMAGES = {IMAGES} }};")
    print(f'#define RATES "--lr {LR} --momentum {MOMENTUM}"\n')
    print("/* [rank][step] */\nstatic const double torch_losses[WORLD][STEPS] = {")
    print(",\n".join("    " + row(losses) for losses, _, _ in results) + "};\n")
    _, state, momentum = results[0]
    print("/* The norm, then the entries 0, last / 3, 2 * last / 3 and last. */\nstatic const struct torch_tensor {")
    print("    const char *name;\n    bool is_momentum;\n    double values[5];\n} torch_tensors[] = {")
    for is_momentum, tensors in (("false", state), ("true", momentum)):
        for name, values in tensors.items():
            print(f'    {{"{name}", {is_momentum}, {row(values)}}},')
    print("};\n\n#endif")


def main():
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (folder,), WORLD)
        show([torch.load(os.path.join(folder, str(rank))) for rank in range(WORLD)])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()

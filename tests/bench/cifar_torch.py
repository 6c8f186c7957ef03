#!/usr/bin/env python3
"""PyTorch's side of docs/results/2026-11-22-cifar10.md: torchvision's ResNet-18 on CIFAR-10 as a folder of pictures, on one CPU thread.

usage: cifar_torch.py DATA OUT.jsonl [--epochs N] [--batch-size N] [--lr X] [--seed N] [--max-steps N] [--no-augment]
The same as `ddp-worker -a resnet18 --augment cifar --momentum 0.9 --weight-decay 5e-4 --lr-schedule onecycle`: the same initial weights and
order of the pictures; its random crops and flips are other draws. Writes the lines of ddp-worker --metrics that cifar_plot.py reads. Run it with a
Python that has torch, torchvision and Pillow.
"""
import argparse
import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import numpy
    import torch
    from torch import nn
    from torchvision.datasets import ImageFolder
    from torchvision.models import resnet18
except ImportError as error:
    print(f"skip: {error}")
    sys.exit(77)

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
SIDE, PAD = 32, 4


def load(folder):
    found = ImageFolder(folder)
    images = torch.empty(len(found), 3, SIDE, SIDE, dtype=torch.uint8)
    for i, (image, _) in enumerate(found):
        images[i] = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
    return images, torch.tensor(found.targets)


def augment(batch):
    """Each image's own crop of the image with a black border, and its own flip."""
    padded = nn.functional.pad(batch, 4 * (PAD,))
    corners = torch.randint(0, 2 * PAD + 1, (len(batch), 2)).tolist()
    cut = torch.stack([padded[i, :, y:y + SIDE, x:x + SIDE] for i, (y, x) in enumerate(corners)])
    return torch.where(torch.rand(len(batch), 1, 1, 1) < 0.5, cut.flip(3), cut)


def normalised(batch):
    return (batch.float() / 255 - MEAN) / STD


def counts(outputs, labels):
    top = outputs.topk(5, 1).indices == labels[:, None]
    return int(top[:, 0].sum()), int(top.sum())


class Sums:
    """Means over the images so far."""

    def __init__(self):
        self.images, self.loss, self.first, self.five = 0, 0.0, 0, 0

    def add(self, loss, outputs, labels):
        first, five = counts(outputs, labels)
        self.images, self.loss, self.first, self.five = (self.images + len(labels), self.loss + loss * len(labels), self.first + first,
                                                         self.five + five)

    def fields(self):
        return {"acc1": 100 * self.first / self.images, "acc5": 100 * self.five / self.images}


def validate(model, images, labels):
    model.eval()
    sums = Sums()
    with torch.no_grad():
        for part, wanted in zip(images.split(250), labels.split(250)):
            outputs = model(normalised(part))
            sums.add(float(nn.functional.cross_entropy(outputs, wanted)), outputs, wanted)
    model.train()
    return {"loss": sums.loss / sums.images, **sums.fields(), "images": sums.images}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-augment", action="store_true", help="as ddp-worker --augment none: losses can be compared step by step")
    parser.add_argument("--max-steps", type=int, default=0)
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    model = resnet18(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=5e-4)
    images, labels = load(os.path.join(options.data, "train"))
    held_out = load(os.path.join(options.data, "val"))
    steps = -(-len(images) // options.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, epochs=options.epochs, steps_per_epoch=steps)
    sampler = torch.utils.data.DistributedSampler(images, num_replicas=1, rank=0, seed=options.seed)
    step, begin = 0, time.monotonic()
    with open(options.out, "w", encoding="utf-8", buffering=1) as file:
        for epoch in range(1, options.epochs + 1):
            sampler.set_epoch(epoch - 1)
            sums, started = Sums(), time.monotonic()
            for chosen in torch.tensor(list(sampler)).split(options.batch_size):
                rate = optimizer.param_groups[0]["lr"]
                optimizer.zero_grad()
                outputs = model(normalised(images[chosen] if options.no_augment else augment(images[chosen])))
                loss = nn.functional.cross_entropy(outputs, labels[chosen])
                loss.backward()
                optimizer.step()
                schedule.step()
                step += 1
                sums.add(float(loss.detach()), outputs, labels[chosen])
                file.write(json.dumps({"kind": "step", "epoch": epoch, "step": step, "loss": float(loss.detach()), "lr": rate, **sums.fields()}) + "\n")
                if step == options.max_steps:
                    break
            seconds = time.monotonic() - started
            file.write(json.dumps({"kind": "epoch", "epoch": epoch, "step": step, "loss": sums.loss / sums.images, **sums.fields(),
                                   "seconds": seconds, "images_per_s": sums.images / seconds}) + "\n")
            file.write(json.dumps({"kind": "validation", "epoch": epoch, "step": step, **validate(model, *held_out)}) + "\n")
            if step == options.max_steps:
                break
    print(f"{step} steps, {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()

"""ddp-worker beside torch on the same images, for the tests that exchange weights."""
import os
import re
import struct
import subprocess
import sys

import torch
from torch import nn

IMAGES = 64
TOLERANCE = 2e-4  # the worker prints four digits


class ConvNet(nn.Module):
    """The net of the seeds; ddp-worker's default."""

    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.layer2 = nn.Sequential(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(7 * 7 * 32, 10)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


def write_idx(folder, prefix, seed):
    """Random images in MNIST's format; returns them as torch has them."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (IMAGES, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (IMAGES,), generator=generator, dtype=torch.uint8)
    with open(os.path.join(folder, f"{prefix}-images-idx3-ubyte"), "wb") as out:
        out.write(struct.pack(">4I", 2051, IMAGES, 28, 28) + pixels.numpy().tobytes())
    with open(os.path.join(folder, f"{prefix}-labels-idx1-ubyte"), "wb") as out:
        out.write(struct.pack(">2I", 2049, IMAGES) + labels.numpy().tobytes())
    return (pixels.float() / 255).unsqueeze(1).expand(-1, 3, -1, -1).contiguous(), labels.long()


def torch_loss(model, images, labels):
    model.eval()
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(images), labels))


def worker(args, expected=0):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.argv[1], *args], capture_output=True, text=True, env=env, check=False)
    if run.returncode != expected:
        sys.exit(f"ddp-worker {' '.join(args)}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout + run.stderr


def worker_loss(args):
    return float(re.findall(r"Val: Acc@1 \S+ Acc@5 \S+ Loss (\S+)", worker(args))[-1])


class Results:
    """Counts failed checks; prints a line for each."""

    def __init__(self):
        self.failures = 0

    def check(self, what, good, said=""):
        self.failures += not good
        print(f"{'ok' if good else 'not ok'} {what}{': ' if said else ''}{said}", flush=True)

    def compare(self, what, ours, theirs):
        good = abs(ours - theirs) <= TOLERANCE * max(1.0, abs(theirs))
        good = good and theirs > 2.5  # not merely equal scores
        self.check(what, good, f"loss {ours:.4f}, torch {theirs:.6f}")

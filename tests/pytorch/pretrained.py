#!/usr/bin/env python3
"""Weights to and from torchvision: pretrained.py DDP_WORKER.

torchvision's ResNet-18, saved as safetensors in fp32, fp16 and bf16, is loaded by --pretrained and gives torch's loss on fixed
images; our checkpoint is loaded by torchvision with strict=True and gives our loss.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

import pytorch

pytorch.rerun_or_skip()

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402

IMAGES = 64
TOLERANCE = 2e-4  # the worker prints four digits
failures = 0


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


def compare(what, ours, theirs):
    global failures
    good = abs(ours - theirs) <= TOLERANCE * max(1.0, abs(theirs))
    good = good and theirs > 2.5  # not merely equal scores
    failures += not good
    print(f"{'ok' if good else 'not ok'} {what}: loss {ours:.4f}, torchvision {theirs:.6f}", flush=True)


def to_worker(folder, images, labels):
    """Each type; running statistics are those of a few batches, so that they count."""
    torch.manual_seed(1)
    model = torchvision.models.resnet18(num_classes=10)
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.rand(32, 3, 28, 28))
        model.fc.weight *= 100  # far from equal scores, whose loss would say little
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        path = os.path.join(folder, f"{name}.safetensors")
        state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in model.state_dict().items()}
        safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, path)
        rounded = torchvision.models.resnet18(num_classes=10)
        rounded.load_state_dict(state)
        ours = worker_loss(["-a", "resnet18", "-e", "-b", "32", "--pretrained", path, folder])
        compare(f"--pretrained in {name}", ours, torch_loss(rounded, images, labels))


def from_worker(folder, images, labels):
    checkpoints = os.path.join(folder, "checkpoints")
    ours = worker_loss(["-a", "resnet18", "-b", "32", "--epochs", "8", "--lr", "0.02", "--momentum", "0.9",
                        "--checkpoint-dir", checkpoints, folder])
    newest = max(f for f in os.listdir(checkpoints) if f.endswith(".safetensors"))
    state = safetensors.torch.load_file(os.path.join(checkpoints, newest))
    state = {k: v for k, v in state.items() if not k.startswith("optimizer.")}
    model = torchvision.models.resnet18(num_classes=10)
    model.load_state_dict(state, strict=True)
    compare(f"{newest} in torchvision", ours, torch_loss(model, images, labels))
    again = worker_loss(["-a", "resnet18", "-e", "-b", "32", "--pretrained", os.path.join(checkpoints, newest), folder])
    compare(f"{newest} by --pretrained", again, ours)


def other_classes(folder):
    """ImageNet's classifier on ten classes: refused with the way out, and the way out works."""
    global failures
    path = os.path.join(folder, "thousand.safetensors")
    safetensors.torch.save_file(torchvision.models.resnet18(num_classes=1000).state_dict(), path)
    args = ["-a", "resnet18", "-e", "-b", "32", "--pretrained", path, folder]
    said = worker(args, expected=1)
    good = "its fc.weight is for 1000 classes, here are 10: --new-classifier" in said
    failures += not good
    print(f"{'ok' if good else 'not ok'} other classes: {said.strip()}")
    worker([*args, "--new-classifier"])


with tempfile.TemporaryDirectory(prefix="ddp-pretrained-") as temp:
    torch.set_num_threads(1)
    write_idx(temp, "train", 2)
    batch = write_idx(temp, "t10k", 3)
    to_worker(temp, *batch)
    from_worker(temp, *batch)
    other_classes(temp)
sys.exit(1 if failures else 0)

#!/usr/bin/env python3
"""Weights to and from torchvision: pretrained.py DDP_WORKER.

torchvision's ResNet-18, saved as safetensors in fp32, fp16 and bf16, is loaded by --pretrained and gives torch's loss on fixed
images; our checkpoint is loaded by torchvision with strict=True and gives our loss.
"""
import os
import sys
import tempfile

import pytorch

pytorch.rerun_or_skip()

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from exchange import Results, torch_loss, worker, worker_loss, write_idx  # noqa: E402

results = Results()


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
        results.compare(f"--pretrained in {name}", ours, torch_loss(rounded, images, labels))


def from_worker(folder, images, labels):
    checkpoints = os.path.join(folder, "checkpoints")
    ours = worker_loss(["-a", "resnet18", "-b", "32", "--epochs", "8", "--lr", "0.02", "--momentum", "0.9",
                        "--checkpoint-dir", checkpoints, folder])
    newest = max(f for f in os.listdir(checkpoints) if f.endswith(".safetensors"))
    state = safetensors.torch.load_file(os.path.join(checkpoints, newest))
    state = {k: v for k, v in state.items() if not k.startswith("optimizer.")}
    model = torchvision.models.resnet18(num_classes=10)
    model.load_state_dict(state, strict=True)
    results.compare(f"{newest} in torchvision", ours, torch_loss(model, images, labels))
    again = worker_loss(["-a", "resnet18", "-e", "-b", "32", "--pretrained", os.path.join(checkpoints, newest), folder])
    results.compare(f"{newest} by --pretrained", again, ours)


def other_classes(folder):
    """ImageNet's classifier on ten classes: refused with the way out, and the way out works."""
    path = os.path.join(folder, "thousand.safetensors")
    safetensors.torch.save_file(torchvision.models.resnet18(num_classes=1000).state_dict(), path)
    args = ["-a", "resnet18", "-e", "-b", "32", "--pretrained", path, folder]
    said = worker(args, expected=1)
    results.check("other classes", "its fc.weight is for 1000 classes, here are 10: --new-classifier" in said, said.strip())
    worker([*args, "--new-classifier"])


with tempfile.TemporaryDirectory(prefix="ddp-pretrained-") as temp:
    torch.set_num_threads(1)
    write_idx(temp, "train", 2)
    batch = write_idx(temp, "t10k", 3)
    to_worker(temp, *batch)
    from_worker(temp, *batch)
    other_classes(temp)
sys.exit(1 if results.failures else 0)

"""A PyTorch script that checkpoints: train_torch.py FOLDER. Two ranks, so that sums are bit-identical in any order.

It joins by env://, as under torchrun. FOLDER/last.pt: the checkpoint, written after each epoch. FOLDER/final: the hash of the
last weights. FOLDER/resumed: the epoch of each start that resumed from a checkpoint."""

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS, STEPS = 30, 40  # takes a few seconds; if it were shorter, a kill would seldom come between two checkpoints


def write(path, save):
    save(path + ".new")
    os.replace(path + ".new", path)


def batch(rank, epoch, step):
    generator = torch.Generator().manual_seed(1000 * epoch + 10 * step + rank)
    inputs = torch.randn(32, 20, generator=generator)
    return inputs, (inputs[:, :10].argmax(dim=1))


def train(folder):
    dist.init_process_group("gloo", init_method="env://")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    last, first = os.path.join(folder, "last.pt"), 0
    if os.path.exists(last):
        state = torch.load(last)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
        if rank == 0:
            with open(os.path.join(folder, "resumed"), "a", encoding="ascii") as file:
                file.write(f"{first}\n")
    dist.barrier()  # no rank writes before all have read
    criterion = nn.CrossEntropyLoss()
    for epoch in range(first, EPOCHS):
        for step in range(STEPS):
            inputs, labels = batch(rank, epoch, step)
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            write(last, lambda path, state=state: torch.save(state, path))
    if rank == 0:
        digest = hashlib.sha256(b"".join(value.detach().numpy().tobytes() for value in net.state_dict().values()))
        with open(os.path.join(folder, "final.new"), "w", encoding="ascii") as file:
            file.write(digest.hexdigest())
        os.replace(os.path.join(folder, "final.new"), os.path.join(folder, "final"))
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # PyTorch 2.15 sometimes aborts in its own clean-up: see tests/integration/pytorch/train_ddp.py

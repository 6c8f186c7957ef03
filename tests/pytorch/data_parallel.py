#!/usr/bin/env python3
"""--data-parallel beside torch.nn.DataParallel: data_parallel.py DDP_WORKER.

On a CPU nn.DataParallel only calls the module, so its steps are taken here one by one, as torch/nn/parallel/data_parallel.py has them:
torch.chunk scatters the batch, each part goes through the same parameters, with buffers of its own but for the first replica, the outputs
are joined, and one backward adds all gradients. Losses of every step and the weights at the end must agree; with one replica they must not.
"""
import os
import sys
import tempfile

import pytorch

pytorch.rerun_or_skip()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.func import functional_call  # noqa: E402
from exchange import IMAGES, ConvNet, Results, worker, write_idx  # noqa: E402

EPOCHS, BATCH, RATE, MOMENTUM = 3, 30, 0.05, 0.9
TOLERANCE = 2e-4  # of losses; replicas change them by 3e-2 and more
WEIGHTS_TOLERANCE = 5e-3  # a rounding may pick another of two values in a max pool
results = Results()


def data_parallel(model, images, replicas):
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    outputs = []
    for i, part in enumerate(images.chunk(replicas)):
        own = buffers if i == 0 else {k: v.clone() for k, v in buffers.items()}
        outputs.append(functional_call(model, {**parameters, **own}, (part,)))
    return torch.cat(outputs)


def train_torch(model, images, labels, replicas, accumulate):
    """The loss of every step, with PyTorch's order of the images and means over a step's images."""
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(EPOCHS):
        order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(epoch))
        for step in order.split(BATCH * accumulate):
            optimizer.zero_grad()
            total = 0.0
            for index in step.split(BATCH):
                loss = nn.functional.cross_entropy(data_parallel(model, images[index], replicas), labels[index], reduction="sum") / len(step)
                loss.backward()
                total += float(loss.detach())
            losses.append(total)
            optimizer.step()
    return losses


def train_worker(folder, start, replicas, accumulate):
    log, checkpoints, out = (os.path.join(folder, n) for n in ("loss", f"ck-{replicas}-{accumulate}", "trained.pth"))
    worker(["-b", str(BATCH), "--epochs", str(EPOCHS), "--lr", str(RATE), "--momentum", str(MOMENTUM), "--pretrained", start, "--loss-log", log,
            "--accumulation-steps", str(accumulate), "--checkpoint-dir", checkpoints, "--device", "cpu",
            *(["--data-parallel", str(replicas)] if replicas > 1 else []), folder])
    worker(["export", "--from", checkpoints, out])
    with open(log, encoding="ascii") as file:
        return [float(line.split()[2]) for line in file], torch.load(out, weights_only=True)


def difference(a, b):
    return max(abs(x - y) / max(1.0, abs(y)) for x, y in zip(a, b, strict=True))


def case(folder, images, labels, replicas, accumulate):
    torch.manual_seed(7)
    model = ConvNet()
    start = os.path.join(folder, "start.pth")
    torch.save(model.state_dict(), start)
    model.train()
    theirs = train_torch(model, images, labels, replicas, accumulate)
    ours, weights = train_worker(folder, start, replicas, accumulate)
    what = f"{replicas} replicas, {accumulate} batches a step"
    worst = difference(ours, theirs)
    results.check(f"{what}: {len(ours)} losses", worst <= TOLERANCE, f"worst relative difference {worst:.1e}")
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        worst = float((weights[name] - value).norm() / value.norm())
        results.check(f"{what}: {name}", worst <= WEIGHTS_TOLERANCE, f"relative difference {worst:.1e}")
    return theirs


with tempfile.TemporaryDirectory(prefix="ddp-replicas-") as temp:
    torch.set_num_threads(1)
    pixels, truth = write_idx(temp, "train", 2)
    write_idx(temp, "t10k", 3)
    gray = pixels[:, :1].contiguous()
    alone = case(temp, gray, truth, 1, 1)
    for count, batches in ((2, 1), (3, 1), (7, 1), (2, 2)):  # 64 images: the last batch has 4, fewer than 7 replicas
        together = case(temp, gray, truth, count, batches)
        if batches == 1:
            apart = difference(together, alone)
            results.check(f"{count} replicas are not one", apart > 20 * TOLERANCE, f"losses differ by {apart:.1e}")
    said = worker(["--data-parallel", "4", "-b", "3", temp], expected=2)
    results.check("fewer images than replicas", "give -b 4 or more" in said, said.strip())
sys.exit(1 if results.failures else 0)

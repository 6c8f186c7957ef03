#!/usr/bin/env python3
"""Files of torch.save to and from ddp-worker: pth.py DDP_WORKER.

torchvision's ResNet-50 makes the circle: torch.save, --pretrained, a checkpoint, `ddp-worker export`, torch.load(weights_only=True),
load_state_dict(strict=True), with equal bits. The seeds' ConvNet is saved in every way that people save, and gives torch's loss on fixed
images; what would run code, and what is no state_dict, is refused by name.
"""
import argparse
import json
import os
import pickle
import struct
import sys
import tempfile
import warnings
import zipfile

import pytorch

pytorch.rerun_or_skip()

import numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from torch import nn  # noqa: E402
from exchange import ConvNet, Results, torch_loss, worker, worker_loss, write_idx  # noqa: E402

results = Results()


def made_convnet():
    torch.manual_seed(4)
    model = ConvNet()
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.rand(32, 1, 28, 28))
        model.fc.weight *= 50  # far from equal scores, whose loss would say little
    return model


def equal_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bytes(a.contiguous().numpy().data) == bytes(b.contiguous().numpy().data)


def circle(folder):
    torch.manual_seed(1)
    model = torchvision.models.resnet50()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    first, checkpoints, last = (os.path.join(folder, n) for n in ("r50.pth", "r50", "out.pth"))
    torch.save(model.state_dict(), first)
    # A step at rate 0 leaves every parameter as it was; running statistics take in one batch.
    worker(["-a", "resnet50", "--dummy", "--image-size", "32", "-b", "4", "--max-steps", "1", "--lr", "0",
            "--pretrained", first, "--checkpoint-dir", checkpoints])
    said = worker(["export", "--from", checkpoints, last])
    after = torch.load(last, weights_only=True)
    fresh = torchvision.models.resnet50()
    results.check("ResNet-50: strict", str(fresh.load_state_dict(after, strict=True)) == "<All keys matched successfully>", said.strip())
    names = [name for name, _ in model.named_parameters()]
    results.check(f"ResNet-50: {len(names)} parameters with equal bits", all(equal_bits(before[n], after[n]) for n in names))
    moved = [n for n in before if n.endswith("running_mean") and not torch.equal(before[n], after[n])]
    results.check("ResNet-50: running statistics moved", len(moved) == 53 and int(after["bn1.num_batches_tracked"]) == 1)
    results.check("ResNet-50: the order of torchvision's", list(after) == list(before))
    newest = max(f for f in os.listdir(checkpoints) if f.endswith(".safetensors"))
    saved = safetensors.torch.load_file(os.path.join(checkpoints, newest))
    results.check("ResNet-50: all of the checkpoint with equal bits",
                  all(equal_bits(saved[n], after[n]) for n in before if not n.endswith("num_batches_tracked")))


def flattened(state):
    """All values in one storage, as views into it, in no order."""
    floats = {k: v for k, v in state.items() if v.is_floating_point()}
    flat = torch.empty(sum(v.numel() for v in floats.values()) + 7)
    at, views = 5, dict(state)
    for name, value in reversed(floats.items()):
        views[name] = flat[at:at + value.numel()].view(value.shape)
        views[name].copy_(value)
        at += value.numel()
    return views


def strided(state):
    """Values that do not lie in C order: channels last, transposed, every second one, one for all."""
    out = dict(state)
    out["layer1.0.weight"] = state["layer1.0.weight"].contiguous(memory_format=torch.channels_last)
    out["layer2.0.weight"] = state["layer2.0.weight"].permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    out["fc.weight"] = state["fc.weight"].t().contiguous().t()
    twice = torch.stack([state["layer2.1.bias"], torch.full((32,), 9.0)], dim=1)
    out["layer2.1.bias"] = twice[:, 0]
    out["layer1.1.weight"] = torch.tensor([1.25]).expand(16)
    return out


def ways(model):
    """(what, object for torch.save, arguments of it, what the worker says it took)"""
    state = model.state_dict()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.rand(4, 1, 28, 28)), torch.tensor([0, 1, 2, 3])).backward()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 5])
    optimizer.step()
    model.load_state_dict(state)
    checkpoint = {"epoch": 3, "arch": "convnet", "best_acc1": torch.tensor(71.5), "seed": 1 << 90, "optimizer": optimizer.state_dict(),
                  "lr_scheduler": schedule.state_dict()}
    ddp = nn.DataParallel(model).state_dict()
    yield "a state_dict", model.state_dict(), {}, ""
    yield "pickle protocol 3", model.state_dict(), {"pickle_protocol": 3}, ""
    yield "save_checkpoint of the seeds", {**checkpoint, "state_dict": ddp}, {}, "its state_dict, names without module."
    yield "torchvision's references", {**checkpoint, "model": state}, {}, "its model"
    yield "a Namespace and a numpy number", {"state_dict": state, "args": argparse.Namespace(lr=0.1), "best_acc1": numpy.float64(3)}, {}, "its state_dict"
    yield "DataParallel", ddp, {}, "names without module."
    yield "torch.compile", {"_orig_mod." + k: v for k, v in state.items()}, {}, "names without _orig_mod."
    yield "named_parameters and named_buffers", {**dict(model.named_parameters()), **dict(model.named_buffers())}, {}, ""
    yield "one storage", flattened(state), {}, ""
    yield "strides", strided(state), {}, ""
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        yield str(dtype), {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}, {}, ""
    integers = {**state, "layer1.1.bias": torch.arange(-8, 8), "layer2.1.weight": torch.arange(32, dtype=torch.int32),
                "layer1.1.weight": torch.arange(16, dtype=torch.uint8), "layer1.0.bias": torch.arange(-8, 8, dtype=torch.int8),
                "layer2.0.bias": torch.arange(32, dtype=torch.int16), "layer2.1.bias": torch.arange(32) % 3 == 0}
    yield "integers", integers, {}, ""


def into_worker(folder, images, labels):
    model = made_convnet()
    path = os.path.join(folder, "saved.pth")
    for what, saved, arguments, taken in ways(model):
        torch.save(saved, path, **arguments)
        state = torch.load(path, weights_only=False)
        state = state.get("state_dict", state.get("model", state))
        fresh = ConvNet()
        fresh.load_state_dict({k.replace("module.", "").replace("_orig_mod.", ""): v for k, v in state.items()})
        said = worker(["-e", "-b", "32", "--pretrained", path, folder])
        line = next(line for line in said.splitlines() if "weights from" in line)
        results.check(f"{what}: says what it took", line.endswith(f"saved.pth{': ' if taken else ''}{taken}"), line)
        results.compare(what, worker_loss(["-e", "-b", "32", "--pretrained", path, folder]), torch_loss(fresh, images, labels))


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def flip_bit(path, entry):
    """In the first value of an entry."""
    with zipfile.ZipFile(path) as archive:
        header = next(i for i in archive.infolist() if i.filename.endswith(entry)).header_offset
    with open(path, "r+b") as file:
        file.seek(header + 26)
        name, extra = struct.unpack("<HH", file.read(4))
        file.seek(header + 30 + name + extra)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def refused(folder):
    model, path, marker = made_convnet(), os.path.join(folder, "bad.pth"), os.path.join(folder, "ran")
    state = model.state_dict()

    def save(saved, **arguments):
        return lambda: torch.save(saved, path, **arguments)

    def save_corrupted():
        torch.save(state, path)
        flip_bit(path, "data/2")

    def save_cut():
        torch.save(state, path)
        os.truncate(path, os.path.getsize(path) - 30)

    cases = [
        ("code", save({**state, "x": Evil(marker)}), "GLOBAL posix.system: refused"),
        ("a set in a Namespace", save({"state_dict": state, "args": argparse.Namespace(skip={1})}), "refused"),
        ("a whole module", save(model), "GLOBAL exchange.ConvNet: refused"),
        ("before 1.6", save(state, _use_new_zipfile_serialization=False), "save it anew: torch.save(torch.load(FILE"),
        ("TorchScript", lambda: torch.jit.script(model).save(path), "TorchScript"),
        ("protocol 4", save(state, pickle_protocol=4), "pickle protocol 4"),
        ("one tensor", save(state["fc.bias"]), "expected a state_dict"),
        ("an epoch in it", save({**state, "epoch": 3}), "its epoch is no tensor"),
        ("a flipped bit", save_corrupted, "is damaged: its bytes do not have the sum"),
        ("a cut file", save_cut, "cut or never finished"),
        ("another shape", save({**state, "fc.bias": torch.zeros(3)}), "its fc.bias"),
        ("an extra tensor", save({**state, "fc2.bias": torch.zeros(3)}), "has no fc2.bias"),
        ("a missing tensor", save({k: v for k, v in state.items() if k != "fc.bias"}), "has no fc.bias"),
        ("a NaN", save({**state, "fc.bias": torch.full((10,), float("nan"))}), "fc.bias"),
        ("a sparse tensor", save({**state, "fc.bias": torch.zeros(10).to_sparse()}), "torch._utils._rebuild_sparse_tensor: refused"),
        ("complex", save({**state, "fc.bias": torch.zeros(10, dtype=torch.complex64)}), "torch.ComplexFloatStorage: refused"),
    ]
    for what, make, words in cases:
        make()
        said = worker(["-e", "--pretrained", path, folder], expected=1)
        results.check(f"refused: {what}", words in said, said.strip().splitlines()[-1])
    with open(path, "wb") as file:
        pickle.dump({"a": 1}, file)
    said = worker(["-e", "--pretrained", path, folder], expected=1)
    results.check("refused: a plain pickle", "but a plain pickle" in said, said.strip().splitlines()[-1])
    results.check("nothing was run", not os.path.exists(marker))


def without_sums(folder, images, labels):
    """Without CRC-32, as torch.serialization.set_crc32_options(False) writes."""
    path = os.path.join(folder, "nosum.pth")
    torch.serialization.set_crc32_options(False)
    torch.save(made_convnet().state_dict(), path)
    torch.serialization.set_crc32_options(True)
    results.compare("without sums", worker_loss(["-e", "-b", "32", "--pretrained", path, folder]), torch_loss(made_convnet(), images, labels))


def exported(folder, images, labels):
    """A trained ConvNet: its checkpoint by export, by name of a step, from a file; torch gives the worker's loss."""
    checkpoints, out = os.path.join(folder, "checkpoints"), os.path.join(folder, "out.pth")
    ours = worker_loss(["-b", "32", "--epochs", "4", "--lr", "0.05", "--checkpoint-dir", checkpoints, folder])
    for from_where in (["--from", checkpoints], ["--from", checkpoints, "--which", "8"],
                       ["--from", os.path.join(checkpoints, "step-00000008.safetensors")]):
        worker(["export", *from_where, out])
        model = ConvNet()
        model.load_state_dict(torch.load(out, weights_only=True), strict=True)
        results.compare(f"export {' '.join(os.path.basename(a) for a in from_where)}", ours, torch_loss(model, images, labels))
        results.check("batches of the batch norms", int(model.layer1[1].num_batches_tracked) == 8)
    with open(os.path.join(checkpoints, "best.json"), encoding="utf-8") as file:
        best = str(json.load(file)["step"])
    by_name, by_step = os.path.join(folder, "name.pth"), os.path.join(folder, "step.pth")
    worker(["export", "--from", checkpoints, "--which", "best", by_name])
    worker(["export", "--from", checkpoints, "--which", best, by_step])
    with open(by_name, "rb") as one, open(by_step, "rb") as other:
        results.check(f"--which best is step {best}", one.read() == other.read())
    results.compare("back by --pretrained", worker_loss(["-e", "-b", "32", "--pretrained", out, folder]), ours)
    said = worker(["export", "--from", checkpoints, "--which", "7", out], expected=1)
    results.check("a step that is not there", "step-00000007.json" in said, said.strip())
    said = worker(["export", "--from", folder, out], expected=1)
    results.check("a folder without checkpoints", "no whole checkpoint" in said, said.strip())


warnings.simplefilter("ignore")  # TorchScript and protocol 3 are there on purpose
with tempfile.TemporaryDirectory(prefix="ddp-pth-") as temp:
    torch.set_num_threads(1)
    write_idx(temp, "train", 2)
    pixels, truth = write_idx(temp, "t10k", 3)
    gray = pixels[:, :1].contiguous()
    into_worker(temp, gray, truth)
    without_sums(temp, gray, truth)
    refused(temp)
    exported(temp, gray, truth)
    circle(temp)
sys.exit(1 if results.failures else 0)

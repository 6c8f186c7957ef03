"""One training step at O0 to O3, ours on the GPU beside PyTorch there, both held against float64. usage: torch_step.py BUILD

The same weights, images and labels go to all three. What is measured is the distance from float64, as a root mean square over
some batches: ours may be WHOLE times PyTorch's own at that level over all gradients, FACTOR times for one parameter's (a single one is
more a matter of luck). So no tolerance is guessed: it is how exact PyTorch itself is in those types. The last batch norm of every
block has a scale of 0.1, as it is small in a trained net: at 1 the last bit of a value decides 14 % of a gradient."""
import concurrent.futures
import json
import os
import struct
import sys

import common

BATCHES = 1 if common.IS_STANDIN else 3
WHOLE, FACTOR = 2.5, 5.0
LEVELS = ("O0", "O2") if common.IS_STANDIN else ("O0", "O1", "O2", "O3")
FLOOR = {"O0": 2e-6, "O1": 2e-4, "O2": 2e-4, "O3": 2e-4}  # where PyTorch happens to be exact: some roundings of the type
LR = 0.1
ARCH, BATCH, SIZE = ("resnet18", 8, 48) if common.IS_STANDIN else ("resnet50", 32, 224)


def write_safetensors(path, arrays):
    """arrays: {name: torch tensor of float32 or int64}"""
    header, at = {}, 0
    for name, tensor in arrays.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": {"torch.float32": "F32", "torch.int64": "I64"}[str(tensor.dtype)], "shape": list(tensor.shape),
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in arrays.values():
            file.write(tensor.contiguous().cpu().numpy().tobytes())


def read_safetensors(torch, path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = torch.frombuffer(data[begin:end], dtype=torch.float32).reshape(entry["shape"])
    return found


def make_model(torch, torchvision):
    torch.manual_seed(0)
    model = getattr(torchvision.models, ARCH)()
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == ("bn2" if ARCH == "resnet18" else "bn3"):
            torch.nn.init.constant_(module.weight, 0.1)
    return model.train()


def torch_step(torch, model, level, images, labels, device):
    """(loss, gradients as float64 on the host) of a copy of the model at that level; None: float64."""
    import copy
    net = copy.deepcopy(model).to(device)
    scale = 128.0
    images, labels = images.to(device), labels.to(device)
    if level is None:
        net, images, scale = net.double(), images.double(), 1.0
    elif level in ("O2", "O3"):
        net, images = net.half(), images.half()
        if level == "O2":
            for module in net.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.float()
    with torch.autocast(device, torch.float16, enabled=level == "O1"):
        scores = net(images)
    loss = torch.nn.functional.cross_entropy(scores if level is None else scores.float(), labels)
    (loss * scale).backward()
    return float(loss.detach()), {name: p.grad.double().cpu() / scale for name, p in net.named_parameters()}


def our_step(torch, where, model, level, images, labels):
    arrays = {name: value for name, value in model.state_dict().items() if value.dtype == torch.float32}
    paths = [os.path.join(where, f"{level}-{name}") for name in ("in", "out")]
    write_safetensors(paths[0], {**arrays, "images": images, "labels": labels})
    said = common.must([os.path.join(common.BUILD, "tests", "gpu", "gpu-step"), "cuda", level, ARCH, *paths])
    assert "one step on" in said, said
    found = read_safetensors(torch, paths[1])
    shapes = {name: p.shape for name, p in model.named_parameters()}
    grads = {name: found[f"grad.{name}"].reshape(shape).double() for name, shape in shapes.items()}
    after = {name: found[f"after.{name}"].reshape(shape).double() for name, shape in shapes.items()}
    return float(found["loss"]), grads, after


class Distance:
    """From float64: root mean squares over batches."""

    def __init__(self):
        self.loss = self.whole = 0.0
        self.each = {}

    def add(self, loss, grads, true_loss, true_grads):
        off_all = norm_all = 0.0
        self.loss += (loss / true_loss - 1) ** 2 / BATCHES
        for name, true in true_grads.items():
            off, norm = float((grads[name] - true).square().sum()), float(true.square().sum())
            off_all, norm_all = off_all + off, norm_all + norm
            self.each[name] = self.each.get(name, 0.0) + off / norm / BATCHES
        self.whole += off_all / norm_all / BATCHES

    def root(self):
        return self.loss ** 0.5, self.whole ** 0.5, {name: value ** 0.5 for name, value in self.each.items()}


def update_error(torch, model, level, grads, after):
    """How far the new weights are from weight - LR * our own gradient, in roundings of what they are kept in."""
    worst = 0.0
    ulp = 2.0 ** -10 if level == "O3" else 2.0 ** -22
    for name, p in model.named_parameters():
        begin = p.detach().double()
        if level == "O3":
            begin = p.detach().half().double()
        expected = begin - LR * grads[name]
        allowed = ulp * torch.maximum(begin.abs(), expected.abs()) + (2.0 ** -24 if level == "O3" else 1e-9)
        worst = max(worst, float(((after[name] - expected).abs() / allowed).max()))
    return worst


def our_steps(torch, where, model, level, batches):
    return [our_step(torch, where, model, level, *batch) for batch in batches]


def check_level(checks, torch, steps, model, level, batches, truths, device):
    ours, theirs = Distance(), Distance()
    for batch, truth, (loss, grads, after) in zip(batches, truths, steps.result()):
        ours.add(loss, grads, *truth)
        theirs.add(*torch_step(torch, model, level, *batch, device), *truth)
    error = update_error(torch, model, level, grads, after)
    floor = FLOOR[level]
    (loss, whole, each), (torch_loss, torch_whole, torch_each) = ours.root(), theirs.root()
    checks.that(loss <= WHOLE * torch_loss + floor, f"{level}: the loss is {loss:.2g} off float64, PyTorch's {torch_loss:.2g}")
    checks.that(whole <= WHOLE * torch_whole + floor, f"{level}: the gradients are {whole:.2g} off, PyTorch's {torch_whole:.2g}")
    far = {name: (off, torch_each[name]) for name, off in each.items() if not off <= FACTOR * torch_each[name] + 5 * floor}
    checks.that(not far, f"{level}: {len(each) - len(far)} of {len(each)} parameters' gradients are at most {FACTOR:g} times as far "
                         f"off as PyTorch's" + (f"; not: {dict(list(far.items())[:4])}" if far else ""))
    checks.that(error <= 1.0, f"{level}: the weights after the step are {error:.2f} roundings off weight - rate * gradient")
    return f"{level} {whole:.2g} (PyTorch {torch_whole:.2g})"


def main():
    try:
        import torch
        import torchvision
    except ImportError as error:
        print(f"skip: {error}")
        return 77
    device = "cpu" if common.IS_STANDIN else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        print("skip: torch finds no GPU")
        return 77
    if common.IS_STANDIN:
        torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    checks = common.Checks()
    model = make_model(torch, torchvision)
    batches = [(torch.rand(BATCH, 3, SIZE, SIZE), torch.randint(1000, (BATCH,))) for _ in range(BATCHES)]
    figures = []
    with common.folder() as where, concurrent.futures.ThreadPoolExecutor(1 if common.IS_STANDIN else 4) as pool:
        steps = {level: pool.submit(our_steps, torch, where, model, level, batches) for level in LEVELS}
        truths = [torch_step(torch, model, None, *batch, device) for batch in batches]
        for level, own in steps.items():
            figures.append(checks.attempt(level, check_level, checks, torch, own, model, level, batches, truths, device))
    common.figure("gradients off float64: " + ", ".join(filter(None, figures)))
    checks.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""PyTorch's side of bench.py. usage: bench_torch.py seed|seed-amp-compile|captured|start [DEVICE [IMAGES]]

seed: the loop of the tutorials that this project began with: the ConvNet, MNIST as torchvision reads it (made-up images of that
shape), batch 100, pinned memory. With amp-compile: under autocast, scaled, compiled, channels_last. captured: the
fastest form that PyTorch has without another kernel: all images on the GPU, bf16 autocast, channels_last, fused SGD, the whole
step a CUDA graph. Prints the time of each epoch. start: from spawn (DDP_SPAWNED, CLOCK_MONOTONIC) to the end of ResNet-50's first step, in parts. Lines of JSON. DEVICE
and IMAGES (of an epoch, of a step) are for tests."""
import json
import os
import sys
import time

BEGUN = time.monotonic()
import torch  # noqa: E402
from torch import nn  # noqa: E402

IMPORTED = time.monotonic()
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cuda"
IMAGES = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def dataset():
    """Images, each turned into a tensor when it is asked for, as torchvision's MNIST with ToTensor()."""
    count = IMAGES or 60000
    images = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 10, (count,))
    try:
        from PIL import Image
        from torchvision import transforms
        to_tensor, reader = transforms.ToTensor(), "torchvision's reader"
    except ImportError:
        Image, to_tensor, reader = None, None, "tensors, no torchvision here"

    class Made(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, index):
            if Image is None:
                return images[index].float().div(255).unsqueeze(0), int(labels[index])
            return to_tensor(Image.fromarray(images[index].numpy(), mode="L")), int(labels[index])
    return Made(), reader


def convnet():
    def block(channels, out):
        return nn.Sequential(nn.Conv2d(channels, out, 5, 1, 2), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2, 2))
    return nn.Sequential(block(1, 16), block(16, 32), nn.Flatten(), nn.Linear(7 * 7 * 32, 10))


def seed(fast):
    made, reader = dataset()
    loader = torch.utils.data.DataLoader(made, batch_size=100, shuffle=True, num_workers=0, pin_memory=DEVICE == "cuda")
    net = convnet().to(DEVICE)
    if fast:
        net = net.to(memory_format=torch.channels_last)
    model = torch.compile(net) if fast else net
    loss_of = nn.CrossEntropyLoss().to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    scaler = torch.amp.GradScaler(DEVICE, enabled=fast)
    for _ in range(2):
        begun = time.monotonic()
        for images, labels in loader:
            images, labels = images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
            with torch.autocast(DEVICE, torch.float16, enabled=fast):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        synchronize()
        print(json.dumps({"epoch_s": time.monotonic() - begun, "reader": reader}), flush=True)


def captured():
    batch, count = 100, IMAGES or 60000
    torch.backends.cudnn.benchmark = True
    all_images = torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8).to(DEVICE)
    all_labels = torch.randint(0, 10, (count,)).to(DEVICE)
    net = convnet().to(DEVICE).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4, fused=DEVICE == "cuda" or None)
    images = torch.rand(batch, 1, 28, 28).to(DEVICE).to(memory_format=torch.channels_last)
    labels = torch.zeros(batch, dtype=torch.long).to(DEVICE)

    def step():
        with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):  # a cache must not outlive a capture
            loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss
    run = capture(step, optimizer) if DEVICE == "cuda" else lambda: (optimizer.zero_grad(), step())
    for _ in range(3):
        begun = time.monotonic()
        order = torch.randperm(count, device=DEVICE)
        for at in range(0, count - batch + 1, batch):
            chosen = order[at:at + batch]
            images.copy_(all_images[chosen])
            images.div_(255)
            labels.copy_(all_labels[chosen])
            run()
        synchronize()
        print(json.dumps({"epoch_s": time.monotonic() - begun, "reader": "images on the GPU, captured step"}), flush=True)


def capture(step, optimizer):
    """As PyTorch's notes on CUDA graphs have it: warmed up on another stream; gradients are made in the graph's own memory."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(11):
            optimizer.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def start():
    parts = {"process": BEGUN - float(os.environ["DDP_SPAWNED"]), "import torch": IMPORTED - BEGUN}
    last = time.monotonic()

    def mark(name):
        nonlocal last
        synchronize()
        parts[name] = time.monotonic() - last
        last = time.monotonic()
    torch.zeros(1).to(DEVICE)
    mark("context")
    try:
        from torchvision.models import resnet50
    except ImportError:
        sys.exit("no torchvision here")
    torch.backends.cudnn.benchmark = True
    net = resnet50().to(DEVICE).to(memory_format=torch.channels_last)
    mark("net")
    count = IMAGES or 256
    images = torch.rand(count, 3, 224, 224).to(DEVICE).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (count,)).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    scaler = torch.amp.GradScaler(DEVICE)
    mark("data")
    with torch.autocast(DEVICE, torch.float16):
        loss = nn.functional.cross_entropy(net(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    mark("first step")
    print(json.dumps({name: 1e3 * seconds for name, seconds in parts.items()}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "start":
        start()
    elif sys.argv[1] == "captured":
        captured()
    else:
        seed(sys.argv[1] == "seed-amp-compile")
    sys.stdout.flush()
    os._exit(0)  # PyTorch aborts at the interpreter's end now and then

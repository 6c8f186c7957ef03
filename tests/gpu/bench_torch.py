"""PyTorch's side of bench.py. usage: bench_torch.py seed|seed-amp-compile|start

seed: the loop of the tutorials that this project began with: the ConvNet, MNIST as torchvision reads it (made-up images of that
shape), batch 100, pinned memory. With amp-compile: under autocast, scaled, compiled, channels_last. Prints the time of each
epoch. start: from spawn (DDP_SPAWNED, CLOCK_MONOTONIC) to the end of ResNet-50's first step, in parts. Lines of JSON."""
import json
import os
import sys
import time

BEGUN = time.monotonic()
import torch  # noqa: E402
from torch import nn  # noqa: E402

IMPORTED = time.monotonic()


def dataset():
    """60,000 images, each turned into a tensor when it is asked for, as torchvision's MNIST with ToTensor()."""
    images = torch.randint(0, 256, (60000, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 10, (60000,))
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
    loader = torch.utils.data.DataLoader(made, batch_size=100, shuffle=True, num_workers=0, pin_memory=True)
    net = convnet().cuda()
    if fast:
        net = net.to(memory_format=torch.channels_last)
    model = torch.compile(net) if fast else net
    loss_of = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=fast)
    for _ in range(2):
        begun = time.monotonic()
        for images, labels in loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.float16, enabled=fast):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.cuda.synchronize()
        print(json.dumps({"epoch_s": time.monotonic() - begun, "reader": reader}), flush=True)


def start():
    parts = {"process": BEGUN - float(os.environ["DDP_SPAWNED"]), "import torch": IMPORTED - BEGUN}
    last = time.monotonic()

    def mark(name):
        nonlocal last
        torch.cuda.synchronize()
        parts[name] = time.monotonic() - last
        last = time.monotonic()
    torch.zeros(1).cuda()
    mark("context")
    try:
        from torchvision.models import resnet50
    except ImportError:
        sys.exit("no torchvision here")
    torch.backends.cudnn.benchmark = True
    net = resnet50().cuda().to(memory_format=torch.channels_last)
    mark("net")
    images = torch.rand(256, 3, 224, 224).cuda().to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (256,)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    scaler = torch.amp.GradScaler("cuda")
    mark("data")
    with torch.autocast("cuda", torch.float16):
        loss = nn.functional.cross_entropy(net(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    mark("first step")
    print(json.dumps({name: 1e3 * seconds for name, seconds in parts.items()}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "start":
        start()
    else:
        seed(sys.argv[1] == "seed-amp-compile")
    sys.stdout.flush()
    os._exit(0)  # PyTorch aborts at the interpreter's end now and then

#!/usr/bin/env python3
"""Training speed of one net: ours beside PyTorch (eager, channels_last, torch.compile), in turns; one CPU thread, or one GPU.

usage: speed.py convnet|resnet50 PROGRAM [--device cpu|cuda] [--batch N] [--rounds R] [--steps S] [--no-compile] [--amp TYPE]
PROGRAM is bench_convnet or bench_resnet. Run it with a Python that has torch; exits with 77 where that is missing. Every
variant is a process of its own, and every round runs each of them once, so that other load on the machine meets all alike;
the medians are compared, and the peaks of memory: resident on the CPU, allocated on the GPU. --amp bf16 or fp16: mixed
precision, ours at O1 on the CPU and O2 on the GPU, PyTorch's autocast with its GradScaler.
Prints a table, the profile of ours (from a run of its own), and one line of JSON at the end."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import torch
    from torch import nn
except ImportError:
    print("skip: this Python has no torch")
    sys.exit(77)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 5, 1, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2, 2))
        self.layer2 = nn.Sequential(nn.Conv2d(16, 32, 5, 1, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2, 2))
        self.fc = nn.Linear(7 * 7 * 32, 10)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.shortcut = nn.Identity() if channels == 4 * width and stride == 1 else nn.Sequential(
            nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def make_resnet50():
    """torchvision's where it is, else the same layers."""
    try:
        import torchvision
        return torchvision.models.resnet50()
    except ImportError:
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                layers.append(Bottleneck(channels, 64 << stage, 2 if stage > 0 and block == 0 else 1))
                channels = 256 << stage
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


CASES = {  # make, channels, size, classes; batch, rounds, steps on the CPU; the same on a GPU
    "convnet": (ConvNet, 1, 28, 10, (100, 7, 30), (100, 7, 600)),
    "resnet50": (make_resnet50, 3, 224, 1000, (16, 4, 1), (256, 5, 20)),
}
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def serve(args):
    """One PyTorch variant: a round for every line on stdin."""
    make, channels, size, classes = CASES[args.case][:4]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    form = torch.channels_last if "channels_last" in args.serve else torch.contiguous_format
    net = make().to(args.device, memory_format=form)
    mode = next((name for name in ("max-autotune", "reduce-overhead") if name in args.serve), None)
    model = torch.compile(net, mode=mode) if "compile" in args.serve else net
    images = torch.rand(args.batch, channels, size, size).to(args.device, memory_format=form)
    labels = torch.randint(classes, (args.batch,)).to(args.device)
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, fused=args.device == "cuda" or None)
    scaler = torch.amp.GradScaler(args.device, enabled=args.amp == "fp16")

    def run(steps):
        for _ in range(steps):
            with torch.autocast(args.device, TYPES.get(args.amp), enabled=args.amp is not None):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if args.device == "cuda":
            torch.cuda.synchronize()

    run(2 if args.steps == 1 else 5)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run(args.steps)
        print(f"round {(time.perf_counter() - start) * 1e3 / args.steps:.6f}", flush=True)
    if args.device == "cuda":
        print(f"bytes {torch.cuda.max_memory_allocated()}")
    sys.stdout.flush()
    os._exit(0)  # PyTorch aborts at the interpreter's end now and then


class Runner:
    def __init__(self, command, device):
        self.device = device
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.times = []
        self.peak_mb = None

    def wait_ready(self):
        return self.process.stdout.readline().strip() == "ready"

    def see_peak(self):
        """Before every round, since our program ends after its last round. getrusage's peak would be older than exec."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    self.peak_mb = int(line.split()[1]) / 1024

    def round(self):
        self.see_peak()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        word, ms = self.process.stdout.readline().split()
        assert word == "round"
        self.times.append(float(ms))

    def close(self):
        self.see_peak()
        self.process.stdin.close()
        rest = self.process.stdout.read()
        if self.process.wait() != 0:
            sys.exit(f"a variant failed: {rest[-500:]}")
        for line in rest.splitlines():
            if line.startswith("bytes ") and self.device == "cuda":
                self.peak_mb = int(line.split()[1]) / 2**20


def ours_command(args, *more):
    level = {"cpu": "O1", "cuda": "O2"}[args.device] if args.amp else "O0"
    words = [args.program, "--batch", str(args.batch), "--steps", str(args.steps), "--opt-level", level]
    if args.amp:
        words += ["--low-type", args.amp]
    if args.device != "cpu":
        words += ["--device", args.device]
    return [*words, *more]


def start(args):
    ours = Runner(ours_command(args, "--lockstep", "--rounds", str(args.rounds)), args.device)
    runners = {"ddp-worker": ours}
    names = ["pytorch channels_last", "pytorch compile channels_last"]
    if args.device == "cpu":
        names += ["pytorch eager", "pytorch compile"]
    for name in names:
        if args.no_compile and "compile" in name:
            continue
        runner = Runner([sys.executable, __file__, args.case, args.program, "--serve", name, "--batch", str(args.batch),
                         "--device", args.device, "--steps", str(args.steps), *(["--amp", args.amp] if args.amp else [])],
                        args.device)
        if runner.wait_ready():  # torch.compile needs a C++ compiler and more; the others still count
            runners[name] = runner
        else:
            runner.process.wait()
            print(f"{name}: does not run here", file=sys.stderr)
    return runners


def profile_of(args):
    command = ours_command(args, "--profile", "--rounds", "2")
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    rows = []
    for line in lines:
        if line.startswith("profile "):
            layer, work, time_text = line[len("profile "):].split(" | ")
            rows.append((layer, work, float(time_text.split()[0])))
    return rows


def report(args, runners, rows):
    speed = {name: args.batch * 1e3 / statistics.median(r.times) for name, r in runners.items()}
    peers = {name: value for name, value in speed.items() if name != "ddp-worker"}
    best = max(peers.values(), default=float("nan"))
    conv = sum(us for _, work, us in rows if work.startswith("conv "))
    everything = sum(us for _, _, us in rows)
    ours = speed["ddp-worker"]
    low = f", {args.amp}" if args.amp else ""
    where = "one thread" if args.device == "cpu" else torch.cuda.get_device_name()
    print(f"{args.case}{low}, batch {args.batch}, {where}, torch {torch.__version__}, "
          f"median of {args.rounds} rounds of {args.steps} steps")
    for name, value in speed.items():
        times = runners[name].times
        print(f"  {name:32s} {value:9.2f} images/s  ({args.batch * 1e3 / max(times):.2f} .. {args.batch * 1e3 / min(times):.2f})"
              f"  ours is {ours / value:.2f} x; peak {runners[name].peak_mb:.0f} MB")
    if rows:
        print(f"  profile of ours ({100 * conv / everything:.0f} % in convolutions):")
    for layer, work, us in rows:
        if us >= 0.005 * everything:
            print(f"    {layer:20s} {work:24s} {us:11.1f} us {100 * us / everything:5.1f} %")
    peak = {name: round(r.peak_mb) for name, r in runners.items()}
    print(json.dumps({
        "bench": args.case + low.replace(", ", "-"), "batch": args.batch, "on": where, "torch": torch.__version__,
        "images_per_s": {name: round(value, 2) for name, value in speed.items()},
        "ratio": {name: round(ours / value, 3) for name, value in peers.items()},
        "ratio_to_best_pytorch": round(ours / best, 3), "peak_mb": peak,
        "peak_ratio_to_least_pytorch": round(peak["ddp-worker"] / min((peak[n] for n in peers), default=float("nan")), 3),
        "conv_share": round(conv / everything, 4) if rows else None,
    }))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("program")
    for name in ("batch", "rounds", "steps"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--amp", choices=TYPES)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--serve", metavar="VARIANT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name, value in zip(("batch", "rounds", "steps"), CASES[args.case][4 if args.device == "cpu" else 5]):
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.serve:
        serve(args)
    runners = start(args)
    for _ in range(args.rounds):
        for runner in runners.values():
            runner.round()
    for runner in runners.values():
        runner.close()
    report(args, runners, profile_of(args))


main()

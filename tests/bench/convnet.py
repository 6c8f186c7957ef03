#!/usr/bin/env python3
"""ConvNet training speed, one thread: ours beside PyTorch (eager, channels_last, torch.compile), in turns.

usage: convnet.py BENCH_CONVNET [--batch N] [--rounds R] [--steps S] [--no-compile]
Run it with a Python that has torch; exits with 77 where that is missing. Every round runs each variant once, so that
other load on the machine meets all alike; the medians are compared. Prints a table, the profile of ours (from a run of
its own), and one line of JSON at the end."""
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


class Ours:
    def __init__(self, program, args):
        command = [program, "--lockstep", "--batch", str(args.batch), "--rounds", str(args.rounds), "--steps", str(args.steps)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        word, ms = self.process.stdout.readline().split()
        assert word == "round"
        return float(ms)

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit("bench_convnet failed")


class Torch:
    def __init__(self, args, channels_last=False, compiled=False):
        torch.manual_seed(0)
        form = torch.channels_last if channels_last else torch.contiguous_format
        self.net = ConvNet().to(memory_format=form)
        self.model = torch.compile(self.net) if compiled else self.net
        self.images = torch.rand(args.batch, 1, 28, 28).contiguous(memory_format=form)
        self.labels = torch.randint(10, (args.batch,))
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.steps = args.steps
        self.run(5)

    def run(self, steps):
        for _ in range(steps):
            loss = self.loss(self.model(self.images), self.labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def round(self):
        start = time.perf_counter()
        self.run(self.steps)
        return (time.perf_counter() - start) * 1e3 / self.steps

    def close(self):
        pass


def profile_of(program, args):
    command = [program, "--profile", "--batch", str(args.batch), "--rounds", "2", "--steps", str(args.steps)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    rows = []
    for line in lines:
        if line.startswith("profile "):
            layer, work, time_text = line[len("profile "):].split(" | ")
            rows.append((layer, work, float(time_text.split()[0])))
    return rows


def variants(args):
    yield "ddp-worker", lambda: Ours(args.program, args)
    yield "pytorch eager", lambda: Torch(args)
    yield "pytorch channels_last", lambda: Torch(args, channels_last=True)
    if not args.no_compile:
        yield "pytorch compile", lambda: Torch(args, compiled=True)
        yield "pytorch compile channels_last", lambda: Torch(args, channels_last=True, compiled=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runners = {}
    for name, make in variants(args):
        try:
            runners[name] = make()
        except Exception as error:  # torch.compile needs a C++ compiler and more; the others still count
            print(f"{name}: does not run here: {str(error).splitlines()[0]}", file=sys.stderr)
    times = {name: [] for name in runners}
    for _ in range(args.rounds):
        for name, runner in runners.items():
            times[name].append(runner.round())
    for runner in runners.values():
        runner.close()
    report(args, times)


def report(args, times):
    speed = {name: args.batch * 1e3 / statistics.median(values) for name, values in times.items()}
    best = max((value for name, value in speed.items() if name.startswith("pytorch")), default=float("nan"))
    rows = profile_of(args.program, args)
    total = args.batch * 1e6 / speed["ddp-worker"]
    conv = sum(us for _, work, us in rows if work.startswith("conv "))
    everything = sum(us for _, _, us in rows)
    print(f"ConvNet, batch {args.batch}, one thread, torch {torch.__version__}, median of {args.rounds} rounds of {args.steps} steps")
    for name, value in speed.items():
        spread = args.batch * 1e3 / max(times[name]), args.batch * 1e3 / min(times[name])
        print(f"  {name:32s} {value:9.0f} images/s  ({spread[0]:.0f} .. {spread[1]:.0f})  ours is {speed['ddp-worker'] / value:.2f} x")
    print(f"  profile of ours (of {total:.0f} us a step; {100 * conv / everything:.0f} % in convolutions):")
    for layer, work, us in rows:
        if us >= 0.5:
            print(f"    {layer:12s} {work:24s} {us:9.1f} us {100 * us / everything:5.1f} %")
    print(json.dumps({
        "bench": "convnet", "batch": args.batch, "threads": 1, "torch": torch.__version__,
        "images_per_s": {name: round(value, 1) for name, value in speed.items()},
        "ratio_to_eager": round(speed["ddp-worker"] / speed["pytorch eager"], 3),
        "ratio_to_best_pytorch": round(speed["ddp-worker"] / best, 3),
        "conv_share": round(conv / everything, 4),
        "profile_us": {f"{layer} {work}": us for layer, work, us in rows},
    }))


main()

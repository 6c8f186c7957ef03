#!/usr/bin/env python3
"""Training speed of one net, one thread: ours beside PyTorch (eager, channels_last, torch.compile), in turns.

usage: speed.py convnet|resnet50 PROGRAM [--batch N] [--rounds R] [--steps S] [--no-compile] [--bf16]
PROGRAM is bench_convnet or bench_resnet. Run it with a Python that has torch; exits with 77 where that is missing. Every
variant is a process of its own, and every round runs each of them once, so that other load on the machine meets all alike;
the medians are compared, and the peaks of resident memory. --bf16: ours at O1 beside PyTorch's autocast, both in bf16.
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


def make_resnet50():
    import torchvision
    return torchvision.models.resnet50()


CASES = {  # make, channels, size, classes, batch, rounds, steps
    "convnet": (ConvNet, 1, 28, 10, 100, 7, 30),
    "resnet50": (make_resnet50, 3, 224, 1000, 16, 4, 1),
}


def serve(args):
    """One PyTorch variant: a round for every line on stdin."""
    make, channels, size, classes = CASES[args.case][:4]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    form = torch.channels_last if "channels_last" in args.serve else torch.contiguous_format
    net = make().to(memory_format=form)
    model = torch.compile(net) if "compile" in args.serve else net
    images = torch.rand(args.batch, channels, size, size).contiguous(memory_format=form)
    labels = torch.randint(classes, (args.batch,))
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)

    def run(steps):
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    run(2 if args.steps == 1 else 5)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run(args.steps)
        print(f"round {(time.perf_counter() - start) * 1e3 / args.steps:.6f}", flush=True)
    sys.stdout.flush()
    os._exit(0)  # PyTorch aborts at the interpreter's end now and then


class Runner:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.times = []
        self.peak_mb = None

    def wait_ready(self):
        return self.process.stdout.readline().strip() == "ready"

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        word, ms = self.process.stdout.readline().split()
        assert word == "round"
        self.times.append(float(ms))

    def close(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:  # getrusage's peak is older than exec
            self.peak_mb = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024
        self.process.stdin.close()
        rest = self.process.stdout.read()
        if self.process.wait() != 0:
            sys.exit(f"a variant failed: {rest[-500:]}")


def ours_command(args, *more):
    return [args.program, "--batch", str(args.batch), "--steps", str(args.steps), *(["--opt-level", "O1", "--low-type", "bf16"] if args.bf16 else []), *more]


def start(args):
    runners = {"ddp-worker": Runner(ours_command(args, "--lockstep", "--rounds", str(args.rounds)))}
    names = ["pytorch eager", "pytorch channels_last"]
    if not args.no_compile:
        names += ["pytorch compile", "pytorch compile channels_last"]
    for name in names:
        runner = Runner([sys.executable, __file__, args.case, args.program, "--serve", name, "--batch", str(args.batch),
                         "--steps", str(args.steps), *(["--bf16"] if args.bf16 else [])])
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
    low = ", bf16" if args.bf16 else ""
    print(f"{args.case}{low}, batch {args.batch}, one thread, torch {torch.__version__}, "
          f"median of {args.rounds} rounds of {args.steps} steps")
    for name, value in speed.items():
        times = runners[name].times
        print(f"  {name:32s} {value:9.2f} images/s  ({args.batch * 1e3 / max(times):.2f} .. {args.batch * 1e3 / min(times):.2f})"
              f"  ours is {ours / value:.2f} x; peak {runners[name].peak_mb:.0f} MB")
    print(f"  profile of ours ({100 * conv / everything:.0f} % in convolutions):")
    for layer, work, us in rows:
        if us >= 0.005 * everything:
            print(f"    {layer:20s} {work:24s} {us:11.1f} us {100 * us / everything:5.1f} %")
    peak = {name: round(r.peak_mb) for name, r in runners.items()}
    print(json.dumps({
        "bench": args.case + low.replace(", ", "-"), "batch": args.batch, "threads": 1, "torch": torch.__version__,
        "images_per_s": {name: round(value, 2) for name, value in speed.items()},
        "ratio": {name: round(ours / value, 3) for name, value in peers.items()},
        "ratio_to_best_pytorch": round(ours / best, 3), "peak_rss_mb": peak,
        "peak_ratio_to_least_pytorch": round(peak["ddp-worker"] / min((peak[n] for n in peers), default=float("nan")), 3),
        "conv_share": round(conv / everything, 4),
    }))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("program")
    for name in ("batch", "rounds", "steps"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--serve", metavar="VARIANT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name, value in zip(("batch", "rounds", "steps"), CASES[args.case][4:]):
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

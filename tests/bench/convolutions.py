#!/usr/bin/env python3
"""Random convolutions, ours beside PyTorch's in turns: forward, backward data, backward weights; one CPU thread.

usage: convolutions.py PROGRAM [--low-type bf16] [--seed N] [--count N] [--skip N] [--limit X] [--shape "IMAGES IN OUT SIDE KERNEL STRIDE PAD FIRST"]...
PROGRAM is bench_conv. Run it with a Python that has torch; exits with 77 where that is missing. Each shape is measured twice in both
programs, in turns, and the better median counts. PyTorch runs aten::conv2d and aten::convolution_backward on contiguous tensors,
without autograd. Prints one line a shape and exits with 1 if any direction takes more than --limit (1.5) times PyTorch's time and
is slower by more than 30 us, which are not the loops but the call."""
import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import torch
except ImportError:
    print("skip: this Python has no torch")
    sys.exit(77)

DIRECTIONS = ("forward", "data", "weights")
SLACK_US = 30.0
FLOP_MAX = 4e8
VALUES_MAX = 4e6


def draw_channels(rng):
    kind = rng.random()
    if kind < 0.35:
        return 2 ** rng.randint(0, 9)
    if kind < 0.6:
        return rng.randint(1, 24)
    return round(2 ** rng.uniform(0, 9))


def draw(rng):
    """A shape that takes no more than a few milliseconds."""
    while True:
        kernel, stride = rng.choice((1, 3, 3, 3, 5, 7)), rng.choice((1, 1, 1, 2, 2, 3))
        pad = rng.choice((0, kernel // 2, kernel // 2, rng.randint(0, kernel - 1)))
        n, side = rng.choice((1, 2, 3, 5, 8, 8, 16, 32)), rng.choice((1, 4, 5, 7, 8, 13, 14, 28, 28, 31, 32, 56, 65))
        is_first = rng.random() < 0.2
        channels = rng.choice((1, 1, 2, 3, 3, 4)) if is_first else draw_channels(rng)
        out = draw_channels(rng)
        if side + 2 * pad < kernel:
            continue
        out_side = (side + 2 * pad - kernel) // stride + 1
        flop = 2.0 * n * channels * out * out_side**2 * kernel**2
        if flop <= FLOP_MAX and n * max(channels * side**2, out * out_side**2) <= VALUES_MAX:
            return n, channels, out, side, kernel, stride, pad, int(is_first)


def median_us(call):
    times, end = [], time.perf_counter() + 0.03
    for _ in range(2):
        call()
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 400):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def theirs(shape, dtype):
    n, channels, out, side, kernel, stride, pad, is_first = shape
    x, weights = torch.rand(n, channels, side, side).to(dtype), torch.rand(out, channels, kernel, kernel).to(dtype)
    y = torch.nn.functional.conv2d(x, weights, None, stride, pad)
    dy = torch.rand_like(y)

    def backward(mask):
        return torch.ops.aten.convolution_backward(dy, x, weights, None, (stride, stride), (pad, pad), (1, 1), False, (0, 0), 1, mask)

    return (median_us(lambda: torch.nn.functional.conv2d(x, weights, None, stride, pad)),
            0.0 if is_first else median_us(lambda: backward((True, False, False))),
            median_us(lambda: backward((False, True, False))))


def ours(program, shape):
    program.stdin.write(" ".join(map(str, shape)) + "\n")
    program.stdin.flush()
    line = program.stdout.readline()
    if not line:
        sys.exit(f"bench_conv ended at {shape}")
    return tuple(float(word) for word in line.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--low-type", choices=("bf16",))
    parser.add_argument("--shape", action="append")
    parser.add_argument("--limit", type=float, default=1.5)
    for name, value in (("seed", 1), ("count", 100), ("skip", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rng = random.Random(args.seed)
    shapes = [tuple(map(int, text.split())) for text in args.shape or ()]
    if not shapes:
        shapes = [draw(rng) for _ in range(args.skip + args.count)][args.skip:]
    command = [args.program, *(["--low-type", args.low_type] if args.low_type else [])]
    dtype = torch.bfloat16 if args.low_type else torch.float32
    slow, ratios = 0, []
    print(f"torch {torch.__version__}, seed {args.seed}, {dtype}; us of ours / us of PyTorch")
    print(f"{'n x in->out, side k stride pad':34s} {'forward':>22s} {'data':>22s} {'weights':>22s}")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        for shape in shapes:
            pairs = [(ours(program, shape), theirs(shape, dtype)) for _ in range(2)]
            best = [(min(p[0][d] for p in pairs), min(p[1][d] for p in pairs)) for d in range(3)]
            is_slow = any(a > args.limit * b and a - b > SLACK_US for a, b in best)
            n, channels, out, side, kernel, stride, pad, is_first = shape
            text = f"{n} x {channels}->{out}, {side} k{kernel} s{stride} p{pad}{' first' if is_first else ''}"
            cells = " ".join(f"{a:9.1f} /{b:9.1f}{' !' if a > args.limit * b and a - b > SLACK_US else '  '}" for a, b in best)
            print(f"{text:34s} {cells}", flush=True)
            slow += is_slow
            ratios += [[a / b for a, b in best if b > 0]]
        program.stdin.close()
    mean = math.exp(statistics.fmean(math.log(r) for row in ratios for r in row))
    print(f"{len(shapes)} shapes, {slow} with a direction slower than {args.limit} x; geometric mean of ours / PyTorch {mean:.2f}, "
          f"worst {max(max(row) for row in ratios):.2f}")
    return 1 if slow else 0


sys.exit(main())

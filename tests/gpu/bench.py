"""Speed on a GPU, ours beside PyTorch in the same call. usage: bench.py BUILD [--quick] [--out FILE]

Run it with a Python that has torch. ResNet-50 at O2 (batch 256 and 512, made-up images) and the ConvNet, each beside PyTorch's
AMP channels_last, eager and compiled; then how long a worker takes from its start to its first step, and where that goes.
Prints a Markdown report with date, commit, device and versions; --out writes it too."""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CASES = (("resnet50", "bench_resnet", "256"), ("resnet50", "bench_resnet", "512"), ("convnet", "bench_convnet", "100"))


def output_of(*argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def speed(build, case, program, batch, quick):
    command = [sys.executable, os.path.join(ROOT, "tests", "bench", "speed.py"), case,
               os.path.join(build, "tests", "bench", program), "--device", "cuda", "--amp", "fp16", "--batch", batch]
    if quick:
        command += ["--no-compile", "--rounds", "2"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(done.stdout)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        return [f"{case}, batch {batch}: failed with exit code {done.returncode}", ""]
    result = json.loads(lines[-1])
    lines = [f"| {case} O2, batch {batch} | images/s | ours against it | peak MB |", "|---|---|---|---|"]
    for name, value in result["images_per_s"].items():
        ratio = result["ratio"].get(name)
        lines.append(f"| {name} | {value} | {f'{ratio} x' if ratio else ''} | {result['peak_mb'][name]} |")
    return [*lines, ""]


def first_step(build):
    """From spawn to the first lines of a worker, in seconds."""
    started = time.monotonic()
    marks = []
    with subprocess.Popen([os.path.join(build, "worker", "ddp-worker"), "--device", "cuda", "-a", "resnet50", "--dummy", "-b",
                           "256", "--opt-level", "O2", "--max-steps", "3", "-p", "1"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as worker:
        for line in worker.stdout:
            found = re.search(r"training on|Processing user overrides|Step \[\d+", line)
            if found:
                marks.append((found.group(0).replace("Processing user overrides", "net is made"), time.monotonic() - started))
    if worker.returncode != 0:
        return [f"first step: ddp-worker ended with {worker.returncode}", ""]
    return ["| from spawn to | s |", "|---|---|", *[f"| {name.replace('[', '')} | {seconds:.2f} |" for name, seconds in marks], ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true", help="no torch.compile, two rounds")
    parser.add_argument("--out")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skip: this Python has no torch")
        return 77
    if not torch.cuda.is_available():
        print("skip: torch finds no GPU")
        return 77
    lines = [f"# GPU benchmarks, {datetime.date.today().isoformat()}", "",
             f"Commit {output_of('git', '-C', ROOT, 'rev-parse', '--short', 'HEAD')}; "
             f"{output_of('nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader')}; "
             f"torch {torch.__version__}, its cuDNN {torch.backends.cudnn.version()}.", ""]
    for case in CASES:
        lines += speed(os.path.abspath(args.build), *case, args.quick)
    lines += first_step(os.path.abspath(args.build))
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Speed on a GPU, ours beside PyTorch in the same call; one Markdown report, one JSON.

usage: bench.py BUILD [--seconds N] [--quick] [--only PART,...] [--list] [--python PYTHON] [--out FILE]

Run it with a Python that has torch, or name one by --python; where PyTorch is missing or fails, only ours is
measured and the row has the reason. Parts run in order of their value; each has an estimate and a limit. The report lists the parts that are left
out because they do not fit into --seconds. --quick: no torch.compile, fewer rounds. FILE.json lies beside --out's FILE.md.
Exit: 0 measured; 1 a part of ours failed; 77 no GPU, or no part fitted."""

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import typing

import bench_parts as parts
import report
from bench_run import Failed

SPARE_S = 5.0  # for the report


@dataclasses.dataclass
class Part:
    name: str
    words: str
    run: typing.Callable
    estimate_s: float
    quick_s: float  # the estimate with --quick
    limit_s: float


PARTS = [
    Part("resnet256", "ResNet-50 O2, batch 256, beside PyTorch AMP channels_last, eager and compiled, fp16 and bf16",
         lambda bench: parts.resnet(bench, 256), 200, 40, 300),
    Part("breakdown", "where a ResNet-50 step's time goes, against the roofs", parts.breakdown, 20, 15, 90),
    Part("convnet", "an epoch of the ConvNet beside the seed's loop", parts.convnet, 70, 40, 150),
    Part("start", "from spawn to the first step", parts.first_step, 50, 50, 150),
    Part("variants", "stage two, recorded steps, deterministic, types", parts.variants, 130, 110, 300),
    Part("resnet512", "ResNet-50 O2, batch 512, beside PyTorch", lambda bench: parts.resnet(bench, 512), 220, 50, 300),
    Part("nccl", "sizes of buckets and maxCTAs over all GPUs of the node", parts.nccl, 5, 5, 300),
]


def output_of(*argv):
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def facts_of(args):
    names = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    torch = output_of(args.python, "-c", "import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())")
    return {"date": datetime.date.today().isoformat(), "commit": report.commit_of(args.build), "gpus": names,
            "torch": torch or f"none in {os.path.basename(args.python)}", "cpus": os.cpu_count(), "quick": args.quick}


def estimate_of(part, quick, gpus):
    if part.name == "nccl" and gpus > 1:
        return 150.0
    return part.quick_s if quick else part.estimate_s


def run_part(part, bench, end):
    """Lines for the report, and what goes into the JSON."""
    estimate_s = estimate_of(part, bench.quick, bench.gpus)
    left = end - time.monotonic()
    if estimate_s > left:
        words = f"left out: takes about {estimate_s:.0f} s, {max(0.0, left):.0f} s were left"
        print(f"-- {part.name}: {words}", flush=True)
        return [words[0].upper() + words[1:] + "."], {"left_out": words}
    print(f"-- {part.name}: {part.words}", flush=True)
    begun = time.monotonic()
    bench.deadline = min(begun + part.limit_s, end)
    try:
        lines, data, figure = part.run(bench)
    except (Failed, KeyError, ValueError) as failure:
        words = f"{type(failure).__name__}: {failure}" if not isinstance(failure, Failed) else str(failure)
        print(f"   {part.name}: failed: {words}", flush=True)
        return [f"Failed: {words}."], {"failed": words, "seconds": round(time.monotonic() - begun, 1)}
    print(f"figure: {figure}", flush=True)
    return lines, {"figures": data, "seconds": round(time.monotonic() - begun, 1)}


def chosen(only):
    if only is None:
        return PARTS
    names = only.split(",")
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if part.name in names]


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def heading(facts):
    return [f"# GPU benchmarks, {facts['date']}", "",
            f"Commit {facts['commit']}; {'; '.join(facts['gpus'])}; PyTorch {facts['torch']}; {facts['cpus']} processors"
            f"{'; --quick' if facts['quick'] else ''}. Made by `tests/gpu/bench.py`; ratios are of the same call.", ""]


def measure(args, facts, wanted):
    end = time.monotonic() + args.seconds - SPARE_S
    lines, results = heading(facts), {}
    with tempfile.TemporaryDirectory(prefix="ddp-bench-") as folder:
        bench = parts.Bench(args.build, args.python, args.quick, len(facts["gpus"]), folder, args.net)
        for part in wanted:
            said, results[part.name] = run_part(part, bench, end)
            lines += [f"## {part.name}: {part.words}", "", *said, ""]
            if args.out:  # whatever comes, what was measured is there
                write(args.out, "\n".join(lines))
                write(os.path.splitext(args.out)[0] + ".json", json.dumps({**facts, "parts": results}, indent=1) + "\n")
    print("\n".join(lines))
    if any("failed" in result for result in results.values()):
        return 1
    return 0 if any("figures" in result for result in results.values()) else 77


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--quick", action="store_true", help="no torch.compile, fewer rounds")
    parser.add_argument("--only", metavar="PART,...")
    parser.add_argument("--list", action="store_true", help="parts and what they take")
    parser.add_argument("--python", default=sys.executable, help="one that has torch")
    parser.add_argument("--net", nargs=2, default=("resnet50", "256"), metavar=("ARCH", "BATCH"), help="another one for the parts by --profile")
    parser.add_argument("--out", metavar="FILE.md")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    wanted = chosen(args.only)
    if args.list:
        for part in wanted:
            print(f"{part.name:10s} about {estimate_of(part, args.quick, 1):4.0f} s, at most {part.limit_s:4.0f} s: {part.words}")
        return 0
    facts = facts_of(args)
    if not facts["gpus"]:
        print("skip: nvidia-smi finds no GPU")
        return 77
    return measure(args, facts, wanted)


if __name__ == "__main__":
    sys.exit(main())

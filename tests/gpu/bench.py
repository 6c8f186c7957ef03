"""Speed on a GPU, ours beside PyTorch in the same call; one Markdown report, one JSON.

usage: bench.py BUILD [--budget SECONDS] [--quick] [--only ROW,...] [--list] [--python PYTHON] [--out FILE]

BUILD is a build folder, or what tests/gpu/pack made of one.

Rows run in order of their value, each with a limit of its own, and each is in the report as soon as it is there. A row that does not
fit into --budget is cut; the report says which. Run it with a Python that has torch, or name one by --python; where PyTorch is
missing, fails or compiles for too long, its row has the reason and no other row is the poorer. --quick: no torch.compile, fewer
rounds. FILE.json lies beside --out's FILE.md. Exit: 0 measured; 1 a row of ours failed; 77 no GPU, or no row fitted."""

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

import bench_rows as rows
import built
import report
from bench_run import Failed, NotMeasured

SPARE_S = 5.0  # for the report
LEAST_S = 3.0  # with less no row is begun


@dataclasses.dataclass
class Row:
    name: str
    words: str
    run: typing.Callable
    estimate_s: float  # on an H100
    limit_s: float
    quick: bool = True  # also with --quick


@dataclasses.dataclass
class Result:
    kind: str  # measured, failed, not measured, cut
    figure: str
    seconds: float = 0.0
    lines: list = dataclasses.field(default_factory=list)
    data: object = None


EAGER, COMPILED = "pytorch channels_last", "pytorch compile reduce-overhead channels_last"
ROWS = [
    Row("cold", "from spawn to the end of the first step, nothing cached", rows.start("nothing cached", 8.0), 3, 60),
    Row("cached", "the same with plans cached, of which it may time some for 2 s", rows.start("plans cached", 2.0), 4, 30),
    Row("as it is", "ResNet-50 O2 fp16 at 256: the step, and where its time goes", rows.as_it_is, 6, 60),
    Row("tuned", "from spawn to the end of the first step, plans cached, convolutions timed", rows.start("convolutions timed", 2.0), 2, 30),
    Row("pytorch fp16", "PyTorch AMP channels_last, eager, fp16, and ours in turns", rows.peer(EAGER, "fp16"), 40, 70),
    Row("bf16", "bf16", rows.variant(["--low-type", "bf16"], {}), 8, 60),
    Row("pytorch bf16", "PyTorch AMP channels_last, eager, bf16, and ours in turns", rows.peer(EAGER, "bf16"), 40, 70),
    Row("norms", "every batch norm by our kernels and by plans, against a copy", rows.norms, 10, 60),
    Row("convnet", "an epoch of the ConvNet", rows.convnet, 12, 45),
    Row("convnet loop", "the same by the tutorial's loop in PyTorch", rows.convnet_peer("seed", "the tutorial's loop", 20), 28, 60),
    Row("convnet captured", "the same in PyTorch with images on the GPU and a captured step",
        rows.convnet_peer("captured", "PyTorch's captured step", 1.2), 14, 40),
    Row("pytorch start", "from spawn to PyTorch's first step", rows.torch_start, 20, 40),
    Row("pytorch compiled", "PyTorch compiled with CUDA graphs (reduce-overhead), fp16, and ours in turns", rows.peer(COMPILED, "fp16"), 90, 110,
        False),
    Row("tune", "ddp-worker --tune: all engines are timed, those of batch norms too, for all rows after it", rows.tune, 95, 120),
    Row("faster of both", "the step after --tune: batch norms by plans where they are faster", rows.variant([], {}), 6, 40),
    Row("shortcuts", "DDP_CUDA_SHORTCUTS=auto: gradients of shortcuts that are not stored, where --tune found that to be faster",
        rows.variant([], {"DDP_CUDA_SHORTCUTS": "auto"}), 6, 40),
    Row("stats auto", "DDP_CUDA_STATS=auto: statistics out of convolutions where that is faster", rows.variant([], {"DDP_CUDA_STATS": "auto"}),
        35, 60),
    Row("no graph", "DDP_CUDA_GRAPH=0: nothing recorded", rows.variant([], {"DDP_CUDA_GRAPH": "0"}), 10, 40),
    Row("deterministic", "--deterministic", rows.variant(["--deterministic"], {}, ()), 20, 60),
    Row("stats 1", "DDP_CUDA_STATS=1: statistics in the convolution", rows.variant([], {"DDP_CUDA_STATS": "1"}), 15, 60),
    Row("stats 2", "DDP_CUDA_STATS=2: ... and norms on the way in", rows.variant([], {"DDP_CUDA_STATS": "2"}), 15, 60),
    Row("tf32", "O0 with --tf32", rows.variant(["--opt-level", "O0", "--tf32"], {}), 20, 60),
    Row("pytorch max-autotune", "PyTorch compiled with max-autotune, fp16, and ours in turns",
        rows.peer("pytorch compile max-autotune channels_last", "fp16"), 200, 300, False),
    Row("convnet compiled", "the tutorial's loop under autocast and torch.compile",
        rows.convnet_peer("seed-amp-compile", "the tutorial's loop, compiled", None), 60, 90, False),
] + [Row(f"nccl {mib} MiB {ctas}", f"buckets of {mib} MiB, {f'maxCTAs {ctas}' if ctas else 'the maxCTAs of NCCL'}, over all GPUs",
         rows.nccl(mib, ctas), 20, 60) for mib, ctas in rows.NCCL_WAYS]


def output_of(*argv):
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def facts_of(args):
    names = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    # without importing it, which takes seconds of the budget
    torch = output_of(args.python, "-c", "import importlib.metadata as m; print(m.version('torch'))")
    return {"date": datetime.date.today().isoformat(), "commit": report.commit_of(args.build), "gpus": names,
            "torch": torch or f"none in {os.path.basename(args.python)}", "cpus": os.cpu_count(), "quick": args.quick}


def run_row(row, bench, end):
    left = end - time.monotonic()
    if row.estimate_s > left or left < LEAST_S:
        return Result("cut", f"takes about {row.estimate_s:.0f} s, {max(0.0, left):.0f} s were left")
    begun = time.monotonic()
    bench.deadline = min(begun + row.limit_s, end)
    try:
        lines, data, figure = row.run(bench)
        result = Result("measured", figure, lines=lines, data=data)
        bench.figures[row.name] = data
    except NotMeasured as why:
        result = Result("not measured", str(why))
    except Failed as failure:
        result = Result("failed", str(failure))
    except Exception as failure:  # also a mistake of ours here costs its own row only
        result = Result("failed", f"{type(failure).__name__}: {failure}")
    result.seconds = time.monotonic() - begun
    return result


def chosen(only, quick):
    """By name, or by the first words of names: "pytorch" are all forms."""
    if not only:
        return [row for row in ROWS if row.quick or not quick]

    def is_of(row, name):
        return row.name == name or row.name.startswith(name + " ")
    names = only.split(",")
    unknown = [name for name in names if not any(is_of(row, name) for row in ROWS)]
    if unknown:
        sys.exit(f"no such row: {', '.join(unknown)}; there are {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if any(is_of(row, name) for name in names)]


def heading(facts):
    return [f"# GPU benchmarks, {facts['date']}", "",
            f"Commit {facts['commit']}; {'; '.join(facts['gpus'])}; PyTorch {facts['torch']}; {facts['cpus']} processors"
            f"{'; --quick' if facts['quick'] else ''}. Made by `tests/gpu/bench.py`; ratios are of the same call.", ""]


def text_of(facts, wanted, results):
    lines = [*heading(facts), "| row | what | result | s |", "|---|---|---|---|"]
    for row in wanted:
        result = results.get(row.name, Result("not reached", "ended before it"))
        words = result.figure if result.kind == "measured" else f"{result.kind}: {result.figure}"
        lines.append(f"| {row.name} | {report.cell(row.words)} | {report.cell(words)} | {result.seconds:.1f} |")
    cut = [row.name for row in wanted if row.name in results and results[row.name].kind == "cut"]
    if cut:
        lines += ["", f"Cut, since they did not fit into the time: {', '.join(cut)}."]
    for row in wanted:
        if row.name in results and results[row.name].lines:
            lines += ["", f"## {row.name}: {row.words}", "", *results[row.name].lines]
    return "\n".join(lines) + "\n"


def write(path, text):
    """Whole or not at all: whoever ends us keeps what there is."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def keep(args, facts, wanted, results):
    if args.out:
        write(args.out, text_of(facts, wanted, results))
        entries = {name: {"result": result.kind, "words": result.figure, "seconds": round(result.seconds, 1), "figures": result.data}
                   for name, result in results.items()}
        write(os.path.splitext(args.out)[0] + ".json", json.dumps({**facts, "rows": entries}, indent=1) + "\n")


def headlines(wanted, results):
    """For the table of tests/gpu/run."""
    for name in ("cold", "as it is", "pytorch fp16"):
        if name in results:
            result = results[name]
            yield f"{name}: {result.figure}" if result.kind == "measured" else f"{name}: {result.kind}: {result.figure}"
    for kind in ("measured", "not measured", "failed", "cut"):
        names = [row.name for row in wanted if row.name in results and results[row.name].kind == kind]
        if names:
            yield f"rows {kind}: " + (str(len(names)) if kind == "measured" else ", ".join(names))


def paths_of(python):
    """Where it looks for packages: those of NVIDIA's libraries may be there alone."""
    there = [] if python == sys.executable else output_of(python, "-c", "import sys; print('\\n'.join(sys.path))").splitlines()
    return [*there, *sys.path]


def measure(args, facts, wanted, end):
    results = {}
    with tempfile.TemporaryDirectory(prefix="ddp-bench-", ignore_cleanup_errors=True) as folder:
        bench = rows.Bench(args.build, args.python, args.quick, len(facts["gpus"]), folder, args.net)
        try:
            for row in wanted:
                print(f"-- {row.name}: {row.words}", flush=True)
                result = results[row.name] = run_row(row, bench, end)
                print(f"   {row.name}: {result.kind}, {result.seconds:.1f} s: {result.figure}", flush=True)
                keep(args, facts, wanted, results)
        finally:
            bench.close_ours()
    print(text_of(facts, wanted, results))
    for line in headlines(wanted, results):
        print(f"figure: {line}")
    kinds = {result.kind for result in results.values()}
    return 1 if "failed" in kinds else 0 if "measured" in kinds else 77


def main():
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--budget", type=float, default=540, metavar="SECONDS")
    parser.add_argument("--quick", action="store_true", help="no torch.compile, fewer rounds")
    parser.add_argument("--only", metavar="ROW,...")
    parser.add_argument("--list", action="store_true", help="rows and what they take")
    parser.add_argument("--python", default=sys.executable, help="one that has torch")
    parser.add_argument("--net", nargs="+", default=("resnet50", "256"), metavar="ARCH BATCH [WORDS]",
                        help="another one, and words for bench_resnet and bench_norms")
    parser.add_argument("--out", metavar="FILE.md")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    wanted = chosen(args.only, args.quick)
    if args.list:
        left = args.budget - SPARE_S
        for row in wanted:
            fits = row.estimate_s <= left
            left -= row.estimate_s if fits else 0
            print(f"{row.name:20s} about {row.estimate_s:4.0f} s, at most {row.limit_s:4.0f} s: {row.words}{'' if fits else ' [cut]'}")
        return 0
    with tempfile.TemporaryDirectory(prefix="ddp-bench-build-", ignore_cleanup_errors=True) as scratch:
        args.build = built.unpack(args.build, scratch)
        facts = facts_of(args)
        if not facts["gpus"]:
            print("skip: nvidia-smi finds no GPU")
            return 77
        os.environ.update(built.environ_of(args.build, scratch, paths_of(args.python)))
        if len(facts["gpus"]) < 2 and not args.only:
            wanted = [row for row in wanted if not row.name.startswith("nccl")]  # a world of one reduces nothing
        return measure(args, facts, wanted, begun + args.budget - SPARE_S)


if __name__ == "__main__":
    sys.exit(main())

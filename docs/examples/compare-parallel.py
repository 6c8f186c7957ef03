#!/usr/bin/env python3
"""DataParallel against DistributedDataParallel, as the tutorials compare them: a table and a plot.

    compare-parallel.py [options] [DATA] [-- OPTIONS OF ddp-worker]

Trains the same net four times: in one process; with --data-parallel N, which shares batches of B images, and batches of N x B; and with N ranks
under ddpctl, each with batches of B. Prints a table, and writes it with a plot to FOLDER/parallel.md and FOLDER/parallel.svg. DATA and the other
options are given to ddp-worker as they are. Needs Python alone.
"""
import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

COLUMNS = ["run", "processes", "images a step", "steps", "images/s", "x one process", "s an epoch", "Val Acc@1"]


def arguments():
    own, worker = sys.argv[1:], []
    if "--" in own:
        worker = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", metavar="DATA", help="as ddp-worker's; without it its built-in digits")
    parser.add_argument("-n", "--replicas", type=int, default=2, metavar="N", help="replicas, and ranks (2)")
    parser.add_argument("-b", "--batch-size", type=int, default=100, metavar="B", help="images a step of one process (100)")
    parser.add_argument("--epochs", type=int, default=2, help="the first one warms up (2)")
    parser.add_argument("--device", default="auto", help="as ddp-worker's (auto)")
    parser.add_argument("--bin", metavar="FOLDER", help="where ddp-worker and ddpctl are, if not on PATH; or a build folder")
    parser.add_argument("-o", "--output", default=".", metavar="FOLDER", help="where parallel.md and parallel.svg go (.)")
    options = parser.parse_args(own)
    if options.replicas < 2:
        parser.error("--replicas: 2 or more")
    if options.epochs < 1 or options.batch_size < 1:
        parser.error("--epochs and --batch-size: 1 or more")
    return options, worker


def program(name, folder):
    places = [os.path.join(folder, name), os.path.join(folder, "worker", name), os.path.join(folder, "ddpctl", name)] if folder else []
    found = next((p for p in places if os.access(p, os.X_OK) and os.path.isfile(p)), None if folder else shutil.which(name))
    if found is None:
        sys.exit(f"{name} is not in {folder or 'PATH'}: give --bin FOLDER")
    return os.path.abspath(found)


def runs(options):
    """(name, processes, images a step, command)"""
    worker, ctl = program("ddp-worker", options.bin), program("ddpctl", options.bin)
    n, batch = options.replicas, options.batch_size
    yield "one process", 1, batch, [worker, "-b", str(batch)]
    yield f"DataParallel, {n} replicas", 1, batch, [worker, "-b", str(batch), "--data-parallel", str(n)]
    yield f"DataParallel, {n} replicas", 1, n * batch, [worker, "-b", str(n * batch), "--data-parallel", str(n)]
    yield f"DDP, {n} ranks", n, n * batch, [ctl, "run", "--standalone", "--max-restarts", "0", "--nproc-per-node", str(n), "--", worker,
                                            "-b", str(batch)]


def measure(name, command, options, more):
    """The rate is the median of the printed lines but the first, which has the warm-up in it."""
    with tempfile.TemporaryDirectory(prefix="compare-parallel-") as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        words = [*command, "--epochs", str(options.epochs), "--device", options.device, "--metrics", metrics, *more,
                 *([options.data] if options.data else [])]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}  # as under ddpctl, where a rank has one thread
        print(f"{name}: {' '.join(words)}", file=sys.stderr, flush=True)
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-2000:]}\n{name} failed: exit code {done.returncode}")
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    rates = [line["images_per_s"] for line in lines if line["kind"] == "step" and line["images_per_s"]]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    validations = [line["acc1"] for line in lines if line["kind"] == "validation"]
    if not rates or not epochs:
        sys.exit(f"{name}: no step was reported: give a smaller --print-freq after --")
    return {"rate": statistics.median(rates[1:] or rates), "seconds": epochs[-1]["seconds"], "steps": epochs[-1]["step"],
            "acc1": validations[-1] if validations else None}


def table(rows):
    base = rows[0]["rate"]
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for row in rows:
        accuracy = "-" if row["acc1"] is None else f"{row['acc1']:.2f}"
        lines.append(f"| {row['name']} | {row['processes']} | {row['images']} | {row['steps']} | {row['rate']:.0f} | {row['rate'] / base:.2f} | "
                     f"{row['seconds']:.2f} | {accuracy} |")
    return "\n".join(lines)


def plot(rows):
    """Bars of images/s, one a run; legible on a light and on a dark page."""
    width, left, line, most = 720, 250, 44, max(row["rate"] for row in rows)
    height = line * len(rows) + 50
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="images per second">',
             "<style>text{font:14px sans-serif;fill:#222}rect{fill:#4a7ebb}rect.ddp{fill:#2e8b57}"
             "@media(prefers-color-scheme:dark){text{fill:#ddd}rect{fill:#7aa6d8}rect.ddp{fill:#5fbf8a}}</style>",
             '<text x="8" y="22">images/s, training</text>']
    for i, row in enumerate(rows):
        bar, y = (width - left - 90) * row["rate"] / most, 40 + i * line
        kind = ' class="ddp"' if row["processes"] > 1 else ""
        parts += [f'<text x="8" y="{y + 13}">{row["name"]}</text>', f'<text x="8" y="{y + 29}" opacity=".7">{row["images"]} images a step</text>',
                  f'<rect{kind} x="{left}" y="{y}" width="{bar:.1f}" height="30" rx="3"/>',
                  f'<text x="{left + bar + 8:.1f}" y="{y + 20}">{row["rate"]:.0f}</text>']
    return "\n".join([*parts, "</svg>", ""])


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def main():
    options, more = arguments()
    os.makedirs(options.output, exist_ok=True)
    rows = [{"name": name, "processes": processes, "images": images, **measure(name, command, options, more)}
            for name, processes, images, command in runs(options)]
    text = table(rows)
    where = f"{datetime.date.today()}, {os.cpu_count()} CPUs, {platform.machine()}, --device {options.device}"
    written = [write(options.output, "parallel.md", f"DataParallel against DDP: {where}\n\n{text}\n"),
               write(options.output, "parallel.svg", plot(rows))]
    print(f"{text}\n\nwritten: {', '.join(written)}")


if __name__ == "__main__":
    main()

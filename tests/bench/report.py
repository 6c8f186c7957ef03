"""Runs the benchmarks and prints one report (Markdown, with the raw JSON below). Called by tests/bench/run."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys


def last_json(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(done.stdout)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        return {"failed": f"{os.path.basename(argv[0])}: exit {done.returncode}"}
    return json.loads(lines[-1])


def cpu_name():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def commit(root):
    def git(*args):
        return subprocess.run(["git", "-C", root, *args], capture_output=True, text=True,
                              check=False).stdout.strip()
    return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain") else "")


def row(name, sides, aim):
    ours = sides["ours"]
    peer = sides.get("torchrun")
    ratio = f"{peer['median'] / ours['median']:.1f} x" if peer else "not measured"
    theirs = f"{peer['median']} ({peer['min']} to {peer['max']}, n={peer['n']})" if peer else "-"
    return (f"| {name} | {ours['median']} ({ours['min']} to {ours['max']}, n={ours['n']}) | {theirs} |"
            f" {ratio} | {aim} |")


def control_lines(control):
    if "failed" in control:
        return [f"Control plane: {control['failed']}"]
    memory = control["memory"]
    lines = ["| control plane, ms: median (range) | ours | torchrun | ratio | aim |",
             "|---|---|---|---|---|",
             row("`run --standalone --nproc-per-node 4 -- /bin/true`, start to exit",
                 control["start_ms"], "150"),
             row("SIGKILL of a worker to the next generation's first main",
                 control["restart_first_ms"], "50"),
             row("... to its last main (4 ranks)", control["restart_all_ms"], "-"), "",
             "| memory with 4 workers running (idle: no job), MB | RSS | private and dirty |", "|---|---|---|"]
    names = [name.removesuffix("_rss_mb") for name in sorted(memory) if name.endswith("_rss_mb")]
    return lines + [f"| {name} | {memory[f'{name}_rss_mb']} | {memory.get(f'{name}_own_mb', '-')} |" for name in names]


def speed_lines(result):
    if "failed" in result:
        return [f"Speed: {result['failed']}"]
    lines = [f"| {result['bench']}, batch {result['batch']}, {result['on']} | images/s | ours against it | peak memory, MB |",
             "|---|---|---|---|"]
    for name, value in result["images_per_s"].items():
        ratio = result["ratio"].get(name)
        lines.append(f"| {name} | {value} | {f'{ratio} x' if ratio else ''} | {result['peak_mb'][name]} |")
    if result["conv_share"] is not None:
        lines += ["", f"{100 * result['conv_share']:.0f} % of our step is inside oneDNN's convolutions."]
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser()
    for name in ("root", "build", "write", "torchrun", "python"):
        parser.add_argument(f"--{name}", default="")
    args = parser.parse_args()
    bench = f"{args.build}/tests/bench"
    results = {
        "control": last_json([sys.executable, f"{args.root}/tests/bench/control.py", args.build,
                              "--torchrun", args.torchrun]),
        "overlap": last_json([f"{bench}/overlap/overlap"]),
        "ddp resnet50": last_json([f"{bench}/overlap/ddp_bench", "--batch", "8"]),
        "ddp convnet": last_json([f"{bench}/overlap/ddp_bench", "--arch", "convnet", "--size", "28", "--batch", "100",
                                  "--rounds", "11", "--steps", "20"]),
    }
    if args.python:
        for case, program in (("convnet", "bench_convnet"), ("resnet50", "bench_resnet")):
            command = [args.python, f"{args.root}/tests/bench/speed.py", case, f"{bench}/{program}"]
            results[case] = last_json(command)
            results[f"{case} bf16"] = last_json([*command, "--amp", "bf16"])
    today = datetime.date.today().isoformat()
    lines = [f"# Benchmarks, {today}", "",
             f"Commit {commit(args.root)}. {os.cpu_count()} cores, {cpu_name()}. Made by `tests/bench/run --write`.", "",
             *control_lines(results["control"]), "",
             *[line for result in results.values() if "images_per_s" in result for line in speed_lines(result)],
             *[f"```json\n{json.dumps({name: value}, indent=1)}\n```" for name, value in results.items()]]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.write == "yes":
        with open(f"{args.root}/docs/results/{today}-bench.md", "w", encoding="utf-8") as file:
            file.write(text)
    return 1 if any("failed" in value for value in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

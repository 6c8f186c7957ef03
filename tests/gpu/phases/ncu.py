"""Counters of one eager ResNet-50 step by Nsight Compute: the slowest batch norm backward and the stem's weight gradient, the last
of the step, as parts of the device's bandwidth and arithmetic. usage: ncu.py BUILD"""
import csv
import io
import os
import shutil
import sys

import common

METRICS = {"gpu__time_duration.sum": "ns", "dram__bytes.sum": "bytes",
           "dram__throughput.avg.pct_of_peak_sustained_elapsed": "% of bandwidth",
           "sm__throughput.avg.pct_of_peak_sustained_elapsed": "% of arithmetic"}
UNITS = {"second": 1e9, "msecond": 1e6, "usecond": 1e3, "nsecond": 1, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "%": 1}
KERNELS = "regex:(?i)bn_bw|bnbw|norm.*b(ack)?w|batchnorm|wgrad|dgrad_weight"
LAUNCHES = 160  # of such kernels: a step has 53 of each
LIMIT_S = 80


def kernels_in(text):
    """[(name, {metric: value})] in the order of the launches, from ncu --csv."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    found = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        if row.get("Metric Name") in METRICS and (row.get("Metric Unit") or "%") in UNITS:
            entry = found.setdefault(int(row["ID"]), (row["Kernel Name"], {}))
            entry[1][row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"] or "%"]
    return [found[number] for number in sorted(found)]


def words_of(name, values):
    us = values.get("gpu__time_duration.sum", float("nan")) / 1e3
    gigabytes = values.get("dram__bytes.sum", float("nan")) / 1e9
    parts = [f"{values[metric]:.0f} {METRICS[metric]}" for metric in list(METRICS)[2:] if metric in values]
    return f"{name.split('(')[0][:60]}: {us:.1f} us, {gigabytes:.3f} GB, {', '.join(parts)}"


def main():
    tool = shutil.which("ncu")
    if tool is None:
        print("skip: no ncu in PATH")
        return 77
    argv = [tool, "--csv", "--clock-control", "none", "--target-processes", "all", "--kernel-name", KERNELS, "--launch-count",
            str(LAUNCHES), "--metrics", ",".join(METRICS), common.WORKER, "--device", "cuda", "-a", "resnet50", "--dummy", "--opt-level", "O2",
            "-b", "256", "--max-steps", "1", "-p", "1"]
    code, said = common.run(argv, limit_s=LIMIT_S, DDP_CUDA_GRAPH="0", DDP_CUDA_CANDIDATES="1")
    kernels = kernels_in(said)
    print(said[-4000:] if not kernels else "\n".join(words_of(*kernel) for kernel in kernels))
    if "ERR_NVGPUCTRPERM" in said:
        print("skip: this user may not read the counters (ERR_NVGPUCTRPERM)")
        return 77
    if code != 0 or not kernels:
        print(f"ncu: exit code {code}, {len(kernels)} kernels")
        return 1
    norms = [kernel for kernel in kernels if "wgrad" not in kernel[0].lower()]
    weights = [kernel for kernel in kernels if "wgrad" in kernel[0].lower()]
    if norms:
        common.figure("norm " + words_of(*max(norms, key=lambda kernel: kernel[1].get("gpu__time_duration.sum", 0))))
    if weights:
        common.figure("last weight gradient " + words_of(*weights[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

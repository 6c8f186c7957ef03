#!/usr/bin/env python3
"""Four ranks from nothing to their first all-reduce (gloo), under `ddpctl run --standalone` and `torchrun --standalone` by turns:
store_start.py BUILD [--rounds N].

Medians of the rounds: the whole command; from the first rank's main to the end of the last rank's all-reduce; of that, the time
after the last rank has called init_process_group, when nobody waits for a rank that still imports PyTorch.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

BEGIN_NS = time.time_ns()
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
RANKS = 4
PATIENCE_S = 300


def worker(folder):
    import torch
    import torch.distributed as dist

    init_ns = time.time_ns()
    dist.init_process_group("gloo")
    one = torch.ones(1)
    dist.all_reduce(one)
    end_ns = time.time_ns()
    assert one.item() == RANKS
    with open(os.path.join(folder, os.environ["RANK"]), "w", encoding="ascii") as file:
        file.write(f"{BEGIN_NS} {init_ns} {end_ns}")
    dist.destroy_process_group()


def one_round(command):
    """Milliseconds: the whole command, main to all-reduce, init to all-reduce."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        done = subprocess.run([*command, os.path.abspath(__file__), "--worker", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=PATIENCE_S, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        whole = (time.monotonic() - begin) * 1e3
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: exit {done.returncode}: {done.stdout[-2000:]}")
        stamps = []
        for rank in range(RANKS):
            with open(os.path.join(folder, str(rank)), encoding="ascii") as file:
                stamps.append([int(word) / 1e6 for word in file.read().split()])
    begins, inits, ends = zip(*stamps)
    return whole, max(ends) - min(begins), max(ends) - max(inits)


def main():
    import pytorch

    python = pytorch.python_or_skip()
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    commands = {"ours": [os.path.abspath(f"{args.build}/ddpctl/ddpctl"), "run", "--standalone", "--nproc-per-node", str(RANKS), "--max-restarts",
                         "0", "--", python],
                "torchrun": [os.path.join(os.path.dirname(python), "torchrun"), "--standalone", "--nproc-per-node", str(RANKS)]}
    found = {name: [] for name in commands}
    print("load of the machine: " + " ".join(f"{one:.1f}" for one in os.getloadavg()))
    for i in range(args.rounds + 1):
        for name, command in commands.items():
            times = one_round(command)
            if i > 0:  # before that, files come from the disk
                found[name].append(times)
    for k, what in enumerate(("whole command", "main to all-reduce", "init to all-reduce")):
        for name, rounds in found.items():
            values = [times[k] for times in rounds]
            print(f"{what:20} {name:9} {statistics.median(values):8.1f} ms ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()

"""Control-plane figures beside torchrun in the same run, pairs interleaved. usage: control.py BUILD [--torchrun PATH] [--rounds N]
Prints one JSON object: medians in milliseconds, memory in MB."""

import argparse
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 120


def run_to_exit(argv):
    start = time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE_S,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]}: exit {done.returncode}: {done.stderr.decode()[-500:]}")
    return (time.monotonic() - start) * 1e3


def stamps(path):
    try:
        with open(path, encoding="ascii") as file:
            return [[int(word) for word in line.split()] for line in file if line.endswith("\n")]
    except OSError:
        return []


def wait_stamps(path, count):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = stamps(path)
        if len(found) >= count:
            return found
        select.select([], [], [], 0.002)
    raise RuntimeError(f"{len(stamps(path))} of {count} workers came up")


def tree(pid):
    """pid and all its descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        found.append(one)
        queue.extend(children.get(one, []))
    return found


def memory_mb(pid, field="VmRSS"):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    return 0.0


def command(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0")


def restart(argv, path, memory):
    """From SIGKILL of one of four workers to the main of the next generation: first and last rank. Milliseconds."""
    if os.path.exists(path):
        os.unlink(path)
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            first = wait_stamps(path, 4)
            memory(process.pid)
            killed_ns = time.time_ns()
            os.kill(first[2][2], signal.SIGKILL)
            second = wait_stamps(path, 8)[4:]
            times = [(stamp[3] - killed_ns) / 1e6 for stamp in second]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
    return min(times), max(times)


class Memory:
    """RSS of each kind of our processes, and of the whole that torchrun is, while four workers run."""

    def __init__(self):
        self.figures = {}

    def ours(self, root):
        for pid in tree(root):
            words = command(pid)
            name = os.path.basename(words[0]).decode() if words and words[0] else ""
            if b"--shim" in words:
                name = "shim"
            if name in ("rendezvous", "launcherd", "shim", "ddpctl"):
                self.figures[f"{name}_rss_mb"] = round(memory_mb(pid), 1)

    def torchrun(self, root):
        self.figures["torchrun_rss_mb"] = round(max(memory_mb(pid) for pid in tree(root)), 1)


def summary(values):
    return {"median": round(statistics.median(values), 1), "min": round(min(values), 1),
            "max": round(max(values), 1), "n": len(values)}


def measure(build, torchrun, rounds):
    folder = tempfile.mkdtemp(prefix="ddp-bench-")
    stamp = f"{build}/tests/bench/stamp"
    memory = Memory()
    ours = [f"{build}/ddpctl/ddpctl", "run", "--standalone", "--nproc-per-node", "4"]
    theirs = torchrun and [torchrun, "--standalone", "--nproc-per-node", "4", "--no-python"]
    found = {"start_ms": {"ours": [], "torchrun": []}, "restart_first_ms": {"ours": [], "torchrun": []},
             "restart_all_ms": {"ours": [], "torchrun": []}}
    try:
        for i in range(rounds):
            found["start_ms"]["ours"].append(run_to_exit([*ours, "--", "/bin/true"]))
            if theirs and i % 4 == 0:
                found["start_ms"]["torchrun"].append(run_to_exit([*theirs, "/bin/true"]))
            first, last = restart([*ours, "--max-restarts", "3", "--", stamp, f"{folder}/s"],
                                  f"{folder}/s", memory.ours)
            found["restart_first_ms"]["ours"].append(first)
            found["restart_all_ms"]["ours"].append(last)
            if theirs and i % 4 == 0:
                first, last = restart(theirs[:4] + ["--max-restarts", "3", "--no-python", stamp,
                                                    f"{folder}/s"], f"{folder}/s", memory.torchrun)
                found["restart_first_ms"]["torchrun"].append(first)
                found["restart_all_ms"]["torchrun"].append(last)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"bench": "control",
            **{name: {who: summary(times) for who, times in sides.items() if times}
               for name, sides in found.items()},
            "memory": memory.figures}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--torchrun", default=shutil.which("torchrun"))
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    json.dump(measure(os.path.abspath(args.build), args.torchrun, args.rounds), sys.stdout)
    print()


if __name__ == "__main__":
    main()

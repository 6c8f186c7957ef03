"""Control-plane figures beside torchrun in the same run, in turns. usage: control.py BUILD [--before BUILD] [--torchrun PATH] [--rounds N]
--before: another build of ours, such as that of the commit before, in the same turns. Prints one JSON object: milliseconds, memory in MB.
The job that is restarted has run for a moment: what the kernel does lazily after an idle time (RCU) is part of a restart."""

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
RUNS_S = 0.3


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


def memory_mb(pid, field="VmRSS", file="status"):
    with open(f"/proc/{pid}/{file}", encoding="ascii", errors="replace") as status:
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
            select.select([], [], [], RUNS_S)
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
    """RSS of each kind of our processes, and of the whole that torchrun is, while four workers run. own_mb: what belongs to the process
    alone (private and dirty); the rest is mostly pages of libraries, which others share."""

    def __init__(self):
        self.figures = {}

    def take(self, name, pid):
        self.figures[f"{name}_rss_mb"] = round(memory_mb(pid), 1)
        self.figures[f"{name}_own_mb"] = round(memory_mb(pid, "Private_Dirty", "smaps_rollup"), 1)

    def ours(self, root):
        for pid in tree(root):
            words = command(pid)
            name = os.path.basename(words[0]).decode() if words and words[0] else ""
            if b"--shim" in words:
                name = "shim"
            if b"--store" in words:
                name = "store"
            if name in ("rendezvous", "launcherd", "shim", "store", "ddpctl"):
                self.take(name, pid)

    def idle(self, build):
        """Daemons that serve nobody, and how long the first start of a server takes."""
        folder = tempfile.mkdtemp(prefix="ddp-bench-")
        server = ["--socket", f"{folder}/s", "--state-dir", f"{folder}/r"]
        node = ["--server", f"unix:{folder}/s", "--state-dir", f"{folder}/n", "--name", "n", "--slots", "4", "--allow-root"]
        daemons, start = [], time.monotonic()
        try:
            for name, args in (("rendezvous", server), ("launcherd", node)):
                daemons.append(subprocess.Popen([f"{build}/{name}/{name}", *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
                if not daemons[-1].stdout.readline():
                    raise RuntimeError(f"{name} does not start")
                self.figures.setdefault("new_store_ready_ms", round((time.monotonic() - start) * 1e3, 1))
            for name, daemon in zip(("rendezvous", "launcherd"), daemons):
                self.take(f"idle_{name}", daemon.pid)
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(PATIENCE_S)
                daemon.stdout.close()
            shutil.rmtree(folder, ignore_errors=True)

    def torchrun(self, root):
        self.figures["torchrun_rss_mb"] = round(max(memory_mb(pid) for pid in tree(root)), 1)


def summary(values):
    return {"median": round(statistics.median(values), 1), "min": round(min(values), 1),
            "max": round(max(values), 1), "n": len(values)}


class Sides:
    """The figures of each side, by name."""

    def __init__(self):
        self.times = {"start_ms": {}, "restart_first_ms": {}, "restart_all_ms": {}}

    def add(self, who, start, first, last):
        for name, value in (("start_ms", start), ("restart_first_ms", first), ("restart_all_ms", last)):
            self.times[name].setdefault(who, []).append(value)

    def summary(self):
        return {name: {who: summary(values) for who, values in sides.items()} for name, sides in self.times.items()}


def measure(args):
    folder = tempfile.mkdtemp(prefix="ddp-bench-")
    builds = {"ours": args.build, **({"before": args.before} if args.before else {})}
    memories = {who: Memory() for who in (*builds, "torchrun")}
    stamp = [f"{args.build}/tests/bench/stamp", f"{folder}/s"]
    theirs = [args.torchrun, "--standalone", "--nproc-per-node", "4"]
    sides = Sides()
    try:
        for i in range(args.rounds):
            for who, build in builds.items():
                ours = [f"{build}/ddpctl/ddpctl", "run", "--standalone", "--nproc-per-node", "4"]
                sides.add(who, run_to_exit([*ours, "--", "/bin/true"]),
                          *restart([*ours, "--max-restarts", "3", "--", *stamp], f"{folder}/s", memories[who].ours))
            if args.torchrun and i % 4 == 0:
                sides.add("torchrun", run_to_exit([*theirs, "--no-python", "/bin/true"]),
                          *restart([*theirs, "--max-restarts", "3", "--no-python", *stamp], f"{folder}/s", memories["torchrun"].torchrun))
        for who, build in builds.items():
            memories[who].idle(build)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"bench": "control", **sides.summary(), "memory": {**memories["ours"].figures, **memories["torchrun"].figures},
            **({"memory_before": memories["before"].figures} if args.before else {})}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--torchrun", default=shutil.which("torchrun"))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--before")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    json.dump(measure(args), sys.stdout)
    print()


if __name__ == "__main__":
    main()

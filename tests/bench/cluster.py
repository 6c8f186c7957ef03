"""Figures of a server with many connections. usage: cluster.py BUILD [--write FILE]
Everything on this machine: the load generator (tests/bench/load.c) on one core, the server on another. Prints a report."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from report import commit, cpu_name

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from processes.wire import Client, Server  # pylint: disable=wrong-import-position

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


class Bench:
    def __init__(self, build):
        self.build, self.dir = os.path.abspath(build), tempfile.mkdtemp(prefix="ddp-bench-")
        self.server, self.count = None, 0

    def __enter__(self):
        self.count += 1
        self.server = Server(f"{self.build}/rendezvous/rendezvous", f"{self.dir}/state{self.count}", "--listen", "127.0.0.1:0",
                             "--require-key", "--advertise", "localhost:1", "--suspect", "60s", "--lost", "120s")  # beats stay 1 s
        self.tcp = None
        return self

    def __exit__(self, *rest):
        self.server.stop()

    def keys(self, role, count):
        """A file with that many keys; the network address opens with the first."""
        path = f"{self.dir}/{role}-{self.count}"
        with Client(self.server.address) as client, open(path, "w", encoding="ascii") as file:
            for i in range(count):
                file.write(client.ask("principal_add", name=f"n{i}" if role == "node" else f"u{i}", role=role)["url"] + "\n")
        if self.tcp is None:
            self.tcp = [word.rstrip(",") for line in self.server.log().splitlines() if " is open" in line
                        for word in line.split() if word.startswith("127.0.0.1:")][-1]
        return path

    def load(self, *args, address=None):
        """The generator's figures, with the server's CPU time between its lines "connected" and "done", else in all."""
        pid = self.server.process.pid
        before, begin = cpu_s(pid), time.monotonic()
        process = subprocess.Popen([f"{self.build}/tests/bench/load", address or self.tcp, *map(str, args)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line == "connected\n":
                before, begin, rss = cpu_s(pid), time.monotonic(), rss_kib(pid)
                print(file=process.stdin, flush=True)
            elif line == "done\n":
                cpu, wall = cpu_s(pid) - before, time.monotonic() - begin
                rss = max(rss, rss_kib(pid))
                print(file=process.stdin, flush=True)
            else:
                figures = json.loads(line)
        process.stdin.close()
        if process.wait() != 0:
            return {"failed": f"exit {process.returncode}"}
        if "connections" not in figures:
            figures["server_cpu_s"] = round(cpu_s(pid) - before, 2)
        else:
            figures.update(server_cpu_percent=round(100 * cpu / wall, 1), server_rss_kib=rss)
        return figures


def run(bench, seconds):
    results = []
    with bench:
        key = bench.keys("user", 1)
        one = bench.load(key, "handshakes", seconds, 6)
        one["per_server_cpu_s"] = round(one["count"] / one["server_cpu_s"], 1)
        results.append(one)
    for kind, count in (("node", 1000), ("node", 4096), ("client", 1000), ("client", 10000)):
        with bench:
            keys = bench.keys("node" if kind == "node" else "user", count if kind == "node" else 1)
            base = rss_kib(bench.server.process.pid)
            one = bench.load(keys, kind + "s", count, seconds)
            if "failed" not in one:
                one["kib_a_connection"] = round((one["server_rss_kib"] - base) / count, 1)
            results.append(one)
    for nodes in (64, 1250, 4096):
        with bench:
            os.environ["DDP_SERVER"] = bench.server.address
            results.append(bench.load(bench.keys("node", nodes), "round", nodes, 8))
    for clients in (1, 50, 200):
        with bench:
            results.append(bench.load("-", "submits", 480, clients, address=bench.server.address))
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=10)
    args = parser.parse_args()
    bench = Bench(args.build)
    try:
        results = run(bench, args.seconds)
    finally:
        shutil.rmtree(bench.dir, ignore_errors=True)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    print(f"Commit {commit(root)}. {os.cpu_count()} cores, {cpu_name()}; load before: {os.getloadavg()[0]:.1f}.")
    for one in results:
        print(json.dumps(one))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Our c10d store beside TCPStore's own server (libuv): store.py BUILD [--rounds N] [--only WORD].

Each server in a process of its own, by turns, medians of the rounds. "raw" is tests/bench/store_client.c, one request outstanding a
connection; "PyTorch" its client. Behind each time: the CPU time that the server took for it, which other programs on the machine
change less.
"""
import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
import pytorch  # noqa: E402

pytorch.rerun_or_skip()

import torch.distributed as dist  # noqa: E402

THEIRS = ("import sys, torch.distributed as dist; store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, "
          "use_libuv=True); print('listening 127.0.0.1:%d' % store.port, flush=True); sys.stdin.read()")
HELLO = b"\0\xce\xf7\x85\x3c"
PING, MULTI_SET = b"\x0d\1\0\0\0", b"\x0b"


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def cpu_us(self):
        """CPU time of all of its threads."""
        tasks, total = f"/proc/{self.process.pid}/task", 0
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total / 1e3

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class RawLoad:
    """store_client, with `clients` connections that stay from round to round."""

    def __init__(self, build, server, what, clients, count):
        self.operations = clients * count if what != "wake" else 1
        self.process = subprocess.Popen([f"{build}/tests/bench/store_client", str(server.port), what, str(clients), str(count)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"store_client {what} {clients}: no answer from the server at port {server.port}")

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class TorchLoad:
    def __init__(self, server, what, count):
        self.operations, self.what = count, what
        self.store = dist.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False, use_libuv=True)

    def round(self):
        store, value, begin = self.store, "x" * 128, time.perf_counter()
        for i in range(self.operations):
            if self.what == "add":
                store.add("n", 1)
            else:
                store.set(f"k{i}", value)
                store.get(f"k{i}")
        return (time.perf_counter() - begin) / self.operations * 1e6

    def close(self):
        self.store = None


def text(value):
    return struct.pack("<Q", len(value)) + value


def fill(server, count):
    """Seconds and memory for `count` keys by MULTI_SET."""
    before = server.resident_kib()
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as one:
        one.sendall(HELLO)
        begin = time.perf_counter()
        for first in range(0, count, 1000):
            items = b"".join(text(b"/default_pg/0/%07d" % i) + text(b"0123456789") for i in range(first, first + 1000))
            one.sendall(MULTI_SET + struct.pack("<Q", 1000) + items)
        one.sendall(PING)
        assert len(one.recv(4, socket.MSG_WAITALL)) == 4
        return time.perf_counter() - begin, (server.resident_kib() - before) / 1024


def measure(loads, servers, rounds):
    """{name: ([time], [CPU time of the server])}, by turns; one round before to get warm."""
    found = {name: ([], []) for name in servers}
    for i in range(rounds + 1):
        for name, server in servers.items():
            before = server.cpu_us()
            took = loads[name].round()
            if i > 0:
                found[name][0].append(took)
                found[name][1].append((server.cpu_us() - before) / loads[name].operations)
    return found


def report(label, found):
    """Of `wake` without CPU times: those are of the time in which all begin to wait as well."""
    middle = {name: [statistics.median(values) for values in both] for name, both in found.items()}
    for name, (times, cpus) in found.items():
        cpu = "" if label.startswith("wake") else f", server's CPU {middle[name][1]:8.1f} us ({min(cpus):.1f} to {max(cpus):.1f})"
        print(f"{label:24} {name:9} {middle[name][0]:9.1f} us ({min(times):.1f} to {max(times):.1f})" + cpu)
    ratios = [theirs / ours for theirs, ours in zip(middle["TCPStore"], middle["ours"])]
    print(f"{label:24} factor    {ratios[0]:9.2f}" + ("" if label.startswith("wake") else f"    server's CPU {ratios[1]:.2f}"), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keys", type=int, default=1000000)
    parser.add_argument("--only", action="append", default=[], help="raw, PyTorch, connect, wake or memory")
    args = parser.parse_args()
    wanted = args.only or ["raw", "PyTorch", "connect", "wake", "memory"]
    servers = {"ours": Server([f"{args.build}/tests/store-server"]), "TCPStore": Server([sys.executable, "-c", THEIRS])}
    cases = [(f"raw {what} x {clients}", lambda server, what=what, clients=clients: RawLoad(args.build, server, what, clients, 4000 // clients))
             for what in ("add", "setget") for clients in (1, 8, 64)] if "raw" in wanted else []
    if "PyTorch" in wanted:
        cases += [(f"PyTorch {what}", lambda server, what=what: TorchLoad(server, what, 2000)) for what in ("add", "setget")]
    if "connect" in wanted:
        cases += [("connect", lambda server: RawLoad(args.build, server, "connect", 1, 50))]
    if "wake" in wanted:
        cases += [(f"wake {clients}", lambda server, clients=clients: RawLoad(args.build, server, "wake", clients, 1)) for clients in (50, 1000)]
    print("load of the machine: " + " ".join(f"{one:.1f}" for one in os.getloadavg()))
    for label, make in cases:
        loads = {name: make(server) for name, server in servers.items()}
        report(label, measure(loads, servers, args.rounds))
        for load in loads.values():
            load.close()
    for name, server in servers.items() if "memory" in wanted else ():
        seconds, mib = fill(server, args.keys)
        print(f"{args.keys} keys {name:9} {seconds:.2f} s, {mib:.0f} MiB")
    for server in servers.values():
        server.close()


if __name__ == "__main__":
    main()

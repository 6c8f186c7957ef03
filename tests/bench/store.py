#!/usr/bin/env python3
"""Our c10d store beside TCPStore's own server (libuv), the same PyTorch client: store.py STORE_SERVER [--waiters N].

Each server in a process of its own, in turns, medians of five rounds. Also N raw sockets that wait for one key: from the SET to the
last answer.
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
ROUNDS = 5


def text(value):
    return struct.pack("<Q", len(value)) + value


def start(command):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline().rsplit(":", 1)[1])


def timed(count, function):
    begin = time.perf_counter()
    for i in range(count):
        function(i)
    return (time.perf_counter() - begin) / count * 1e6


def resident_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def raw(port):
    one = socket.create_connection(("127.0.0.1", port), timeout=5)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.sendall(b"\0\xce\xf7\x85\x3c\x0d\1\0\0\0")
    assert one.recv(4, socket.MSG_WAITALL) == b"\1\0\0\0", "closed"
    one.settimeout(120)
    return one


def wake(port, store, count):
    """ms from the SET to the last of the answers, which are read one after the other: a median of rounds. None: a connection had no answer."""
    waiters, taken = [], []
    try:
        for _ in range(count):
            waiters.append(raw(port))
    except TimeoutError:
        print(f"connection {len(waiters)} had no answer to VALIDATE and PING within 5 s")
        return None
    for i in range(ROUNDS):
        key = f"/wake{i}".encode()
        for one in waiters:
            one.sendall(b"\x06" + struct.pack("<Q", 1) + text(key))
        store.num_keys()
        time.sleep(0.3)  # all of them wait by then
        begin = time.perf_counter()
        store.set(key[1:].decode(), "x")
        for one in waiters:
            assert one.recv(1) == b"\0"
        taken.append((time.perf_counter() - begin) * 1e3)
    for one in waiters:
        one.close()
    return statistics.median(taken)


def fill(port, process, count):
    """Seconds and memory for `count` keys by MULTI_SET."""
    before, one, begin = resident_kib(process), raw(port), time.perf_counter()
    for first in range(0, count, 1000):
        items = b"".join(text(b"/default_pg/0/%07d" % i) + text(b"0123456789") for i in range(first, first + 1000))
        one.sendall(b"\x0b" + struct.pack("<Q", 1000) + items)
    one.sendall(b"\x0d\1\0\0\0")
    assert len(one.recv(4, socket.MSG_WAITALL)) == 4
    return time.perf_counter() - begin, (resident_kib(process) - before) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--waiters", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=1000000)
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    servers = {"ours": start([args.server]), "TCPStore": start([sys.executable, "-c", THEIRS])}
    stores = {name: dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, use_libuv=True)
              for name, (_, port) in servers.items()}
    figures = {name: {"SET+GET us": [], "ADD us": []} for name in servers}
    for _ in range(ROUNDS):
        for name, store in stores.items():
            figures[name]["SET+GET us"].append(timed(args.count, lambda i: (store.set(f"k{i}", "x" * 128), store.get(f"k{i}"))))
            figures[name]["ADD us"].append(timed(args.count, lambda i: store.add("n", 1)))
    for name, (process, port) in servers.items():
        for what, values in figures[name].items():
            print(f"{name:9} {what:11} {statistics.median(values):8.1f}  ({min(values):.1f} to {max(values):.1f})")
        seconds, mib = fill(port, process, args.keys)
        print(f"{name:9} {args.keys} keys: {seconds:.2f} s, {mib:.0f} MiB")
        took = wake(port, stores[name], args.waiters)
        print(f"{name:9} wake {args.waiters}: " + (f"{took:.2f} ms" if took is not None else "not measured"))
    for process, _ in servers.values():
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()

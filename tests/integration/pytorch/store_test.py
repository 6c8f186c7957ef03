#!/usr/bin/env python3
"""PyTorch's TCPStore clients and gloo against our c10d store: store_test.py STORE_SERVER; skips (77) without PyTorch."""
import datetime
import os
import random
import re
import socket
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "pytorch"))
import pytorch  # noqa: E402

pytorch.rerun_or_skip()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

LIMIT = datetime.timedelta(seconds=120)
SHORT = datetime.timedelta(milliseconds=200)
RANKS = 4


class Server:
    """The store alone; `with` ends it and checks that it ended well."""

    def __init__(self, *args):
        self.process = subprocess.Popen([sys.argv[1], *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("listening "), (line, self.process.stderr.read())
        host, port = line.split()[1].rsplit(":", 1)
        self.host, self.port = host, int(port)

    def state(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        lines = []
        while not lines or not lines[-1].startswith("total "):
            lines.append(self.process.stdout.readline().strip())
            assert lines[-1], "the store has ended"
        return lines

    def wait_for(self, pattern):
        """Asks repeatedly until a line matches."""
        while True:
            for line in self.state():
                if re.search(pattern, line):
                    return line

    def client(self, timeout=LIMIT):
        return dist.TCPStore(self.host, self.port, is_master=False, timeout=timeout, wait_for_workers=False, use_libuv=True)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.stdin.close()
        self.log = self.process.stderr.read()
        assert self.process.wait(60) == 0 or failure[0], (self.process.returncode, self.log)


def equal(actual, wanted):
    assert actual == wanted, f"{actual!r}, not {wanted!r}"


def fails(kind, pattern, function, *args):
    try:
        function(*args)
    except kind as error:
        assert re.search(pattern, str(error)), str(error)
        return
    raise AssertionError(f"{function} has not failed")


def keys(server, store, other):
    store.set("a", "1")
    equal(other.get("a"), b"1")
    equal(store.add("n", 5), 5)
    equal(other.add("n", -7), -2)
    equal(other.get("n"), b"-2")
    store.append("a", "23")
    equal(store.get("a"), b"123")
    store.multi_set(["b", "c"], ["bb", ""])
    equal(other.multi_get(["a", "b", "c"]), [b"123", b"bb", b""])
    equal(store.check(["a", "b"]), True)
    equal(store.check(["a", "none"]), False)
    equal(sorted(store.list_keys()), ["a", "b", "c", "n"])
    equal(store.num_keys(), 4)
    equal((store.delete_key("b"), store.delete_key("b"), store.num_keys()), (True, False, 3))
    equal(store.compare_set("d", "old", "new"), b"old")
    equal(store.compare_set("d", "", "new"), b"new")
    equal(store.compare_set("d", "new", "newer"), b"newer")
    equal(store.compare_set("d", "new", "x"), b"newer")
    equal(bytes(store.get("d")), b"newer")
    value = random.Random(1).randbytes(8 << 20)  # the longest
    store.set("long", value.hex()[: 8 << 20])
    equal(other.get("long"), value.hex()[: 8 << 20].encode())
    clone = store.clone()
    equal(clone.get("a"), b"123")


def waits(server, store, other):
    store.set_timeout(SHORT)
    fails(dist.DistStoreError, r"wait timeout after 200ms, keys: /w1, /w2", store.wait, ["w1", "w2"])
    fails(dist.DistStoreError, r"timeout", store.get, "w1")
    store.set_timeout(LIMIT)
    equal(store.num_keys(), other.num_keys())  # the connection stays in use
    thread = threading.Thread(target=other.wait, args=(["w1", "w2"],))
    thread.start()
    server.wait_for(r" waits /w1 /w2$")
    store.set("w1", "")
    server.wait_for(r" waits /w2$")
    store.add("w2", 1)
    thread.join()


def queues(server, store, other):
    store.queue_push("q", "one")
    store.queue_push("q", "two")
    equal(store.queue_len("q"), 2)
    equal(other.queue_pop("q"), b"one")
    equal(other.queue_pop("q", False), b"two")
    fails(dist.QueueEmptyError, "empty", other.queue_pop, "q", False)
    got = []
    thread = threading.Thread(target=lambda: got.append(other.queue_pop("q")))
    thread.start()
    server.wait_for(r" waits /q$")
    store.queue_push("q", "three")
    thread.join()
    equal(got, [b"three"])


def prefixes(server, store, other):
    inner = dist.PrefixStore("p", dist.PrefixStore("o", store))
    inner.set("k", "v")
    equal(other.get("o/p/k"), b"v")
    equal(inner.get("k"), b"v")


def strangers(server, store, other):
    """Only this client is closed, with a reason."""
    for sent in (b"SSH-2.0-OpenSSH\r\n", b"\x03\x05\0\0\0\0\0\0\0init/", b"\0\xce\xf7\x85\x3c\x63", b"\0\xce\xf7\x85\x3c\x03" + b"\xff" * 8):
        with socket.create_connection((server.host, server.port), timeout=120) as stranger:
            stranger.sendall(sent)
            try:
                equal(stranger.recv(1), b"")
            except ConnectionResetError:
                pass
    equal(store.get("a"), b"123")


def rank(number, server, pipe):
    """One rank of a process group; a failure ends it with a traceback and exit code 1."""
    os.environ.update(MASTER_ADDR=server.host, MASTER_PORT=str(server.port), RANK=str(number), WORLD_SIZE=str(RANKS),
                      TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="t")
    dist.init_process_group("gloo", timeout=LIMIT)
    tensor = torch.full((1000,), float(number + 1))
    dist.all_reduce(tensor)
    equal(tensor.unique().tolist(), [sum(range(1, RANKS + 1))])
    dist.monitored_barrier(timeout=LIMIT)
    group = dist.new_group([0, 2])
    if number in (0, 2):
        dist.all_reduce(tensor, group=group)
        equal(tensor[0].item(), 20.0)
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, number)
    equal(gathered, list(range(RANKS)))
    dist.destroy_process_group()
    os.write(pipe, b"+")


def process_group():
    with Server() as server:
        reading, writing = os.pipe()
        children = []
        for number in range(RANKS):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    rank(number, server, writing)
                    code = 0
                finally:
                    os._exit(code) if code == 0 else (sys.excepthook(*sys.exc_info()), os._exit(code))
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
        equal(codes, [0] * RANKS)
        equal(os.read(reading, 100), b"+" * RANKS)
        equal(dist.PrefixStore("", server.client()).num_keys() > RANKS, True)  # the store was really used


def refused():
    """An address that is no node of the job, and one client too many."""
    with Server("--peer", "127.0.0.2") as server:
        with socket.create_connection((server.host, server.port), timeout=120) as stranger:
            equal(stranger.recv(1), b"")
        equal(server.state(), [server.state()[-1]])
    assert "it is no node of this job" in server.log, server.log
    with Server("--clients", "1") as server:
        store = server.client()
        with socket.create_connection((server.host, server.port), timeout=120) as second:
            equal(second.recv(1), b"")
        store.set("a", "1")
        equal(store.get("a"), b"1")
    assert "as many clients as it may" in server.log, server.log


def unread():
    """The store stops reading from a client that does not read its answers, and closes it when too much data waits; other clients do not notice."""
    with Server("--unread", str(64 << 20)) as server:
        store = server.client()
        store.set("k", "x" * (8 << 20))
        get = b"\x03\x02" + b"\0" * 7 + b"/k"
        with socket.create_connection((server.host, server.port), timeout=120) as lazy:
            lazy.sendall(b"\0\xce\xf7\x85\x3c" + 100 * get)
            for _ in range(20):
                equal(len(store.get("k")), 8 << 20)
            received = 0
            while received < 100 * (8 + (8 << 20)):  # this client reads in the end, and gets everything
                got = len(lazy.recv(1 << 20))
                assert got, received
                received += got
    with Server("--unread", "1000000") as server:
        store = server.client()
        store.set("k", "x" * (8 << 20))
        with socket.create_connection((server.host, server.port), timeout=120) as lazy:
            lazy.sendall(b"\0\xce\xf7\x85\x3c" + 100 * get)
            said = server.process.stderr.readline()  # comes when the store closes that client
            server.wait_for("^total 1 ")
        equal(store.check(["k"]), True)
    assert "does not read its replies" in said, said + server.log


def main():
    process_group()
    print("ok process group")
    with Server() as server:
        store, other = server.client(), server.client()
        for test in (keys, waits, queues, prefixes, strangers):
            test(server, store, other)
            print(f"ok {test.__name__}")
        del store, other
        server.wait_for("^total 0 ")
    for text in ("this looks like PyTorch 1.x", "no PyTorch 2.x", "no such command", "GET: a key of more than 8192 bytes"):
        assert text in server.log, (text, server.log)
    for test in (refused, unread):
        test()
        print(f"ok {test.__name__}")


if __name__ == "__main__":
    main()

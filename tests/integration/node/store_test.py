#!/usr/bin/env python3
"""The c10d store of a job, as a shim runs it beside the workers: store_test.py LAUNCHERD [NAME...]"""
import json
import os
import signal
import socket
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.proc import child_pids, command_of
from processes.runner import run_tests
from processes.waiting import LONG_S, wait_for, wait_gone
from processes.world import World

LAUNCHERD = os.path.abspath(sys.argv[1])
ON = dict(launch={"store": "on"}, nodes={"node0": "127.0.0.1"})
# What a rank needs of PyTorch's client (docs/c10d-store.md): hello, set, wait, get.
CLIENT = """
import os, socket, struct, sys
def key(name): return struct.pack("<Q", len(name)) + name
def connect(address=None, pid=None):
    sock = socket.create_connection(address or (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=120)
    sock.sendall(b"\\0\\xce\\xf7\\x85\\x3c\\x0d" + struct.pack("<I", pid or os.getpid()))
    assert sock.recv(4, socket.MSG_WAITALL) == struct.pack("<I", pid or os.getpid())
    return sock
def put(sock, name, value): sock.sendall(b"\\x01" + key(name) + key(value))
def wait(sock, *names):
    sock.sendall(b"\\x06" + struct.pack("<Q", len(names)) + b"".join(map(key, names)))
    assert sock.recv(1) == b"\\0"
def get(sock, name):
    sock.sendall(b"\\x03" + key(name))
    return sock.recv(struct.unpack("<Q", sock.recv(8, socket.MSG_WAITALL))[0] or 1, socket.MSG_WAITALL)
rank = int(os.environ.get("RANK", "-1"))
"""
exec(CLIENT)


def python(program):
    return [sys.executable, "-c", CLIENT + program]


def status(node, job, generation):
    """The store's own status, or None if it is gone."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(LONG_S)
    text = b""
    folder = os.open(node.run_dir(job, generation), os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{folder}/store.sock")  # sun_path is short
        while True:
            data = sock.recv(1 << 20)
            if not data:
                break
            text += data
    except (ConnectionRefusedError, ConnectionResetError):
        return None
    finally:
        sock.close()
        os.close(folder)
    return json.loads(text)


def children(node, job, generation, word):
    """The children of the shim that have this word on their command line."""
    shim = node.shim(job, generation)["pid"]
    return [pid for pid in child_pids(shim) if word in command_of(pid)]


def store_of(node, job, generation):
    """Its exec may have begun and its command line not be there yet."""
    return wait_for("the process of the store", lambda: children(node, job, generation, "--store"))[0]


def waiting(node, job, count):
    """The status once this many clients wait."""
    return wait_for(f"{count} clients that wait", lambda: (lambda s: s if sum(c["waits"] != "" for c in s["clients"]) == count else None)(status(node, job, 1)))


def test_ranks_meet_and_the_store_says_who_waits_for_what():
    program = ("sock = connect(); put(sock, b'/here%d' % rank, b'%d' % rank); wait(sock, b'/here0', b'/here1', b'/go', b'/\\x01\\xff')\n"
               "print(get(sock, b'/go').decode(), os.environ['TORCHELASTIC_USE_AGENT_STORE'])")
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, python(program), nproc=2, **ON)
        world.server.go(1, 1)
        ranks = world.server.wait_phase(1, 1, "running")["ranks"]
        found = waiting(node, 1, 2)
        assert (found["schema"], found["keys"], found["clients_left_out"]) == ("ddp.store.v1", 2, 0), found
        assert found["address"].startswith("127.0.0.1:") and found["bytes"] > 0, found
        assert {c["pid"] for c in found["clients"]} == {r["pid"] for r in ranks}, (found, ranks)
        for client in found["clients"]:
            assert (client["address"], client["node"], client["waits"]) == ("127.0.0.1", "node0", "keys"), client
            assert sorted(client["missing"]) == ["??", "go"] and client["missing_count"] == 2, client
            assert 0 <= client["waits_s"] <= client["connected_s"] < 10 * LONG_S, client
        assert stat.S_IMODE(os.stat(node.run_dir(1, 1) + "/store.sock").st_mode) == 0o600
        host, port = found["address"].rsplit(":", 1)
        sock = connect((host, int(port)), 4711)
        put(sock, b"/\x01\xff", b"")
        put(sock, b"/go", b"gone")
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "" and {r["exit_code"] for r in report["ranks"]} == {0}, report
        assert world.server.log_bytes(1, 1, 0) == b"gone True\n", world.server.log_bytes(1, 1, 0)
        assert sock.recv(1) == b""  # the store has ended, and with it its connections
        world.forget(node, 1, 1)


def test_each_generation_has_an_empty_one():
    with World(LAUNCHERD) as world:
        node = world.node()
        for generation in (1, 2):
            world.server.start(1, generation, python("sock = connect(); put(sock, b'/old', b'x'); print(os.environ['MASTER_PORT']); wait(sock, b'/never')"), **ON)
            world.server.go(1, generation)
            found = wait_for("the rank", lambda: (lambda s: s if s["clients"] and s["clients"][0]["waits"] else None)(status(node, 1, generation)))
            assert found["keys"] == 1, found
            world.server.stop(1, generation, grace_us=60_000_000)  # the rank dies of SIGTERM, so the grace need not pass
            watch = world.watch()
            world.server.wait_phase(1, generation, "ended")
            watch.check("the answer", 0, 30)
            world.forget(node, 1, generation)


def test_it_outlives_rank_0_until_the_other_nodes_have_ended():
    with World(LAUNCHERD) as world:
        node = world.node()
        both = dict(ON, nodes={"node0": "127.0.0.1", "node1": "127.0.0.3"}, node_count=2, world=2)
        # The leftover processes of rank 0 get SIGTERM and are then killed, but not the store.
        program = ("import subprocess; put(connect(), b'/mine', b'left behind')\n"
                   "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; echo; exec sleep 1000'], stdout=subprocess.PIPE).stdout.readline()")
        world.server.start(1, 1, python(program), grace_us=200_000, **both)
        world.server.go(1, 1)
        report = world.server.wait_report(1, 1, lambda r: r["ranks"][0]["state"] == "exited", "rank 0 has exited")
        assert report["ranks"][0]["exit_code"] == 0, report
        world.server.wait_phase(1, 1, "stopping")
        node.kill()  # launcherd is restarted meanwhile
        since = world.server.mark()
        node.begin().ready()
        rank_log = node.log_dir(1) + "/g1-rank0.log"
        wait_for("the end of what rank 0 left", lambda: b"sleep" in open(rank_log, "rb").read() and not children(node, 1, 1, "sleep"))
        with open(rank_log) as file:
            assert "launcherd" not in file.read()
        world.server.wait_for("beat", lambda m: [s["phase"] for s in m["shims"]] == ["stopping"], since=since)
        address = status(node, 1, 1)["address"].rsplit(":", 1)
        with socket.create_connection((address[0], int(address[1])), timeout=LONG_S, source_address=("127.0.0.3", 0)) as rank1:
            rank1.sendall(b"\0\xce\xf7\x85\x3c\x03" + key(b"/mine"))
            assert rank1.recv(19, socket.MSG_WAITALL) == key(b"left behind")
            assert status(node, 1, 1)["clients"][0]["node"] == "node1", status(node, 1, 1)
            world.server.stop(1, 1, grace_us=60_000_000)
            assert rank1.recv(1) == b""
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "" and report["ranks"][0]["state"] == "exited", report
        world.forget(node, 1, 1)


def test_its_death_fails_the_generation():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, ["sleep", "1000"], **ON)
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "running")
        store = store_of(node, 1, 1)
        os.kill(store, signal.SIGKILL)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == f"the c10d store of the job ended before its ranks: process {store} was killed by signal 9 (SIGKILL)", report
        assert (report["failed_rank"], report["failed_class"]) == (-1, "node"), report
        world.forget(node, 1, 1)


def test_it_dies_with_its_shim():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, ["sleep", "1000"], **ON)
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "running")
        store, shim = store_of(node, 1, 1), node.shim(1, 1)["pid"]
        assert store > 0
        os.kill(shim, signal.SIGKILL)
        wait_gone("the store's end", store)
        world.server.wait_phase(1, 1, "ended")
        world.server.forget(1, 1)
        wait_for("the run directory to go", lambda: not os.path.exists(node.run_dir(1, 1)))


def test_what_it_refuses_is_in_the_log_of_rank_0():
    """PyTorch 1.x (SET first of all), and an address that is no node of the job."""
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, python("wait(connect(), b'/go')"), **ON)
        world.server.go(1, 1)
        address = waiting(node, 1, 1)["address"].rsplit(":", 1)
        address[1] = int(address[1])
        for source, sent in (("127.0.0.1", b"\x03\x05\0\0\0\0\0\0\0init/"), ("127.0.0.2", b"")):
            with socket.create_connection(tuple(address), timeout=LONG_S, source_address=(source, 0)) as stranger:
                stranger.sendall(sent)
                try:
                    assert stranger.recv(1) == b""
                except ConnectionResetError:
                    pass
        for _ in range(100):  # otherwise anyone who reaches the port could fill the rank's log
            socket.create_connection(tuple(address), timeout=LONG_S, source_address=("127.0.0.2", 0)).close()
        put(connect(tuple(address), 1), b"/go", b"")
        assert world.server.wait_phase(1, 1, "ended")["cause"] == ""
        log = world.server.log_bytes(1, 1, 0).decode()
        assert "PyTorch 1.x, which speaks another protocol: use PyTorch 2.x, or submit with --no-store" in log, log
        assert "store client 127.0.0.2:" in log and "it is no node of this job" in log, log
        assert 1 <= log.count("no node of this job") <= 32, log
        world.forget(node, 1, 1)


def test_it_runs_as_the_job_s_user_in_the_job_s_cgroup():
    with World(LAUNCHERD) as world:
        os.chmod(world.folder, 0o711)
        node = world.node()
        user = {"user": "nobody"} if os.geteuid() == 0 else {}
        world.server.start(1, 1, ["sleep", "1000"], **ON, **user)
        world.server.go(1, 1)
        rank = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
        store = store_of(node, 1, 1)
        assert os.stat(f"/proc/{store}").st_uid == os.stat(f"/proc/{rank}").st_uid
        groups = []
        for pid in (store, rank):
            with open(f"/proc/{pid}/cgroup") as file:
                groups.append(next(line for line in file.read().split("\n") if line.startswith("0::")))
        if node.shim(1, 1)["cgroup"]:
            assert groups[1] == groups[0] + "/ranks", groups
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        cgroup = node.shim(1, 1)["cgroup"]
        world.forget(node, 1, 1)
        assert not cgroup or not os.path.exists(cgroup), cgroup


def test_it_finds_its_libraries_where_launcherd_does():
    os.environ["LD_LIBRARY_PATH"] = "/opt/nowhere"
    try:
        with World(LAUNCHERD) as world:
            node = world.node()
            world.server.start(1, 1, python("sock = connect(); print(os.environ.get('LD_LIBRARY_PATH')); wait(sock, b'/go')"), **ON)
            world.server.go(1, 1)
            waiting(node, 1, 1)
            with open(f"/proc/{store_of(node, 1, 1)}/environ", "rb") as file:
                assert b"LD_LIBRARY_PATH=/opt/nowhere" in file.read().split(b"\0")
            world.server.stop(1, 1, grace_us=60_000_000)
            world.server.wait_phase(1, 1, "ended")
            world.forget(node, 1, 1)
    finally:
        del os.environ["LD_LIBRARY_PATH"]


def test_a_job_without_one():
    with World(LAUNCHERD) as world:
        node = world.node()
        for job, launch in ((1, {"store": "off"}), (2, {})):
            program = "print(os.environ['TORCHELASTIC_USE_AGENT_STORE'])\ntry: connect()\nexcept ConnectionRefusedError: print('nobody')"
            report = world.server.run(job, python(program), launch=launch, nodes=ON["nodes"])
            assert report["cause"] == "" and world.server.log_bytes(job, 1, 0) == b"False\nnobody\n", report
            assert not os.path.exists(node.run_dir(job, 1) + "/store.sock")
            world.forget(node, job, 1)


def test_a_server_that_names_no_nodes():
    with World(LAUNCHERD) as world:
        node = world.node()
        report = world.server.run(1, ["true"], launch=ON["launch"], nodes={})
        assert "the server did not name the job's nodes" in report["cause"] and "--no-store" in report["cause"], report
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))

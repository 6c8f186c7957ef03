#!/usr/bin/env python3
"""launcherd and its shim as real processes, with orders from a scripted server: node_test.py LAUNCHERD [NAME...]"""
import base64
import contextlib
import fcntl
import json
import os
import pwd
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import processes
from processes.proc import is_alive
from processes.runner import run_tests
from processes.stepper import Stepper
from processes.waiting import Gate, idle_words, LONG_S, wait_for, wait_gone
from processes.wire import Closed, PROTOCOL
from processes.world import Node, token_holders, World
from processes.server import CLUSTER, user_name

LAUNCHERD = os.path.abspath(sys.argv[1])
TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(LAUNCHERD))), "worker")  # of a build folder
TOOLS = f":{TOOLS}" if os.path.exists(os.path.join(TOOLS, "ddp-worker")) else ""
PYTHON_MODULES = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(LAUNCHERD))), "libddp", "python")
SHELL = "/bin/sh"
PYTHON = sys.executable


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def read(path):
    with open(path) as file:
        return file.read()


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(p) for p in file.read().split()]


def wait_file(path):
    return wait_for(f"the file {path}", lambda: os.path.exists(path) and os.path.getsize(path) > 0 and read(path))


def test_true_runs_and_is_forgotten():
    with World(LAUNCHERD) as world:
        node = world.node()
        report = world.server.run(1, ["true"], nproc=2)
        assert [r["state"] for r in report["ranks"]] == ["exited", "exited"], report
        assert [r["exit_code"] for r in report["ranks"]] == [0, 0], report
        assert report["failed_rank"] == -1 and report["cause"] == "", report
        world.forget(node, 1, 1)


def test_exit_code_and_tail_of_the_first_failure():
    with World(LAUNCHERD) as world:
        node = world.node()
        script = 'if [ "$RANK" = 1 ]; then for i in 1 2 3 4 5 6 7; do echo "line $i"; done; exit 7; else sleep 1000; fi'
        report = world.server.run(1, [SHELL, "-c", script], nproc=3)
        assert report["failed_rank"] == 1 and report["cause"] == "rank 1 exited with code 7", report
        assert report["tail"] == "line 3\nline 4\nline 5\nline 6\nline 7\n", report
        states = {r["rank"]: (r["state"], r["exit_code"], r["signal"]) for r in report["ranks"]}
        assert states == {0: ("stopped", 0, 15), 1: ("exited", 7, 0), 2: ("stopped", 0, 15)}, states
        world.forget(node, 1, 1)


def test_death_by_signal():
    with World(LAUNCHERD) as world:
        node = world.node()
        report = world.server.run(1, [SHELL, "-c", "kill -SEGV $$"])
        assert report["cause"].startswith("rank 0 was killed by signal 11 (SIGSEGV)"), report
        assert (report["ranks"][0]["state"], report["ranks"][0]["signal"]) == ("exited", 11), report
        world.forget(node, 1, 1)


def test_a_core_file_in_progress_is_a_failure():
    """Writing a large core file takes long: 30 s for this one, most of which is a hole. The rank gets 7 s for it, and its peers get SIGTERM."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        raise AssertionError("this test needs a hard limit of core files (ulimit -H -c) that is unlimited")
    script = """import mmap, os, resource, time
if os.environ["RANK"] == "0":
    time.sleep(1000)
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
memory = mmap.mmap(-1, 2 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
memory[1 << 30] = 1
print("aborting", flush=True)
os.abort()
"""
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, [PYTHON, "-c", script], nproc=2, cwd=world.folder)
        world.server.go(1, 1)
        report = world.server.wait_report(1, 1, lambda r: r["failed_rank"] >= 0, "a failure")
        status = read(f"/proc/{report['ranks'][1]['pid']}/status")
        assert "CoreDumping:\t1" in status, f"the failure was not known before the file was written: {status}"
        assert report["failed_rank"] == 1 and report["cause"].endswith("it is writing a core file"), report
        assert report["tail"] == "aborting\n" and report["ranks"][1]["state"] == "exited", report
        wait_gone("its peer to go", report["ranks"][0]["pid"])
        assert is_alive(report["ranks"][1]["pid"]), "it had no time for its file"
        world.server.stop(1, 1, signal.SIGKILL)
        report = world.server.wait_phase(1, 1, "ended")
        assert (report["ranks"][1]["state"], report["ranks"][1]["signal"]) == ("exited", int(signal.SIGABRT)), report
        world.forget(node, 1, 1)


def test_a_log_that_is_deleted_is_made_again():
    """The log is made again at the next output: positions stay valid, and both logs mention it. A cleaner that looks for locks does not delete it."""
    with World(LAUNCHERD) as world:
        node = world.node()
        gate = Gate(f"{world.folder}/go")
        script = f"echo before; {gate.wait}; echo after; sleep 1000"
        world.server.start(1, 1, [SHELL, "-c", script])
        world.server.go(1, 1)
        log = f"{node.log_dir(1)}/g1-rank0.log"
        wait_for("the first line", lambda: os.path.exists(log) and read(log) == "before\n")
        folder = os.open(node.log_dir(1), os.O_RDONLY)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            raise AssertionError("the folder of the logs is not locked")
        os.close(folder)
        os.unlink(log)
        gate.open()
        wanted, got = b"[... this log was deleted: 7 bytes are gone ...]\nafter\n", b""
        while len(got) < len(wanted):
            data = world.server.log_read(1, 1, 0, offset=7 + len(got))
            assert data["offset"] == 7 + len(got) and data["size"] >= data["offset"] + len(data["bytes"]), data
            got += data["bytes"]
        assert got == wanted, got
        assert world.server.log_read(1, 1, 0, offset=0)["bytes"] == b"      \n" + wanted
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        assert f"the log {log} was deleted while it is written: it is made again" in read(f"{node.log_dir(1)}/shim-g1.log")
        world.forget(node, 1, 1)


def test_commands_that_cannot_run():
    with World(LAUNCHERD) as world:
        node = world.node()
        plain = f"{world.folder}/plain"
        write(plain, "no program\n")
        os.chmod(plain, 0o644)
        user = user_name()
        remedy = "make it there, share the disk, or submit with --stage DIR"
        cases = [
            (["no-such-program-here"], "/", 127,
             f"node node0: program no-such-program-here is not in the PATH of the job (of {user}): install it"),
            ([f"{world.folder}/none"], "/", 127, f"node node0: program {world.folder}/none does not exist (job of {user})"),
            ([plain], "/", 126, f"node node0: program {plain} cannot be run by {user}: Permission denied"),
            ([world.folder], "/", 126, f"node node0: program {world.folder} cannot be run by {user}: Permission denied"),
            (["true"], f"{world.folder}/gone", 126,
             f"node node0: working directory {world.folder}/gone does not exist (job of {user}): {remedy}"),
            (["true"], plain, 126, f"node node0: working directory {plain} is not a directory"),
            (["/no\tsuch\nprogram"], "/", 127, "program /no?such?program does not exist"),
            (["/x" + "\u00e9" * 100], "/", 127, "program /x\u00e9\u00e9\u00e9"),
            (["true"], "/x" + "\u00e9" * 300, 126, "working directory /x\u00e9\u00e9\u00e9"),
        ]
        for job, (argv, cwd, code, words) in enumerate(cases, 1):
            world.server.start(job, 1, argv, cwd=cwd, nproc=2)
            report = world.server.wait_phase(job, 1, "ended")  # before `ready`, so no `go` was needed
            assert report["failed_errno_exit"] == code and report["failed_rank"] == -1, report
            assert report["failed_class"] == "program", report
            assert words in report["cause"], report
            assert [rank["state"] for rank in report["ranks"]] == ["waiting", "waiting"], report
            world.forget(node, job, 1)


def test_program_that_goes_after_the_check():
    with World(LAUNCHERD) as world:
        node = world.node()
        script = f"{world.folder}/script"
        write(script, "#!/bin/sh\n")
        os.chmod(script, 0o755)
        world.server.start(1, 1, [script], nproc=2)
        world.server.wait_phase(1, 1, "ready")
        os.unlink(script)
        world.server.go(1, 1)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["failed_errno_exit"] == 127 and report["failed_rank"] == 0, report
        assert report["cause"] == f"rank 0: cannot run '{script}': No such file or directory", report
        assert report["ranks"][0]["exit_code"] == 127, report
        world.forget(node, 1, 1)


def test_file_without_interpreter_line_is_refused():
    """A script without a valid interpreter is not run by a shell, nor is the program of the same name, /usr/bin/script."""
    with World(LAUNCHERD) as world:
        node = world.node()
        script = f"{world.folder}/script"
        write(script, 'exit "$1"\n')
        os.chmod(script, 0o755)
        report = world.server.run(1, ["script", "5"], env={"PATH": f"/nowhere:{world.folder}:/usr/bin:/bin"})
        assert report["failed_errno_exit"] == 126, report
        assert "cannot run 'script': it is no program for this machine" in report["cause"], report
        world.forget(node, 1, 1)


def test_environment_exact():
    with World(LAUNCHERD) as world:
        node = world.node()
        sent = {"PATH": os.environ["PATH"], "HOME": "/home/tester", "OWN": "a b=c\nd", "RANK": "99", "DDP_SHIM_FD": "0",
                "DDP_MORE": "1", "NCCL_SOCKET_MAGIC": "1", "USER": "other", "PWD": "/other", "BASH_FUNC_x%%": "() { :; }", "LANG": "C.UTF-8"}
        dump = f"import os; open('{world.folder}/env' + os.environ['RANK'], 'wb').write(open('/proc/self/environ','rb').read())"
        world.server.start(1, 2, [PYTHON, "-c", dump], nproc=2, env=sent, rank_base=2, world=4, node_rank=1,
                           node_count=2, slot_mask=0b1010, restart_count=1, max_restarts=3)
        world.server.send("go", job_id=1, generation=2, master_addr="127.0.0.1", master_port=4711)
        # A go that comes before the shim is ready is lost; the server repeats it. On a busy machine the first one came in time.
        world.server.wait_for("shim_report", lambda m: m["phase"] == "ready")
        world.server.send("go", job_id=1, generation=2, master_addr="127.0.0.1", master_port=29500)
        report = world.server.wait_phase(1, 2, "ended")
        assert report["cause"] == "", report
        shim = world.note_token(node, 1, 2)
        try:
            shell = pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
        except KeyError:
            shell = "/bin/sh"
        for local, rank in ((0, 2), (1, 3)):
            raw = open(f"{world.folder}/env{rank}", "rb").read().decode().rstrip("\0").split("\0")
            names = [entry.split("=", 1)[0] for entry in raw]
            assert len(names) == len(set(names)), f"a name stands twice: {names}"
            found = dict(entry.split("=", 1) for entry in raw)
            port = found.pop("MASTER_PORT")
            assert port == "29500" or port == "4711", port
            expected = {
                "PATH": sent["PATH"] + TOOLS, "HOME": "/home/tester", "OWN": "a b=c\nd", "LANG": "C.UTF-8",
                "RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
                "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "ROLE_NAME": "default", "ROLE_RANK": str(rank),
                "ROLE_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "1",
                "TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_USE_AGENT_STORE": "False",
                "TORCHELASTIC_ERROR_FILE": f"{node.log_dir(1)}/g2-errors/rank{rank}.json",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "DDP_JOB_ID": "1",
                "DDP_CLUSTER": CLUSTER, "DDP_GENERATION": "2", "DDP_SHIM_FD": "3", "DDP_SHIM_PROTOCOL": str(PROTOCOL),
                "DDP_METRICS": f"{node.log_dir(1)}/g2-errors/rank{rank}.metrics.jsonl",
                "DDP_CHECKPOINT_STEP": "0", "DDP_NODE_NAME": "node0", "DDP_NODE_ADDRESS": "127.0.0.1",
                "DDP_JOB_TOKEN": shim["token"], "NCCL_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo",
                "TP_SOCKET_IFNAME": "lo", "PWD": "/", "BASH_FUNC_x%%": "() { :; }", "USER": user_name(), "LOGNAME": user_name(),
                "SHELL": shell, "PYTHONPATH": PYTHON_MODULES,
            }
            assert found == expected, sorted(set(found.items()) ^ set(expected.items()))
        world.forget(node, 1, 2)


def test_process_state_of_a_worker():
    """A worker has a session of its own, default signals, only descriptors 0 to 2 and the shim's, an empty stdin, and its directory."""
    with World(LAUNCHERD) as world:
        node = world.node()
        out = f"{world.folder}/state"
        script = (
            "import os, sys, signal\n"
            "fds = sorted(int(f) for f in os.listdir('/proc/self/fd'))\n"
            "fds = [f for f in fds if os.path.exists(f'/proc/self/fd/{f}')]\n"
            "status = dict(l.split(':', 1) for l in open('/proc/self/status'))\n"
            "text = repr((fds, os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), sys.stdin.read(), os.getcwd(),\n"
            "             status['SigBlk'].strip(), status['SigIgn'].strip()))\n"
            f"open('{out}.new', 'w').write(text); os.rename('{out}.new', '{out}')\n")
        # python itself ignores SIGPIPE and SIGXFSZ: bits 12 and 24
        report = world.server.run(1, [PYTHON, "-c", script], cwd=world.folder)
        assert report["cause"] == "", report
        fds, session, group, stdin, cwd, blocked, ignored = eval(read(out))
        assert fds == [0, 1, 2, 3] and session and group and stdin == "" and cwd == world.folder, read(out)
        assert int(blocked, 16) == 0 and int(ignored, 16) & ~((1 << 12) | (1 << 24)) == 0, read(out)
        world.forget(node, 1, 1)


def test_log_bytes_exact():
    with World(LAUNCHERD) as world:
        node = world.node()
        script = ("import os, sys\n"
                  "import random\n"
                  "data = random.Random(7).randbytes(10_000_001)\n"
                  "os.write(2, b'err'); sys.stdout.buffer.write(data); sys.stdout.flush(); os.write(2, b'end')\n")
        world.server.start(1, 1, [PYTHON, "-c", script])
        world.server.go(1, 1)
        got = world.server.log_bytes(1, 1, 0)
        import random
        expected = b"err" + random.Random(7).randbytes(10_000_001) + b"end"
        assert got == expected, f"{len(got)} bytes of {len(expected)}"
        world.server.wait_phase(1, 1, "ended")
        data = world.server.log_read(1, 1, 0, tail_lines=1, bytes_max=10)
        tail = expected.rstrip(b"\n").rsplit(b"\n", 1)[1]
        assert data["offset"] == len(expected) - len(tail) and data["bytes"] == tail[:10], data
        world.forget(node, 1, 1)
        assert world.server.log_bytes(1, 1, 0) == expected  # the logs stay
        problem = world.server.log_read(1, 1, 5)["problem"]
        assert problem == "node node0 has no log of job 1, generation 1, rank 5", problem


def test_many_log_readers_do_not_end_the_connection():
    """Answers of 17 MB are asked for at once. What another user asks for last, or for another job, does not come last."""
    with World(LAUNCHERD) as world:
        node = world.node()
        server, size, many, another, other_user = world.server, 32768, range(0x101, 0x19101, 0x100), 0x20001, 0x20102  # a user is a last byte
        for job in (1, 2):
            server.run(job, [SHELL, "-c", f"head -c {size} /dev/zero | tr '\\0' x"])
        asked = dict(what="output", generation=1, rank=0, offset=0, tail_lines=0, bytes_max=size, wait_us=0, submitted_ms=0)
        with server.changed:  # the server takes no message meanwhile
            for request in many:
                server.send("log_read", request_id=request, job_id=1, **asked)
            server.send("log_read", request_id=another, job_id=2, **asked)
            server.send("log_read", request_id=other_user, job_id=1, **asked)
            server.start(3, 1, ["true"])  # launcherd has read all of it when it does this
            wait_for("the run directory", lambda: os.path.exists(node.run_dir(3, 1)))
        answers = server.wait(lambda: (found := [m for _, m in list(server.messages) if m["type"] == "log_data"])
                              and {m["request_id"] for m in found} >= {another, other_user, *many} and found, "all answers")
        assert server.connections == 1, server.connections
        for answer in answers:  # a slow machine may say that one is to be asked for again
            assert len(base64.b64decode(answer["bytes"])) == size or answer["problem"].endswith("ask again"), answer
        order = [m["request_id"] for m in answers]
        assert max(order.index(another), order.index(other_user)) < 100, (order.index(another), order.index(other_user))
        server.stop(3, 1)
        server.wait_phase(3, 1, "ended")
        for job in (1, 2, 3):
            world.forget(node, job, 1)


def test_tail_of_a_line_without_end_is_bounded():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.run(1, [SHELL, "-c", "head -c 5000000 /dev/zero | tr '\\0' x"])
        data = world.server.log_read(1, 1, 0, tail_lines=5, bytes_max=10)
        assert (data["offset"], data["bytes"]) == (5_000_000 - 2 ** 20, b"x" * 10), data
        world.forget(node, 1, 1)


def test_a_log_that_is_no_plain_file_is_not_read():
    """Opening a FIFO would wait until somebody opens it for writing, and a link may lead to a file of others."""
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.run(1, ["true"], nproc=2)
        logs = [f"{node.log_dir(1)}/g1-rank{rank}.log" for rank in range(2)]
        write(f"{world.folder}/secret", "theirs")
        for path in logs:
            os.unlink(path)
        os.mkfifo(logs[0])
        os.symlink(f"{world.folder}/secret", logs[1])
        for rank in range(2):
            data = world.server.log_read(1, 1, rank)
            assert data["is_final"] and "has no log of job 1" in data["problem"] and not data["bytes"], data
        world.forget(node, 1, 1)


def test_a_child_that_never_stops_writing_holds_up_nothing():
    with World(LAUNCHERD) as world:
        node = world.node()
        os.mkfifo(f"{world.folder}/fifo")
        script = f"for i in 1 2 3; do setsid dd if=/dev/zero bs=1M & done; read x < {world.folder}/fifo; exit 3"
        world.server.start(1, 1, [SHELL, "-c", script])
        world.server.go(1, 1)
        wait_for("their output", lambda: os.path.getsize(f"{node.log_dir(1)}/g1-rank0.log") > 2 ** 23)
        with open(f"{world.folder}/fifo", "w") as fifo:
            fifo.write("\n")
        report = world.server.wait_phase(1, 1, "ended")
        assert (report["failed_rank"], report["ranks"][0]["exit_code"]) == (0, 3), report
        world.forget(node, 1, 1)


def test_log_follows_as_it_grows():
    with World(LAUNCHERD) as world:
        node = world.node()
        os.mkfifo(f"{world.folder}/fifo")
        world.server.start(1, 1, [SHELL, "-c", f"printf one; cat {world.folder}/fifo"])
        world.server.go(1, 1)
        first = world.server.log_read(1, 1, 0)
        assert first["bytes"] == b"one" and not first["is_final"], first
        with open(f"{world.folder}/fifo", "w") as fifo:
            fifo.write("two")
            fifo.flush()
            second = world.server.log_read(1, 1, 0, offset=3)
            assert second["bytes"] == b"two" and not second["is_final"], second
            none = world.server.log_read(1, 1, 0, offset=6, wait_us=10_000)
            assert none["bytes"] == b"" and not none["is_final"] and none["problem"] == "", none
        last = world.server.log_read(1, 1, 0, offset=6)
        assert last["bytes"] == b"" and last["is_final"], last
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_questions_are_answered():
    with World(LAUNCHERD) as world:
        world.node()
        data = world.server.node_ask("clock")
        assert data["bytes"] == b"{}" and data["problem"] == "" and abs(int(data["node_ms"]) / 1000 - time.time()) < 60, data
        gauges = json.loads(world.server.node_ask("gauges")["bytes"])
        assert gauges["schema"] == "ddp.gauges.v1" and gauges["node"] == "node0", gauges


def test_doctor_listens_and_connects():
    """Doctor's ports answer only the named nodes; each kind of failure has its own word."""
    with World(LAUNCHERD) as world:
        world.node()
        def tries(peers, args):
            data = world.server.node_ask("connect", peers=peers, args=args)
            return [(one["peer"], one["result"]) for one in json.loads(data["bytes"])["tries"]]
        def listen(guest):
            return json.loads(world.server.node_ask("listen", peers={"guest": guest})["bytes"])["ports"]
        ports = listen("127.0.0.1")
        assert len(set(ports)) == 3, ports
        text = ",".join(map(str, ports))
        assert tries({"b": "127.0.0.1"}, {"b": text}) == [("b", "ok")] * 3
        assert tries({"b": "127.0.0.1"}, {'who"': text}) == []  # not a node of this question
        assert tries({"b": "127.0.0.1"}, {"b": "x"}) == []
        assert tries({"b": "no address"}, {"b": "7"}) == [("b", "no-route")]
        closed = socket.socket()  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        assert tries({"b": "127.0.0.1"}, {"b": str(closed.getsockname()[1])}) == [("b", "refused")]
        silent = socket.create_server(("127.0.0.1", 0))  # the kernel connects, and nobody answers
        assert tries({"b": "127.0.0.1"}, {"b": str(silent.getsockname()[1])}) == [("b", "silent")]
        closed.close()
        silent.close()
        strange = listen("127.0.0.9")
        with open("/proc/net/tcp", encoding="ascii") as file:  # the owner of these sockets
            uids = {line.split()[7] for line in file if line.split()[1].endswith(f":{strange[0]:04X}") and line.split()[3] == "0A"}
        assert uids == {str(65534 if os.geteuid() == 0 else os.geteuid())}, uids
        assert tries({"b": "127.0.0.1"}, {"b": str(strange[0])}) == [("b", "broken")]


def test_doctor_runs_as_the_account_of_the_question():
    with World(LAUNCHERD) as world:
        world.node()
        python = f"{world.folder}/python-shows-uid"
        with open(python, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho python=$0\necho torch=$(id -u)\necho cudnn=$HOME\necho torch_sees_gpu=0\n")
        os.chmod(python, 0o755)
        def ask(user):
            data = world.server.node_ask("doctor", user=user, job_id=1, cwd="/tmp", argv=[python, "x"], env={"HOME": "/of/the/job"})
            return json.loads(data["bytes"])
        facts = ask(user_name())
        assert facts["torch"] == str(os.geteuid()) and facts["cudnn"] == "/of/the/job" and facts["uid"] == os.geteuid(), facts
        assert "no-such-account" in ask("no-such-account")["user_problem"] and "torch" not in ask("no-such-account")
        nobody = pwd.getpwnam("nobody").pw_uid
        if os.geteuid() != 0 or nobody < 1000:
            return "skip (needs root, and a nobody with a uid above 1000, for another's account)"
        os.chmod(world.folder, 0o755)
        facts = ask("nobody")
        assert facts["torch"] == str(nobody) and facts["uid"] == nobody, facts
        assert {disk["what"]: disk["is_writable"] for disk in facts["disks"]} == {"state": 1, "logs": 1, "tmp": 1, "job": 1}, facts
        os.chmod(world.folder, 0o700)
        assert "python-shows-uid" in ask("nobody")["job_problem"]
    return None


def test_stop_with_grace_then_kill():
    with World(LAUNCHERD) as world:
        node = world.node()
        script = 'trap "" TERM; echo started > "$0.$RANK"; sleep 1000'
        kind = 'trap "exit 0" TERM; echo started > "$0.$RANK"; ' + idle_words(f"{world.folder}/idle")
        whole = f'if [ "$RANK" = 0 ]; then {script}; else {kind}; fi'
        world.server.start(1, 1, [SHELL, "-c", whole, f"{world.folder}/mark"], nproc=2)
        world.server.go(1, 1)
        wait_file(f"{world.folder}/mark.0")
        wait_file(f"{world.folder}/mark.1")
        watch = world.watch()
        world.server.stop(1, 1, signal.SIGTERM, grace_us=3_000_000)
        report = world.server.wait_phase(1, 1, "ended")
        watch.check("the end after the stop", 3)
        ranks = [(r["state"], r["exit_code"], r["signal"]) for r in report["ranks"]]
        assert ranks == [("stopped", 0, 9), ("stopped", 0, 0)], ranks
        assert report["failed_rank"] == -1, report
        world.forget(node, 1, 1)


def test_stop_before_go():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, ["sleep", "1000"])
        world.server.wait_phase(1, 1, "ready")
        world.server.stop(1, 1)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["ranks"][0]["state"] == "waiting", report
        world.forget(node, 1, 1)


ESCAPING = ("import os, sys, time\n"
            "folder = sys.argv[1]\n"
            "def child(name, clear):\n"
            "    os.mkfifo(f'{folder}/{name}.told')\n"
            "    if os.fork(): return\n"
            "    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    open(f'{folder}/{name}.new', 'w').write(str(os.getpid()))\n"
            "    os.rename(f'{folder}/{name}.new', f'{folder}/{name}')\n"
            "    open(f'{folder}/{name}.told', 'w').close()\n"
            "    if clear: os.execve('/bin/sleep', ['sleep', '1000'], {})\n"
            "    os.execv('/bin/sleep', ['sleep', '1000'])\n"
            "child('plain', False)\n"
            "child('cleared', True)\n"
            "for name in ('plain', 'cleared'): open(f'{folder}/{name}.told').read()\n"
            "if len(sys.argv) > 2: sys.exit(int(sys.argv[2]))\n"
            "time.sleep(1000)\n")


def start_escaping(world, *more):
    """A worker with two daemonised children, one without any environment: their pids."""
    world.server.start(1, 1, [PYTHON, "-c", ESCAPING, world.folder, *more])
    world.server.go(1, 1)
    return [int(wait_file(f"{world.folder}/{name}")) for name in ("plain", "cleared")]


def node_with_escaping(world):
    """A node that runs start_escaping's worker. Returns the node, the shim's record, the pids that start_escaping returns and the pids of
    the shim's children."""
    node = world.node()
    pids = start_escaping(world)
    shim = world.note_token(node, 1, 1)
    return node, shim, pids, children_of(shim["pid"])


def assert_all_ended(pids):
    left = [pid for pid in pids if is_alive(pid)]
    assert left == [], f"ended was reported with processes left: {left}"


def kill_shim(shim):
    os.kill(shim["pid"], signal.SIGKILL)
    wait_gone("the shim's end", shim["pid"])


def forget_dead(world, node):
    """Forgets a dead shim: only the run directory is left to remove."""
    world.server.forget(1, 1)
    wait_for("the run directory to go", lambda: not os.path.exists(node.run_dir(1, 1)))


def test_stop_reaches_daemonised_children():
    with World(LAUNCHERD) as world:
        node = world.node()
        pids = start_escaping(world)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        assert_all_ended(pids)
        world.forget(node, 1, 1)


def test_success_leaves_no_children():
    with World(LAUNCHERD) as world:
        node = world.node()
        pids = start_escaping(world, "0")
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "" and report["ranks"][0]["state"] == "exited", report
        assert_all_ended(pids)
        world.forget(node, 1, 1)


def test_killed_shim():
    """The workers and their daemonised children are gone before the end is reported."""
    with World(LAUNCHERD) as world:
        node, shim, pids, workers = node_with_escaping(world)
        kill_shim(shim)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "the shim of job 1 on node0 was killed (signal 9)", report
        assert report["failed_class"] == "node" and report["ranks"][0]["state"] == "lost", report
        assert_all_ended(pids + workers)
        assert token_holders(shim["token"]) == []
        forget_dead(world, node)


def test_killed_launcherd_is_replaced_under_a_running_job():
    with World(LAUNCHERD) as world:
        node = world.node()
        stepper = Stepper(f"{world.folder}/steps")
        world.server.start(1, 1, stepper.argv)
        world.server.go(1, 1)
        stepper.step()
        before = world.server.wait_phase(1, 1, "running")
        shim = world.note_token(node, 1, 1)
        node.kill()
        stepper.step(3)
        since = world.server.mark()
        node.begin().ready()
        hello = world.server.wait_for("node_hello", since=since)
        assert [(s["job_id"], s["generation"], s["slot_mask"]) for s in hello["shims"]] == [(1, 1, 1)], hello
        after = world.server.wait_for("shim_report", lambda m: m["phase"] == "running", since=since)
        assert after["ranks"] == before["ranks"] and is_alive(shim["pid"]), (before, after)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_the_state_directory_is_renamed_under_a_running_job():
    """The command line of the shim still has the old path."""
    with World(LAUNCHERD) as world:
        before = world.node()
        pid = start_sleeper(world)
        ranks = world.server.wait_phase(1, 1, "running")["ranks"]
        before.kill()
        world.nodes.remove(before)
        os.rename(f"{world.folder}/{before.name}", f"{world.folder}/renamed")
        since = world.server.mark()
        after = world.node(name="renamed")
        report = world.server.wait_for("shim_report", since=since)
        shim = world.note_token(after, 1, 1)
        assert (report["phase"], report["ranks"], report["cause"]) == ("running", ranks, ""), report
        assert is_alive(pid) and is_alive(shim["pid"]) and "is killed" not in after.log(), after.log()
        world.server.stop(1, 1)
        ended = world.server.wait_phase(1, 1, "ended")
        assert "killed" not in ended["cause"], ended
        world.forget(after, 1, 1)


def stop_shim(node, job):
    """Stops the process, like a debugger or a disk that hangs."""
    os.kill(node.shim(job, 1)["pid"], signal.SIGSTOP)


def start_sleeper(world):
    """The pid of a worker that runs until it is killed."""
    path = f"{world.folder}/pid"
    world.server.start(1, 1, [SHELL, "-c", f"echo $$ > {path}.new; mv {path}.new {path}; exec sleep 1000"])
    world.server.go(1, 1)
    wait_for("the worker", lambda: os.path.exists(path))
    world.server.wait_phase(1, 1, "running")  # its shim, too, knows that it was started
    return int(read(path))


def rewrite_start(node, job, change):
    """Changes the start order in a run directory: a frame of length and JSON."""
    path = node.run_dir(job, 1) + "/start.msg"
    with open(path, "rb") as file:
        order = json.loads(file.read()[4:])
    change(order)
    text = json.dumps(order).encode()
    with open(path, "wb") as file:
        file.write(struct.pack(">I", len(text)) + text)


def test_a_job_of_another_version_of_launcherd_goes_on():
    """A start order of a later version has fields that this one does not know; one of an earlier version lacks some."""
    def change(order):
        order["colour"] = {"of": ["later"]}
        del order["checkpoint_step"]

    with World(LAUNCHERD) as world:
        node = world.node()
        pid = start_sleeper(world)
        before = world.server.wait_phase(1, 1, "running")
        world.note_token(node, 1, 1)
        node.kill()
        rewrite_start(node, 1, change)
        since = world.server.mark()
        node.begin().ready()
        after = world.server.wait_for("shim_report", lambda m: m["phase"] == "running", since=since)
        assert after["ranks"] == before["ranks"] and is_alive(pid), (before, after)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


OTHER_BUILD = "S (of another launcherd build)"


def test_a_shim_of_a_far_protocol_is_left_alone():
    """A shim of protocol 1, or of another build with ours: its connection is refused with words, once, and it runs on."""
    hello = {"type": "shim_hello", "job_id": "1", "generation": 1, "pid": 1, "phase": "running"}
    ours = f"it speaks protocol 1, and this launcherd {PROTOCOL - 1} to {PROTOCOL + 1}: start the launcherd that started it"
    builds = (({**hello, "protocol": 1}, ours),
              ({**hello, "protocol": PROTOCOL, "schema": "0123456789abcdef"}, "it is of another build with the same protocol: start the launcherd"))

    for said, words in builds:
        with World(LAUNCHERD, gated=True) as world:
            node = world.node()
            pid = start_sleeper(world)
            world.note_token(node, 1, 1)
            node.kill()
            path = node.run_dir(1, 1) + "/shim.sock"
            os.rename(path, path + ".real")
            text = json.dumps(said).encode()
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                listener.settimeout(LONG_S)
                world.sleep_until(world.now() + 0.1)  # on a clock that leaps, launcherd would else look whenever the shim has a moment's work
                node.begin()
                states, calls = set(), 0
                while calls < 3 or (said["protocol"] == PROTOCOL and OTHER_BUILD not in states):
                    calls += 1
                    assert calls < 1000, states
                    with listener.accept()[0] as one:
                        one.settimeout(LONG_S)
                        one.sendall(struct.pack(">I", len(text)) + text)
                        while one.recv(4096):
                            pass
                    states = {shim["state"] for _, message in list(world.server.messages) if message["type"] == "beat" for shim in message["silent"]}
            node.ready()
            os.replace(path + ".real", path)
            world.server.wait_phase(1, 1, "running")
            assert is_alive(pid)
            assert node.log().count(words) == 1, node.log()
            world.server.stop(1, 1)
            world.server.wait_phase(1, 1, "ended")
            world.forget(node, 1, 1)


def test_a_shim_whose_order_cannot_be_read_is_ended():
    with World(LAUNCHERD) as world:
        node = world.node()
        pid = start_sleeper(world)
        shim = world.note_token(node, 1, 1)
        node.kill()
        rewrite_start(node, 1, lambda order: order.pop("slot_mask"))
        node.begin().ready()
        assert not is_alive(pid) and not is_alive(shim["pid"])
        assert not os.path.exists(node.run_dir(1, 1))
        assert "start.slot_mask: missing): what runs of it is killed" in node.log(), node.log()
        assert world.server.run(2, ["true"])["failed_rank"] == -1
        world.forget(node, 2, 1)


def test_a_shim_that_is_not_described_is_ended():
    """A shim's shim.json is missing, truncated, or of another version: its processes are found all the same."""
    def truncate(path):
        write(path, '{"pi')

    def renumber(path):
        shim = json.loads(read(path))
        write(path, json.dumps(dict(shim, start_ticks=int(shim["start_ticks"]))))

    def another(path):
        rewrite_start(node, 1, lambda order: order.update(job_id="9"))

    for damage in (os.unlink, truncate, renumber, another):
        for is_stuck in (False, True):
            with World(LAUNCHERD) as world:
                node = world.node()
                pid = start_sleeper(world)
                shim = world.note_token(node, 1, 1)
                node.kill()
                damage(node.run_dir(1, 1) + "/shim.json")
                if is_stuck:
                    os.kill(shim["pid"], signal.SIGSTOP)
                node.begin().ready()
                assert not is_alive(pid) and not is_alive(shim["pid"]), (damage, is_stuck)
                assert world.server.run(2, ["true"])["failed_rank"] == -1
                world.forget(node, 2, 1)
                if damage is not another:
                    report = world.server.wait_phase(1, 1, "ended")
                    assert report["failed_class"] == "node", report  # launcherd has killed its ranks
                    forget_dead(world, node)


def test_shim_that_died_while_launcherd_was_away():
    with World(LAUNCHERD) as world:
        node, shim, pids, workers = node_with_escaping(world)
        node.kill()
        kill_shim(shim)
        node.begin().ready()
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "the shim of job 1 on node0 ended while launcherd was away", report
        # The process without our environment and session has lost its parent by now: only a cgroup could show which job it belongs to.
        assert_all_ended(pid for pid in workers + pids if pid != pids[1])
        if is_alive(pids[1]):
            os.kill(pids[1], signal.SIGKILL)
        forget_dead(world, node)


def test_end_is_not_lost_with_the_shim():
    """How the workers ended is reported even when launcherd was not running at the end and the shim was killed after it."""
    with World(LAUNCHERD) as world:
        node = world.node()
        os.mkfifo(f"{world.folder}/fifo")
        world.server.start(1, 1, [SHELL, "-c", f"read x < {world.folder}/fifo; echo last words; exit 3"])
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "running")
        shim = world.note_token(node, 1, 1)
        node.kill()
        write(f"{world.folder}/fifo", "go\n")
        wait_for("end.msg", lambda: os.path.exists(node.run_dir(1, 1) + "/end.msg"))
        kill_shim(shim)
        node.begin().ready()
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "rank 0 exited with code 3" and report["tail"] == "last words\n", report
        assert report["ranks"][0]["state"] == "exited" and report["ranks"][0]["exit_code"] == 3, report
        forget_dead(world, node)


def test_server_restart_under_a_running_job():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, ["sleep", "1000"])
        world.server.go(1, 1)
        before = world.server.wait_phase(1, 1, "running")
        world.server.cut()
        since = world.server.mark()
        world.server.listen()
        after = world.server.wait_for("shim_report", since=since)
        assert after["phase"] == "running" and after["ranks"] == before["ranks"], after
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_silent_server_is_called_again():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.acks_beats = False
        world.server.wait(lambda: world.server.connections >= 2, "a second connection")
        assert "has not answered 5 beats" in node.log()


def test_a_stuck_shim_is_killed_after_a_stop():
    with World(LAUNCHERD) as world:
        node = world.node()
        pid = start_sleeper(world)
        stop_shim(node, 1)
        world.server.stop(1, 1)
        report = world.server.wait_phase(1, 1, "ended")
        assert "was killed (signal 9)" in report["cause"], report
        assert not is_alive(pid)
        assert "its shim is killed: it does not answer, and the job is to stop" in node.log()
        assert world.server.run(2, ["true"])["failed_rank"] == -1
        world.forget(node, 1, 1)
        world.forget(node, 2, 1)


def test_a_stuck_shim_is_killed_after_its_lease():
    with World(LAUNCHERD, gated=True, lease_us=6_000_000) as world:
        node = world.node()
        pid = start_sleeper(world)
        stop_shim(node, 1)
        world.server.cut()
        wait_gone("the end of the lease", pid)
        wait_for("its line", lambda: "its shim is killed: it has not ended with its lease" in node.log())
        world.server.listen()
        report = world.server.wait_phase(1, 1, "ended")
        assert "was killed (signal 9)" in report["cause"], report
        world.forget(node, 1, 1)


def test_lease():
    """The node is cut off for longer than the lease: the workers are killed without a server."""
    with World(LAUNCHERD, gated=True, lease_us=6_000_000) as world:
        node = world.node()
        world.server.start(1, 1, ["sleep", "1000"])
        world.server.go(1, 1)
        pid = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
        world.note_token(node, 1, 1)
        world.server.cut()
        assert is_alive(pid)
        wait_gone("the end of the lease", pid)
        world.server.listen()
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "cut off from the server for longer than the lease (6 s)", report
        assert report["failed_class"] == "network", report
        world.forget(node, 1, 1)


def test_slots_held_and_slots_missing():
    with World(LAUNCHERD) as world:
        node = world.node(slots=2)
        world.server.start(1, 1, ["sleep", "1000"], nproc=2)
        world.server.wait_phase(1, 1, "ready")
        world.server.start(2, 1, ["true"], slot_mask=2)
        report = world.server.wait_phase(2, 1, "ended")
        assert report["cause"] == "slot 1 of node node0 is still used by job 1, generation 1", report
        assert report["failed_class"] == "node", report
        world.server.start(3, 1, ["true"], slot_mask=4)
        report = world.server.wait_phase(3, 1, "ended")
        assert report["cause"] == "slots 0x4 were ordered, node node0 has 2", report
        world.server.start(1, 1, ["false"], nproc=2)  # repeated: ignored
        for job in (2, 3):
            world.server.forget(job, 1)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.server.start(1, 2, ["true"], nproc=2)  # the next generation starts before the last one is forgotten
        world.server.go(1, 2)
        report = world.server.wait_phase(1, 2, "ended")
        assert report["cause"] == "", report
        world.forget(node, 1, 1)
        world.forget(node, 1, 2)


def test_join_and_world():
    """Workers that speak the protocol on DDP_SHIM_FD: blob of rank 0 up, world down to each."""
    with World(LAUNCHERD) as world:
        node = world.node()
        script = (
            "import sys, os, socket, base64\n"
            f"sys.path.insert(0, {os.path.dirname(os.path.dirname(processes.__file__))!r})\n"
            "from processes.wire import Link\n"
            "peer = Link(socket.socket(fileno=int(os.environ['DDP_SHIM_FD'])))\n"
            "rank = int(os.environ['RANK'])\n"
            "peer.send('worker_join', rank=rank, generation=1, blob=base64.b64encode(b'id' if rank == 0 else b'').decode())\n"
            "got = base64.b64decode(peer.recv()['blob'])\n"
            "peer.send('progress', job_id=1, generation=1, rank=rank, epoch=1, epochs=2, step=3, steps=4, loss=0.5,\n"
            "          samples_per_s=6.0, checkpoint_step=0)\n"
            "peer.send('worker_error', text='my last words')\n"
            "sys.exit(0 if got == b'the world' else 9)\n")
        world.server.start(1, 1, [PYTHON, "-c", script], nproc=2)
        world.server.go(1, 1)
        report = world.server.wait_report(1, 1, lambda r: all(x["joined"] for x in r["ranks"]), "all joined")
        assert report["blob"] == "aWQ=", report
        world.server.send("world", job_id=1, generation=1, blob="dGhlIHdvcmxk")
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "" and report["has_world"], report
        assert world.server.find("progress", lambda m: m["rank"] == 1 and m["step"] == 3)
        world.forget(node, 1, 1)


def test_master_port_is_held_and_can_be_taken():
    with World(LAUNCHERD) as world:
        node = world.node()
        script = ("import os, socket\n"
                  "port = int(os.environ['MASTER_PORT'])\n"
                  "other = socket.socket(); \n"
                  "try: other.bind(('127.0.0.1', port)); raise SystemExit(4)\n"
                  "except OSError: pass\n"
                  "store = socket.socket(socket.AF_INET6); store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                  "store.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)\n"
                  "store.bind(('::', port)); store.listen(5)\n"
                  "client = socket.create_connection(('127.0.0.1', port)); store.accept()\n")
        report = world.server.run(1, [PYTHON, "-c", script])
        assert report["cause"] == "", report
        world.forget(node, 1, 1)


def test_sigterm_leaves_shims_running():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, ["sleep", "1000"])
        world.server.go(1, 1)
        pid = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
        assert node.end() == 0
        assert is_alive(pid)
        since = world.server.mark()
        node.begin().ready()
        world.server.wait_for("shim_report", since=since)  # launcherd is connected to its shim again
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_exit_with_parent_takes_its_jobs_along():
    with World(LAUNCHERD) as world:
        node = world.node(extra=["--allow-root", "--exit-with-parent"])
        pids = start_escaping(world)
        shim = world.note_token(node, 1, 1)
        assert node.end() == 0
        assert not any(map(is_alive, pids + [shim["pid"]]))


def test_parent_killed_takes_its_jobs_along():
    """kill -9 of launcherd's parent: launcherd, shim, workers and daemonised children end."""
    with World(LAUNCHERD) as world:
        script = "import subprocess, sys; subprocess.run(sys.argv[1:])"
        arguments = Node(LAUNCHERD, world.folder).argv + ["--exit-with-parent"]
        with open(f"{world.folder}/parent.log", "wb") as log:
            parent = subprocess.Popen([PYTHON, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=log)
        assert parent.stdout.readline().startswith(b"launcherd: ready")
        pids = start_escaping(world)
        launcherd = children_of(parent.pid)
        pids.append(Node(LAUNCHERD, world.folder).shim(1, 1)["pid"])
        parent.kill()
        parent.wait()
        wait_for("everything to end", lambda: not any(map(is_alive, launcherd + pids)))
        parent.stdout.close()


def test_second_launcherd_is_refused():
    with World(LAUNCHERD) as world:
        node = world.node()
        second = subprocess.run(node.argv, capture_output=True, text=True, timeout=60)
        assert second.returncode == 1, second
        assert f"another launcherd (pid {node.process.pid}) uses the state directory" in second.stderr, second.stderr


def test_bad_options():
    for arguments, words in (
            (["--server", ""], "--server is empty"),
            (["--server", "unix:/x", "--slots", "0"], "--slots"),
            (["--server", "unix:/x", "--slots", "2x"], '"2x" is not a whole number'),
            (["--server", "unix:/x", "--name", "a b"], "--name 'a b'"),
            (["--server", "unix:/x", "--frobnicate"], "--frobnicate"),
            (["--server", "unix:/x", "more"], "options only"),
    ):
        env = {k: v for k, v in os.environ.items() if k != "DDP_SERVER"}
        done = subprocess.run([LAUNCHERD, *arguments], capture_output=True, text=True, timeout=60, env=env)
        assert done.returncode == 2 and words in done.stderr, (arguments, done)
    done = subprocess.run([LAUNCHERD, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--exit-with-parent" in done.stdout, done


def test_long_state_directory():
    """Paths longer than a socket address."""
    with World(LAUNCHERD) as world:
        deep = "d" * 120
        node = world.node(extra=["--allow-root", "--state-dir", f"{world.folder}/node0/{deep}"])
        world.server.start(1, 1, ["sleep", "1000"])
        world.server.go(1, 1)
        pid = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
        node.kill()
        since = world.server.mark()
        node.begin().ready()
        world.server.wait_for("shim_report", since=since)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.server.forget(1, 1)
        wait_gone("the end", pid)
        wait_for("the run directory to go", lambda: not os.listdir(f"{world.folder}/node0/{deep}/run"))
        assert node.end() == 0
        os.makedirs(f"{world.folder}/node0/run", exist_ok=True)


def random_order(rng, keys):
    """A random valid message of a server; `keys`: jobs and generations that it has mentioned."""
    kind = rng.choice(["start", "go", "go", "world", "stop", "stop", "forget", "forget", "report_ack", "beat_ack",
                       "slot_resume", "error", "log_read", "input", "node_ask", "node_welcome" if rng.random() < 0.05 else "go"])
    job, generation = rng.choice(keys) if keys and rng.random() < 0.7 else (rng.randrange(1, 30), rng.choice([1, 1, 2]))
    key = dict(job_id=job, generation=generation)
    if kind == "start":
        keys.append((job, generation))
        slots = rng.choice([1, 2, 4, 8, 1 << rng.randrange(64), rng.getrandbits(64) | 1])
        return kind, dict(key, cluster=rng.choice([CLUSTER, CLUSTER, "other"]), name="job",
                          user=rng.choice([user_name(), user_name(), "\u00e9", ""]), node_rank=rng.randrange(64),
                          node_count=64, rank_base=rng.choice([0, 0, 1, 1023]), local_count=rng.choice([1, 1, 2, 64]),
                          world=rng.choice([1, 2, 1024]), slot_mask=slots, restart_count=0, max_restarts=0,
                          checkpoint_step=rng.choice([0, 1200]), grace_us=rng.choice([0, 1000]), cwd=rng.choice(["/", "/", "/\n" + "\u00e9" * 300]),
                          argv=rng.choice([["true"], ["false"], ["/\t\u00e9" * 90], [SHELL, "-c", "exit 3"]]),
                          env=rng.choice([{}, {"PATH": "/bin"}, {"A=B": "c"}, {"": "x"}]), nodes=rng.choice([{}, {"node0": "127.0.0.1"}, {"a": "x"}]), submitted_ms=rng.choice([0, 2**62]))
    if kind == "node_welcome":
        return kind, dict(cluster=rng.choice([CLUSTER, "other"]), beat_interval_us=50000, lease_us=60_000_000, protocol=PROTOCOL, schema="")
    return kind, {
        "go": dict(key, master_addr="127.0.0.1", master_port=29500), "world": dict(key, blob=rng.choice(["", "AAAA"])),
        "stop": dict(key, signal=rng.randrange(1, 65), grace_us=rng.choice([0, 1000, 10**12]), reason="\u00e9"),
        "forget": key, "report_ack": dict(key, revision=rng.choice([1, 2, 2**32 - 1])),
        "beat_ack": dict(sent_us=rng.choice([0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000, 2**63 - 1])),
        "slot_resume": dict(slot=rng.randrange(64), incident=str(rng.choice([0, 1, 2**64 - 1]))),
        "error": dict(code="full", message="\u00e9", hint=""),
        "node_ask": dict(request_id=rng.getrandbits(60), what=rng.choice(["clock", "gauges"]), peers={}, args={"k": "v"},
                         user="", job_id=0, cwd="", argv=[], env={}),
        "input": dict(key, request_id=rng.getrandbits(60), rank=rng.choice([0, 1023]), offset=rng.choice([0, 2**62]), bytes=rng.choice(["", "AAAA"]),
                      is_end=rng.random() < 0.5, rows=rng.choice([0, 65535]), columns=80),
        "log_read": dict(key, what="output", request_id=rng.getrandbits(60), rank=rng.choice([0, 1023]), offset=rng.choice([0, 2**63 - 1]),
                         tail_lines=rng.choice([0, 1000000]), bytes_max=rng.choice([1, 32768]),
                         wait_us=rng.choice([0, 60_000_000]), submitted_ms=0),
    }[kind]


def test_a_server_that_follows_no_protocol():
    """Random valid messages in any order: launcherd survives, its memory is bounded, and a job runs after them."""
    seed, total = int(os.environ.get("DDP_SEED", "1")), int(os.environ.get("DDP_MESSAGES", "5000"))
    rng, keys = random.Random(seed), []
    with World(LAUNCHERD, gated=True) as world:
        node, server = world.node(slots=64), world.server
        for _ in range(total):
            kind, fields = random_order(rng, keys)
            try:
                server.send(kind, **fields)
                if rng.random() < 0.0005:
                    server.node.socket.shutdown(socket.SHUT_RDWR)  # it connects again
            except (Closed, OSError, AttributeError):
                pass
            del keys[:-20]
            if len(server.messages) > 10000:
                del server.messages[:-100]
            assert node.process.poll() is None, f"seed {seed}: {node.log()[-2000:]}"
        with open(f"/proc/{node.process.pid}/status") as file:
            rss_kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
        print(f"{total} messages, {server.connections} connections, rss {rss_kib} KiB", flush=True)

        def clear():
            """Each shim is known under one of the two clusters. Earlier orders may still be in flight; an answer comes after all of them."""
            try:
                since, request = server.mark(), rng.getrandbits(60)
                server.send("log_read", what="output", request_id=request, job_id=1, generation=1, rank=0, offset=0, tail_lines=0,
                            bytes_max=1, wait_us=0, submitted_ms=0)
                wait_for("an answer", lambda: server.find("log_data", lambda m: m["request_id"] == request, since), 2)
                left = os.listdir(f"{world.folder}/{node.name}/run")
                for cluster in ("other", CLUSTER):
                    server.send("node_welcome", cluster=cluster, beat_interval_us=50000, lease_us=60_000_000, protocol=PROTOCOL, schema="")
                    for job, generation in (name.rsplit("-", 2)[1:] for name in left):
                        server.stop(int(job), int(generation[1:]), signal.SIGKILL)
                        server.forget(int(job), int(generation[1:]))
            except (Closed, OSError, AssertionError):
                return False  # the connection has just ended
            return not left

        wait_for("the run directories to go", clear)
        assert server.run(1000, ["true"], slot_mask=1 << 63)["failed_rank"] == -1
        world.forget(node, 1000, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))

#!/usr/bin/env python3
"""Where a live rank stands, and what the store of its generation holds: inspect_test.py LAUNCHERD [NAME...]

py-spy is a stand-in with the output of py-spy 0.4; the real one is tested too if tests/pytorch/setup has installed it."""
import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import sys
import threading

for folder in ("../../lib", "../../pytorch"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), folder))
import pytorch
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.runner import run_tests, Skip
from processes.waiting import wait_for
from processes.world import World

LAUNCHERD = os.path.abspath(sys.argv[1])
SHELL = "/bin/sh"
MISSING = "py-spy is not installed on this node: pip install py-spy"
STUCK = """
import threading
def waits_for_ever():
    lock = threading.Lock()
    lock.acquire()
    print("ready", flush=True)
    lock.acquire()
waits_for_ever()
"""
REAL = os.path.join(pytorch.folder(), "bin/py-spy")
FAKE = """#!/bin/sh
[ "$1 $2 $3" = "dump --nonblocking --pid" ] || exit 9
echo "Process $4: python3 stuck.py"
echo "Python v3.11.2 (/usr/bin/python3.11)"
echo
echo "Thread $4 (idle): \\"MainThread\\""
echo "    waits_for_ever (stuck.py:7)"
echo "    <module> (stuck.py:8)"
"""


def stand_in(world):
    """A program that every user may run and whose name looks like Python's."""
    path = f"{world.folder}/python-stand-in"
    shutil.copy(shutil.which("sleep"), path)
    return [SHELL, "-c", f"echo ready; exec {path} 1000"]


def printed(world):
    return world.server.log_read(1, 1, 0, wait_us=0)["bytes"]


@contextlib.contextmanager
def rank(argv, path=None, ready=b"ready\n", **more):
    """A world whose job 1 runs `argv`, once it has printed `ready`."""
    with World(LAUNCHERD) as world:
        node = world.node(extra=more.pop("extra", ("--allow-root",)))
        env = {"PATH": path or "/usr/bin:/bin"}
        world.server.start(1, 1, argv, env=env, **more)
        world.server.go(1, 1)
        wait_for("its first line", lambda: printed(world) == ready)
        yield world
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def ask(world, what="stack", of=0, job=1):
    data = world.server.log_read(job, 1, of, what=what, bytes_max=4096)
    out = data["bytes"]
    while not data["is_final"]:
        data = world.server.log_read(job, 1, of, what=what, offset=len(out), bytes_max=4096)
        assert data["offset"] == len(out), data
        out += data["bytes"]
    assert data["problem"] or data["size"] == len(out), data
    return json.loads(out) if out else data["problem"]


def ask_waiting(world, word):
    """The stack of rank 0 once it waits in the kernel: what it has printed may be read before that."""
    return wait_for(f"a wait in {word}", lambda: (lambda stack: stack if stack["state"] == "S" and waits_in(stack, word) else None)(ask(world)))


def ask_python(world):
    return wait_for("an answer of py-spy, which has 5 s", lambda: (lambda stack: stack if "python" in stack else None)(ask(world)))


def tool(world, text, name="tools"):
    folder = f"{world.folder}/{name}"
    os.mkdir(folder)
    with open(f"{folder}/py-spy", "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(f"{folder}/py-spy", 0o755)
    return folder


def waits_in(task, word):
    frames = task.get("kernel_stack")
    return word in task["wchan"] if frames is None else any(word in frame for frame in frames) and word in task["wchan"]


def test_a_shim_in_another_pid_namespace_has_not_ended():
    """As after a launcherd of another container: the number of its shim is another process's here, or nobody's."""
    with rank(["sh", "-c", "echo ready; exec sleep 1000"]) as world:
        path = world.nodes[0].run_dir(1, 1) + "/shim.json"
        with open(path, encoding="ascii") as file:
            own = file.read()
        other = dict(json.loads(own), pid_ns="pid:[1]", pid=2**22 - 1)
        with open(path, "w", encoding="ascii") as file:
            json.dump(other, file)
        said = ask(world)
        with open(path, "w", encoding="ascii") as file:
            file.write(own)
        assert said.endswith(": its shim runs in another PID namespace (another container), so its processes cannot be seen from here"), said


def test_a_process_that_waits_for_a_futex():
    with rank([sys.executable, "-c", STUCK]) as world:
        stack = ask_waiting(world, "futex")
        pid = world.server.reports[(1, 1)]["ranks"][0]["pid"]
        assert (stack["schema"], stack["rank"], stack["pid"], stack["state"]) == ("ddp.stack.v1", 0, pid, "S"), stack
        assert waits_in(stack, "futex"), stack
        assert [task["tid"] for task in stack["threads"]] == [pid] and stack["thread_count"] == 1, stack
        assert waits_in(stack["threads"][0], "futex") and stack["threads"][0]["name"].startswith("python"), stack
        assert stack["children"] == [] and 0 <= stack["cpu_s"] < 60 and stack["python_pid"] == pid, stack
        assert stack["python_problem"] == MISSING or shutil.which("py-spy") is not None, stack
        if os.geteuid() == 0:
            assert "kernel_stack" in stack and "kernel_stack_problem" not in stack, stack
        else:
            assert stack["kernel_stack_problem"].startswith("only root may read it"), stack


def test_a_shell_that_is_stopped_and_what_it_runs():
    """Python is found below a shell; the shell's command is shown without control characters."""
    with rank([SHELL, "-c", f"{sys.executable} -c \"$0\"; echo no\n", STUCK]) as world:
        pid = world.server.reports[(1, 1)]["ranks"][0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        wait_for("the stop to be seen", lambda: ask(world)["state"] == "T")
        wait_for("the wait of what it runs", lambda: [child["state"] for child in ask(world)["children"]] == ["S"])
        stack = ask(world)
        assert stack["wchan"] == "do_signal_stop" or "signal" in stack["wchan"], stack
        assert len(stack["children"]) == 1 and stack["children"][0]["state"] == "S", stack
        assert stack["children"][0]["pid"] == stack["python_pid"] != pid, stack
        assert stack["command"].startswith("/bin/sh -c") and "\n" not in stack["command"], stack
        os.kill(pid, signal.SIGCONT)


def test_what_is_no_python():
    with rank([SHELL, "-c", "echo ready; exec sleep 1000"]) as world:
        stack = ask_waiting(world, "nanosleep")
        assert stack["python_problem"] == "neither it nor a process below it is a Python", stack
        assert "python" not in stack, stack


def test_py_spy_of_the_job():
    """py-spy is looked up in the job's PATH, runs as the job's user, and its output is returned."""
    more = {"user": "nobody", "extra": []} if os.geteuid() == 0 and pwd.getpwnam("nobody").pw_uid >= 1000 else {}
    with World(LAUNCHERD) as world:
        os.chmod(world.folder, 0o755)
        node = world.node(extra=more.pop("extra", ("--allow-root",)))
        folder = tool(world, FAKE + "echo \"uid $(id -u)\"\nprintf 'odd \\033[1m\\200\\n'\n")
        world.server.start(1, 1, stand_in(world), env={"PATH": f"{folder}:/usr/bin:/bin"}, **more)
        world.server.go(1, 1)
        wait_for("its first line", lambda: printed(world) == b"ready\n")
        stack = ask_python(world)
        uid = pwd.getpwnam("nobody").pw_uid if more else os.geteuid()
        assert stack["python"].endswith(f"    <module> (stuck.py:8)\nuid {uid}\nodd ?[1m?\n"), stack
        assert f"Process {stack['pid']}: " in stack["python"] and "python_problem" not in stack, stack
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def problem_of(text):
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, [sys.executable, "-c", STUCK], env={"PATH": f"{tool(world, text)}:/usr/bin:/bin"})
        world.server.go(1, 1)
        wait_for("its first line", lambda: printed(world) == b"ready\n")
        stack = ask(world)
        assert "python" not in stack and stack["pid"] > 0, stack
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)
        return stack["python_problem"]


def test_py_spy_that_fails():
    assert problem_of("#!/bin/sh\necho 'Error: no such version' >&2; exit 1\n") == "py-spy: Error: no such version"
    refused = problem_of("#!/bin/sh\necho 'Error: Permission Denied: Try sudo' >&2; exit 1\n")
    assert refused.startswith("py-spy: Error: Permission Denied: Try sudo (where kernel.yama.ptrace_scope"), refused
    assert problem_of("#!/bin/sh\nexit 0\n") == "py-spy: it failed and said nothing"
    assert problem_of("#!/bin/sh\nexec sleep 1000\n") == "py-spy took longer than 5 s"


def test_py_spy_of_root_where_the_kernel_refuses_the_user():
    if os.geteuid() != 0 or pwd.getpwnam("nobody").pw_uid < 1000:
        raise Skip("only root runs jobs of other users")
    with World(LAUNCHERD) as world:
        os.chmod(world.folder, 0o755)
        only_root = "[ $(id -u) = 0 ] || { echo 'Permission Denied' >&2; exit 1; }\n"
        folder = tool(world, FAKE.replace("\n[", "\n" + only_root + "[", 1))
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}:{before}"  # launcherd's PATH
        try:
            node = world.node(extra=[])
        finally:
            os.environ["PATH"] = before
        world.server.start(1, 1, stand_in(world), env={"PATH": "/usr/bin:/bin"}, user="nobody")
        world.server.go(1, 1)
        wait_for("its first line", lambda: printed(world) == b"ready\n")
        wait_for("an answer of py-spy, which has 5 s", lambda: "waits_for_ever" in ask(world).get("python", ""))
        os.chmod(f"{folder}/py-spy", 0o777)  # now other users could have changed it
        wait_for("a new answer", lambda: "python_problem" in ask(world))
        assert ask(world)["python_problem"].startswith("py-spy: Permission Denied"), ask(world)
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_real_py_spy():
    if not os.access(REAL, os.X_OK):
        raise Skip(f"no {REAL}: tests/pytorch/setup")
    with rank([sys.executable, "-c", STUCK], path=f"{os.path.dirname(REAL)}:/usr/bin:/bin") as world:
        stack = ask_python(world)
        fake = FAKE.replace('\\"', '"')
        for line in ("Thread", "(idle): \"MainThread\"", "    waits_for_ever ("):
            assert line in stack["python"] and line in fake, stack["python"]
        assert stack["python"].startswith(f"Process {stack['pid']}: "), stack["python"]


def test_what_does_not_run():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.run(1, [SHELL, "-c", "exit 0"])
        assert ask(world) == "node node0 has no stack of job 1, generation 1, rank 0: it does not run here"
        assert ask(world, of=5).endswith("rank 5: it does not run here")
        assert ask(world, "store").endswith("rank 0: this generation has no store here")
        world.forget(node, 1, 1)
        assert ask(world).endswith("its generation is not on this node")
        problem = world.server.log_read(1, 1, 0, what="stack", offset=7)["problem"]
        assert problem.endswith("what it was is gone; ask again from its beginning"), problem


def test_many_threads_come_in_pages():
    program = "import threading\nlock = threading.Lock()\nlock.acquire()\nfor i in range(100):\n" \
              "    threading.Thread(target=lock.acquire, daemon=True).start()\nprint('ready', flush=True)\nlock.acquire()"
    with rank([sys.executable, "-c", program]) as world:
        stack = ask(world)
        assert len(stack["threads"]) == 64 and stack["thread_count"] == 101, stack["thread_count"]


@contextlib.contextmanager
def store(world, node, pieces):
    """A server that answers like the store of job 1."""
    listener = socket.socket(socket.AF_UNIX)
    here = os.open(".", os.O_RDONLY)
    os.chdir(node.run_dir(1, 1))  # the path may be too long for a socket address
    listener.bind("store.sock")
    os.fchdir(here)
    os.close(here)
    listener.listen(4)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                for piece in pieces:
                    if piece is None:
                        threading.Event().wait(120)
                    peer.sendall(piece)
                peer.close()
    threading.Thread(target=serve, daemon=True).start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    os.unlink(f"{node.run_dir(1, 1)}/store.sock")


def test_the_store():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, [SHELL, "-c", "echo ready; sleep 1000"])
        world.server.go(1, 1)
        keys = [f"key {i}" for i in range(20000)]
        text = json.dumps({"schema": "ddp.store.v1", "missing": keys}).encode()
        with store(world, node, [text[:7], text[7:]]):
            assert ask(world, "store")["missing"] == keys
        for pieces, problem in (([b"[1]"], "the answer of its store is no JSON object"), ([], "the answer of its store is no JSON object"),
                                ([b"{" + b" " * (1 << 20)], "the answer of its store is longer than 1 MiB")):
            with store(world, node, pieces):
                wait_for(problem, lambda want=problem: str(ask(world, "store")).endswith(want))
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_the_store_of_a_job_that_has_one():
    with rank([sys.executable, "-c", STUCK], nodes={"node0": "127.0.0.1"}, launch={"store": "on"}) as world:
        status = ask(world, "store")
        port = world.server.reports[(1, 1)]["master_port"]
        assert (status["schema"], status["address"], status["clients"]) == ("ddp.store.v1", f"127.0.0.1:{port}", []), status


def test_a_store_that_hangs_holds_up_nobody():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.start(1, 1, [sys.executable, "-c", STUCK])
        world.server.go(1, 1)
        wait_for("its first line", lambda: printed(world) == b"ready\n")
        with store(world, node, [b"{", None]):
            answers = []
            thread = threading.Thread(target=lambda: answers.append(ask(world, "store")))
            thread.start()
            assert ask(world)["rank"] == 0 and not answers  # meanwhile a rank is inspected
            thread.join(120)
            assert answers and answers[0].endswith("its store does not answer"), answers
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))

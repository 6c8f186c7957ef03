#!/usr/bin/env python3
"""A disk freezes: what needs it fails by its name, and all else goes on. frozen_disk_test.py LAUNCHERD STUCK_DISK_LIBRARY [NAME...]

The library (tests/lib/stuck_disk.c) is preloaded into launcherd and its shims. While the disk of the logs or of the run directories is
frozen, every call that names a path on it hangs, as on a file server that does not answer. It also keeps a process from running its program."""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.case import write_file
from processes.proc import is_alive
from processes.runner import run_tests
from processes.waiting import LONG_S, wait_for, wait_gone
from processes.world import World

LAUNCHERD, LIBRARY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SLEEPER = ["sh", "-c", "echo begun; exec sleep 1000"]
END_S = 8.0  # 2 s for the logs and 2 s for the end, on a machine that is busy
LONGEST_SILENCE_S = 3.0  # between two beats, which come every half second


class Disk:
    """A folder of the state directory as a disk of its own."""

    def __init__(self, world, name):
        self.paths = [f"{world.folder}/stuck.{name}"] + ([f"{world.folder}/stuck"] if name == "logs" else [])  # the second: writes
        os.environ.update(LD_PRELOAD=LIBRARY, DDP_STUCK_FILE=f"{world.folder}/stuck", ASAN_OPTIONS="verify_asan_link_order=0")

    def freeze(self, who=""):
        for path in self.paths:
            write_file(path, who)

    def thaw(self):
        for path in self.paths:
            os.unlink(path)


def run_sleeper(world, node, job, slot):
    world.server.start(job, 1, SLEEPER, slot_mask=1 << slot)
    world.server.go(job, 1)
    pid = world.server.wait_phase(job, 1, "running")["ranks"][0]["pid"]
    world.note_token(node, job, 1)
    return pid


def begin_again(world, node, job):
    """Waits for the adopted shim's report: an order that comes before is lost, and the server repeats it."""
    since = world.server.mark()
    node.begin().ready()
    world.server.wait_for("shim_report", lambda m: m["job_id"] == job, since=since)


def silences(world, since_s):
    """The longest time without a beat since then."""
    with world.server.changed:
        beats = [since_s] + [at for at, m in world.server.messages if m["type"] == "beat" and at > since_s] + [world.now()]
    return max(after - before for before, after in zip(beats, beats[1:]))


def check_alive(world, since_s):
    assert world.server.connections == 1, "the node was lost"
    longest = silences(world, since_s)
    print(f"the longest silence: {longest:.2f} s", flush=True)
    assert longest < LONGEST_SILENCE_S, f"silent for {longest:.1f} s"


def test_the_disk_of_the_logs_freezes():
    """A running job lives, and can be stopped; its log and the gauges name the disk; a new job fails with the disk's name."""
    with World(LAUNCHERD, gated=True, lease_us=8_000_000) as world:
        disk = Disk(world, "logs")
        node = world.node()
        pid = run_sleeper(world, node, 1, 0)
        watch = world.watch()
        disk.freeze()
        world.server.start(2, 1, SLEEPER, slot_mask=2)
        gauges = world.server.node_ask("gauges")["problem"]
        assert gauges == f"the disk of {node.folder}/node0/logs (logs) does not answer: statvfs took longer than 3 s", gauges
        problem = world.server.log_read(1, 1, 0, offset=1000)["problem"]
        assert problem.startswith(f"node node0: the disk of {node.folder}/node0/logs (logs) does not answer: "), problem
        report = world.server.wait_phase(2, 1, "ended")
        assert report["cause"] == f"node node0: the disk of {node.folder}/node0/logs (logs) does not answer: mkdir took longer than 10 s", report
        assert report["failed_class"] == "node" and report["ranks"][0]["state"] == "lost", report
        assert is_alive(pid), "the job that ran is dead"
        world.server.stop(1, 1, signal.SIGTERM)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["ranks"][0]["state"] == "stopped" and "killed" not in report["cause"], report
        check_alive(world, watch.begun)
        disk.thaw()
        world.server.forget(2, 1)
        world.forget(node, 1, 1)
        assert world.server.run(3, ["true"], slot_mask=2)["failed_rank"] == -1
        assert world.server.log_bytes(1, 1, 0) == b"begun\n"
        world.forget(node, 3, 1)
        wait_for("what the failed start has made to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def test_the_disk_of_the_logs_freezes_for_a_shim():
    """After launcherd has made its part: the shim fails the start by the disk's name, long before launcherd would kill it."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "logs")
        node = world.node()
        disk.freeze("--shim")
        watch = world.watch()
        world.server.start(1, 1, SLEEPER, slot_mask=1)
        report = world.server.wait_phase(1, 1, "ended")
        watch.check("the failed start", 9, 10 + END_S)
        assert report["cause"] == f"node node0: the disk of {node.log_dir(1)[:100]} (logs) does not answer: open took longer than 10 s", report
        assert report["failed_class"] == "node", report
        disk.thaw()
        world.server.forget(1, 1)
        assert world.server.run(2, ["true"], slot_mask=1)["failed_rank"] == -1
        world.forget(node, 2, 1)
        wait_for("the run directories to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def test_the_disk_of_the_run_directories_freezes_for_a_shim():
    """When it makes the socket at which its store answers launcherd."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "store.sock")
        node = world.node()
        disk.freeze()
        watch = world.watch()
        world.server.start(1, 1, SLEEPER, slot_mask=1, launch={"store": "on"}, nodes={"node0": "127.0.0.1"})
        report = world.server.wait_phase(1, 1, "ended")
        watch.check("the failed start", 9, 10 + END_S)
        assert report["cause"] == f"node node0: the disk of {node.folder}/node0 (state directory) does not answer: bind took longer than 10 s", report
        assert report["failed_class"] == "node", report
        disk.thaw()
        world.forget(node, 1, 1)


def start_that_cannot_be_checked(world, disk, who, **more):
    """The cause of its end."""
    node = world.node()
    disk.freeze(who)
    world.server.start(1, 1, SLEEPER, slot_mask=1, **more)
    report = world.server.wait_phase(1, 1, "ended")
    assert report["failed_class"] == "node", report
    disk.thaw()
    world.forget(node, 1, 1)
    return report["cause"]


def test_the_disk_of_the_working_directory_freezes():
    with World(LAUNCHERD, gated=True) as world:
        cwd = f"{world.folder}/stage"
        os.mkdir(cwd)
        cause = start_that_cannot_be_checked(world, Disk(world, "stage"), "--shim", cwd=cwd)
        assert cause == f"node node0: the disk of working directory {cwd[:100]} does not answer: chdir took longer than 30 s", cause


def test_the_user_database_does_not_answer():
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "none")
        disk.paths = [f"{world.folder}/stuck"]
        cause = start_that_cannot_be_checked(world, disk, "")
        assert cause.startswith("node node0: its user database does not answer: looking up ") and cause.endswith(" took longer than 30 s"), cause


def test_a_shim_that_is_killed_says_what_it_did():
    """What is left on its main thread: a disk that hangs there is ended by launcherd's limits, which name the step."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "run")
        node = world.node()
        disk.freeze("--shim")
        world.server.start(1, 1, SLEEPER, slot_mask=1)
        world.server.start(2, 1, SLEEPER, slot_mask=2)
        for job in 1, 2:
            report = world.server.wait_phase(job, 1, "ended")
            assert report["cause"] == f"the shim of job {job} on node0 was killed (signal 9) while it read start.msg in its run directory: " \
                "it has said nothing for 30 s while it prepared", report
        disk.thaw()
        for job in 1, 2:
            world.server.forget(job, 1)
        wait_for("the run directories to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def test_the_disk_of_a_ranks_program_freezes():
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "exec")
        node = world.node()
        write_file(disk.paths[0], "hang -c")
        world.server.start(1, 1, SLEEPER, slot_mask=1)
        world.server.go(1, 1)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "the shim of job 1 on node0 was killed (signal 9) while the process of rank 0 did not come to run its program: " \
            "it has said nothing for 60 s while it started the ranks", report
        disk.thaw()
        world.forget(node, 1, 1)


def test_a_rank_is_stopped_before_it_begins():
    """The shim's main thread waits until the process runs its program: a thread beside it ends what does not go on."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "exec")
        node = world.node()
        write_file(disk.paths[0], "stop -c")
        world.server.start(1, 1, SLEEPER, slot_mask=1)
        watch = world.watch()
        world.server.go(1, 1)
        report = world.server.wait_phase(1, 1, "ended")
        assert re.fullmatch(r"rank 0: its new process \d+ was stopped \(SIGSTOP, or a debugger\) before it ran its program, and was killed after 10 s",
                            report["cause"]), report
        watch.check("the failed start", 9, 10 + END_S)
        assert report["failed_class"] == "node", report
        disk.thaw()
        world.forget(node, 1, 1)


def test_the_folder_of_a_job_hangs_while_doctor_looks():
    """The part that hangs says at which folder, not that somebody should read a log."""
    with World(LAUNCHERD, gated=True) as world:
        cwd = f"{world.folder}/stage"
        os.mkdir(cwd)
        disk = Disk(world, "stage")
        world.node()
        disk.freeze("--doctor")
        facts = json.loads(world.server.node_ask("doctor", job_id=1, cwd=cwd, argv=["python3", "x.py"])["bytes"])
        gaps = {gap["part"]: gap["problem"] for gap in facts["gaps"]}
        assert gaps == {"account": f"the disk of {cwd[:90]} (working directory) does not answer (15 s)",
                        "python": f"the disk of {cwd[:90]} (working directory) does not answer (40 s)"}, gaps
        disk.thaw()


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def test_the_check_of_a_job_is_stopped():
    """What it did last is not to blame."""
    with World(LAUNCHERD, gated=True) as world:
        os.mkdir(f"{world.folder}/stage")
        disk = Disk(world, "stage")
        node = world.node()
        disk.freeze("--shim")
        world.server.start(1, 1, SLEEPER, slot_mask=1, cwd=f"{world.folder}/stage")
        wait_for("the process that checks", lambda: os.path.exists(node.run_dir(1, 1) + "/shim.json") and children_of(node.shim(1, 1)["pid"]), LONG_S)
        checker = children_of(node.shim(1, 1)["pid"])[0]
        os.kill(checker, signal.SIGSTOP)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == f"node node0: the process {checker} that checks the job was stopped (SIGSTOP, or a debugger): " \
            "it has not answered within 30 s", report
        assert report["failed_class"] == "node", report
        disk.thaw()
        world.forget(node, 1, 1)


def test_the_disk_of_the_run_directories_freezes():
    """Likewise; what a shim that dies meanwhile has left is found when the disk answers again."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "run")
        node = world.node()
        pid = run_sleeper(world, node, 1, 0)
        shim = node.shim(1, 1)["pid"]
        watch = world.watch()
        disk.freeze()
        world.server.start(2, 1, SLEEPER, slot_mask=2)
        os.kill(shim, signal.SIGKILL)
        wait_gone("the worker to die with its shim", pid, patience_s=LONG_S)
        report = world.server.wait_phase(2, 1, "ended")
        assert report["cause"].startswith(f"node node0: the disk of {node.folder}/node0 (state directory) does not answer: "), report
        assert world.server.reports[(1, 1)]["phase"] == "running", "how its shim ended cannot be known yet"
        check_alive(world, watch.begun)
        disk.thaw()
        report = world.server.wait_phase(1, 1, "ended")
        assert "was killed (signal 9)" in report["cause"], report
        world.server.forget(1, 1)
        world.server.forget(2, 1)
        wait_for("the run directories to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def start_that_hangs(world, node, how):
    """Orders job 2 while job 1 runs, and its shim's process does not come to run launcherd's program. Returns the cause of its end."""
    disk = Disk(world, "exec")
    pid = run_sleeper(world, node, 1, 0)
    watch = world.watch()
    write_file(disk.paths[0], how)
    world.server.start(2, 1, SLEEPER, slot_mask=2)
    report = world.server.wait_phase(2, 1, "ended")
    assert report["failed_class"] == "node" and report["ranks"][0]["state"] == "lost", report
    assert is_alive(pid), "the job that ran is dead"
    world.server.stop(1, 1, signal.SIGTERM)
    assert world.server.wait_phase(1, 1, "ended")["ranks"][0]["state"] == "stopped"
    check_alive(world, watch.begun)
    disk.thaw()
    return report["cause"]


def run_another(world, node):
    for job in 1, 2:
        world.server.forget(job, 1)
    assert world.server.run(3, ["true"], slot_mask=2)["failed_rank"] == -1
    world.forget(node, 3, 1)
    wait_for("what the failed start has made to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def test_a_shim_is_stopped_before_it_begins():
    """A child shares launcherd's memory until it runs its program, and whoever has made it waits until then: a thread."""
    with World(LAUNCHERD, gated=True) as world:
        Disk(world, "exec")
        node = world.node()
        cause = start_that_hangs(world, node, "stop --shim")
        assert re.fullmatch(r"the shim of job 2 on node0 was not started: its new process \d+ was stopped \(SIGSTOP, or a debugger\) "
                            "before it ran launcherd's program", cause), cause
        run_another(world, node)


def test_the_disk_of_the_program_freezes():
    with World(LAUNCHERD, gated=True) as world:
        Disk(world, "exec")
        node = world.node()
        cause = start_that_hangs(world, node, "hang --shim")
        assert cause == "the shim of job 2 on node0 was not started: the disk of launcherd's program does not answer: " \
            "exec took longer than 10 s", cause
        run_another(world, node)


TRACER = """import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
print(libc.ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True)  # PTRACE_SEIZE
sys.stdin.read()"""


def children_stopped(node):
    """Children of launcherd that are stopped."""
    found = []
    for task in os.listdir(f"/proc/{node.process.pid}/task"):
        with open(f"/proc/{node.process.pid}/task/{task}/children", encoding="ascii") as file:
            found += [int(pid) for pid in file.read().split()]
    def state(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    return [pid for pid in found if state(pid) in "Tt"]


def test_a_start_that_failed_holds_its_slot_until_its_process_is_gone():
    """A tracer that does not wait for the killed process keeps it from being reaped: nobody knows yet that it is gone."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "exec")
        node = world.node()
        write_file(disk.paths[0], "stop --shim")
        world.server.start(2, 1, SLEEPER, slot_mask=2)
        wait_for("its process to be made", lambda: children_stopped(node), LONG_S)
        pid = children_stopped(node)[0]
        tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if tracer.stdout.readline() != "0\n":
            tracer.communicate()
            print("no process may be traced here", flush=True)
            return
        disk.thaw()
        wait_for("the start to fail", lambda: f"process {pid} is killed" in node.log(), LONG_S)
        since = world.server.mark()
        world.server.wait_for("beat", lambda m: any(s["job_id"] == 2 for s in m["shims"]), since=since)
        assert (2, 1) not in world.server.reports, world.server.reports
        tracer.communicate()
        assert "was stopped" in world.server.wait_phase(2, 1, "ended")["cause"]
        world.server.forget(2, 1)
        wait_for("what the failed start has made to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def test_launcherd_ends_while_it_starts_a_shim():
    """As in an upgrade: the next launcherd finds the shim, and the job goes on."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "exec")
        node = world.node()
        write_file(disk.paths[0], "stop --shim")
        world.server.start(1, 1, SLEEPER, slot_mask=1)
        wait_for("its process to be made", lambda: children_stopped(node), LONG_S)
        node.process.send_signal(signal.SIGTERM)
        wait_for("launcherd to end", lambda: "SIGTERM: ending" in node.log(), LONG_S)
        disk.thaw()
        os.kill(children_stopped(node)[0], signal.SIGCONT)
        assert node.wait() == 0
        begin_again(world, node, 1)
        world.server.go(1, 1)
        pid = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
        world.note_token(node, 1, 1)
        assert is_alive(pid)
        world.server.stop(1, 1, signal.SIGTERM)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_a_process_that_answers_questions_is_stopped_before_it_begins():
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "exec")
        node = world.node()
        run_sleeper(world, node, 1, 0)
        watch = world.watch()
        write_file(disk.paths[0], "stop --inspect")
        problem = world.server.log_read(1, 1, 0, what="stack")["problem"]
        assert problem.endswith("looking at it took too long: something hangs there"), problem
        write_file(disk.paths[0], "stop --doctor")
        problem = world.server.node_ask("listen")["problem"]
        assert "was stopped (SIGSTOP, or a debugger) before it ran launcherd's program" in problem, problem
        check_alive(world, watch.begun)
        disk.thaw()
        wait_for("the stopped processes to go", lambda: not children_stopped(node), LONG_S)
        assert world.server.log_read(1, 1, 0, what="stack")["bytes"].startswith(b'{"schema":"ddp.stack.v1"')
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_a_disk_cannot_give_what_a_killed_shim_has_written():
    """EIO is no proof that nothing is left: the end is not known until shim.json can be read."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "eio")
        node = world.node()
        pid = run_sleeper(world, node, 1, 0)
        shim = node.shim(1, 1)["pid"]
        write_file(disk.paths[0], "shim.json")
        os.kill(shim, signal.SIGKILL)
        wait_for("the sweep to fail", lambda: "how its shim ended is not known yet: " in node.log(), LONG_S)
        assert "shim.json" in node.log().split("not known yet: ")[1].split("\n")[0], node.log()
        since = world.server.mark()
        for _ in range(2):  # whatever the first sweep has posted has come by then
            world.server.wait_for("beat", lambda m: any(s["job_id"] == 1 for s in m["shims"]), since=since)
            since = world.server.mark()
        assert world.server.reports[(1, 1)]["phase"] == "running" and not is_alive(pid)
        disk.thaw()
        assert "was killed (signal 9)" in world.server.wait_phase(1, 1, "ended")["cause"]
        world.server.forget(1, 1)
        wait_for("the run directory to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def test_a_staged_folder_that_does_not_come():
    """The server sends nothing of it for 60 s, also over a new connection: the start has failed, by that name."""
    with World(LAUNCHERD, gated=True) as world:
        node = world.node()
        world.server.start(1, 1, ["true"], cwd="stage:" + "0" * 64)
        world.server.wait_for("stage_get")
        watch = world.watch()
        watch.let_pass(20)
        world.server.cut()
        world.server.listen()
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "node node0 cannot get the staged directory: the server sent nothing for 60 s", report
        watch.check("the staged directory's limit", 59, 75)
        assert report["failed_class"] == "node", report
        wait_for("what was begun of it to go", lambda: not os.path.exists(f"{node.folder}/node0/stage/{'0' * 64}.part"), LONG_S)
        world.server.forget(1, 1)
        assert world.server.run(2, ["true"])["failed_rank"] == -1
        world.forget(node, 2, 1)


def test_an_ended_shim_leaves_when_launcherd_stays_away():
    """Its end is on the disk: a launcherd that comes later reads it there."""
    with World(LAUNCHERD, gated=True) as world:
        node = world.node()
        world.server.start(1, 1, ["sh", "-c", "exit 3"])
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "ended")
        shim = node.shim(1, 1)["pid"]
        watch = world.watch()  # before: its clock does not wait for the test
        node.kill()
        wait_gone("the shim to leave", shim, patience_s=LONG_S)
        watch.check("the wait for a launcherd", 55)
        since = world.server.mark()
        begin_again(world, node, 1)
        report = world.server.wait_for("shim_report", since=since)
        assert report["phase"] == "ended" and report["ranks"][0]["exit_code"] == 3, report
        world.server.forget(1, 1)
        wait_for("the run directory to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


DAEMON = """import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)"""


def test_the_memory_of_a_process_is_locked():
    """Nobody can read its environment then, which alone says of which rank a daemon is: the stop ends all the same, and says so."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "environ")
        node = world.node()
        told = f"{world.folder}/pid"
        world.server.start(1, 1, [sys.executable, "-c", DAEMON, told])
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "running")
        world.note_token(node, 1, 1)
        wait_for("the daemon", lambda: os.path.exists(told), LONG_S)
        with open(told, encoding="ascii") as file:
            pid = int(file.read())
        disk.freeze()
        watch = world.watch()
        world.server.stop(1, 1, signal.SIGTERM, grace_us=1_000_000)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["ranks"][0]["state"] == "stopped" and "killed" not in report["cause"], report
        watch.check("the end", 1, 1 + END_S)
        assert not is_alive(pid)
        disk.thaw()
        with open(f"{node.log_dir(1)}/shim-g1.log", encoding="utf-8") as file:
            text = file.read()
        assert re.search(r"a rank here \(which one is not known: the kernel does not answer about a process in 1 s\): "
                         rf"1 process has not ended in the grace and is killed: {pid} \(python", text), text
        world.forget(node, 1, 1)


def check_end(world, node, job, watch):
    """It has ended soon, and says which disk does not have its end."""
    report = world.server.wait_phase(job, 1, "ended")
    watch.check(f"the end of job {job}", 0, END_S)
    assert report["notice"] == (f"the end of job {job} is not stored: the disk of {node.folder}/node0 (state directory) does not answer: "
                                "write took longer than 2 s"), report
    return report


def test_the_end_of_a_job_does_not_wait_for_the_disk_of_its_run_directory():
    """A stop and an exit are reported in a few seconds, with how each rank ended; the files are written when the disk answers again."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "run")
        node = world.node()
        run_sleeper(world, node, 1, 0)
        os.mkfifo(f"{world.folder}/go")
        world.server.start(2, 1, ["sh", "-c", f"read line < {world.folder}/go; exit 3"], slot_mask=2)
        world.server.go(2, 1)
        world.server.wait_phase(2, 1, "running")
        world.note_token(node, 2, 1)
        disk.freeze()
        watch = world.watch()
        world.server.stop(1, 1, signal.SIGTERM, grace_us=30_000_000)
        report = check_end(world, node, 1, watch)
        assert (report["cause"], report["ranks"][0]["state"], report["ranks"][0]["signal"]) == ("", "stopped", signal.SIGTERM), report
        watch = world.watch()
        write_file(f"{world.folder}/go", "\n")
        report = check_end(world, node, 2, watch)
        assert report["cause"] == "rank 0 exited with code 3" and report["failed_rank"] == 0, report
        check_alive(world, watch.begun)
        disk.thaw()
        for job in (1, 2):
            report = world.server.wait_report(job, 1, lambda r: not r["notice"], "the news that its end is stored")
            assert report["phase"] == "ended" and os.path.exists(f"{node.run_dir(job, 1)}/end.msg"), report
            world.forget(node, job, 1)


def test_a_shim_that_cannot_store_its_end_dies():
    """launcherd knows the end from the report, so it stays the same."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "run")
        node = world.node()
        run_sleeper(world, node, 1, 0)
        shim = node.shim(1, 1)["pid"]
        disk.freeze()
        world.server.stop(1, 1, signal.SIGTERM)
        first = check_end(world, node, 1, world.watch())
        os.kill(shim, signal.SIGKILL)
        wait_gone("the shim to die", shim, patience_s=LONG_S)
        disk.thaw()
        report = world.server.wait_report(1, 1, lambda r: r["revision"] != first["revision"], "launcherd's report")
        assert (report["ranks"], report["cause"]) == (first["ranks"], first["cause"]), report
        world.server.forget(1, 1)
        wait_for("the run directory to go", lambda: os.listdir(f"{node.folder}/node0/run") == [], LONG_S)


def test_launcherd_starts_while_the_disk_of_the_logs_is_frozen():
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "logs")
        node = world.node()
        pid = run_sleeper(world, node, 1, 0)
        node.kill()
        disk.freeze()
        begin_again(world, node, 1)
        world.server.stop(1, 1, signal.SIGKILL)
        wait_gone("the worker to be stopped through the new launcherd", pid, patience_s=LONG_S)
        world.server.wait_phase(1, 1, "ended")
        assert "(logs) does not answer: mkdir took longer than 10 s: no job can start here until it does" in node.log()
        disk.thaw()
        world.forget(node, 1, 1)


def test_the_kernel_has_no_memory_for_a_descriptor_to_watch():
    """libuv aborts then. The ranks go on, and the next launcherd, which systemd starts, finds them."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "epoll")
        node = world.node()
        pid = run_sleeper(world, node, 1, 0)
        disk.freeze(str(node.process.pid))
        world.server.cut()
        world.server.listen()
        assert node.wait() == -signal.SIGABRT, node.log()
        disk.thaw()
        assert is_alive(pid)
        begin_again(world, node, 1)
        assert is_alive(pid)
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_launcherd_does_not_start_without_its_state():
    """What cannot be read is not gone: it does not begin as if nothing ran here."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world, "run")
        node = world.node()
        pid = run_sleeper(world, node, 1, 0)
        node.kill()
        disk.freeze()
        assert node.begin().wait() == 1
        assert f"the disk of {node.folder}/node0 (state directory) does not answer: " in node.log(), node.log()
        assert is_alive(pid)
        disk.thaw()
        begin_again(world, node, 1)
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def run_side_by_side(tests):
    """Each waits for deadlines most of the time, and sets variables of its process."""
    runs = [subprocess.Popen([sys.executable, *sys.argv[:3], test.__name__.replace("test_", "", 1)], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True) for test in tests]
    failed = 0
    for run in runs:
        print(run.communicate()[0], end="", flush=True)
        failed += run.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    TESTS = [value for name, value in list(globals().items()) if name.startswith("test_")]
    sys.exit(run_tests(TESTS, sys.argv[3:]) if len(sys.argv) > 3 else run_side_by_side(TESTS))

#!/usr/bin/env python3
"""The disk with the logs hangs: the shim goes on. stuck_disk_test.py LAUNCHERD STUCK_DISK_LIBRARY [NAME...]

The library (tests/lib/stuck_disk.c) is preloaded into launcherd and its shims, where writes below logs/ hang on demand."""
import glob
import os
import re
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.case import write_file
from processes.runner import run_tests
from processes.waiting import Gate, LONG_S, wait_for, wait_gone
from processes.world import World

LAUNCHERD, LIBRARY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
LINE = 64  # bytes


class Disk:
    def __init__(self, world):
        self.path = f"{world.folder}/stuck"
        os.environ.update(LD_PRELOAD=LIBRARY, DDP_STUCK_FILE=self.path, ASAN_OPTIONS="verify_asan_link_order=0")

    def hang(self):
        write_file(self.path, "")

    def go_on(self):
        os.unlink(self.path)


def printer(world, lines, name=""):
    """Prints a few lines, then, when told to, that many numbered lines; makes a file when it has finished, and waits."""
    go, through = Gate(f"{world.folder}/go{name}"), f"{world.folder}/through{name}"
    return [sys.executable, "-c", f"""import fcntl, os, sys, time
text = "".join(str(i).ljust({LINE - 1}) + chr(10) for i in range({lines})).encode()
print("first".ljust({LINE - 1}), flush=True)
fcntl.flock(open({go.path!r}), fcntl.LOCK_SH)
for i in range(0, len(text), 65536):  # fast, since a disk may hang for only 3 s before output is lost
    os.write(1, text[i:i + 65536])
open({through!r}, "w").close()
time.sleep(1000)"""], go, through


def begin(world, lines=0, **more):
    node = world.node()
    argv, go, through = printer(world, lines)
    world.server.start(1, 1, argv, **more)
    world.server.go(1, 1)
    pid = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
    world.note_token(node, 1, 1)
    wait_for("the first line", lambda: os.path.getsize(f"{node.log_dir(1)}/g1-rank0.log") == LINE, LONG_S)
    return node, pid, go, through


def wait_full(pid):
    """Waits until the program has printed as much as the queue and its pipe hold."""
    def printed():
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            return int(next(line.split()[1] for line in file if line.startswith("wchar:"))) >= 4 << 20
    wait_for("the queue to fill", printed, LONG_S)


def test_output_waits_then_is_lost_and_counted():
    """A program that prints 32 MiB finishes soon although the disk accepts nothing, and every byte is kept or counted as lost."""
    lines = (32 << 20) // LINE
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world)
        node, _, go, through = begin(world, lines)
        disk.hang()
        go.open()
        wait_for("the program to print all", lambda: os.path.exists(through), LONG_S)
        disk.go_on()
        world.server.stop(1, 1, signal.SIGTERM)
        world.server.wait_phase(1, 1, "ended")
        with open(f"{node.log_dir(1)}/g1-rank0.log", "rb") as file:
            text = file.read()
        notes = re.findall(rb"\n\[\.\.\. (\d+) bytes lost: the disk of the log took nothing \.\.\.\]\n", text)
        kept = len(re.sub(rb"\n\[\.\.\. \d+ bytes lost: [^\n]*\n", b"", text))
        print(f"{kept} bytes kept, {notes} lost", flush=True)
        world.forget(node, 1, 1)
        shim_log = open(f"{node.log_dir(1)}/shim-g1.log", encoding="utf-8").read()
        lost = sum(map(int, notes))
        assert "the disk of the logs has taken nothing for 3 s" in shim_log, shim_log
        assert kept + lost == (lines + 1) * LINE and lost > 0 and kept >= 4 << 20, (kept, notes, shim_log)


def test_last_words_of_a_rank_are_told_although_the_queue_is_full():
    """They are on stderr, which the shim does not read while the queue for the disk is full. The other rank lives on: at the end all is read."""
    with World(LAUNCHERD) as world:
        disk = Disk(world)
        node, go = world.node(), Gate(f"{world.folder}/go")
        world.server.start(1, 1, [sys.executable, "-c", f"""import fcntl, os, sys, time
print("first".ljust({LINE - 1}), flush=True)
if os.environ["RANK"] == "1":
    time.sleep(1000)
fcntl.flock(open({go.path!r}), fcntl.LOCK_SH)
for _ in range(65):  # the queue takes 4 MiB, the pipe the rest
    os.write(1, b"x" * 65535 + b"{chr(92)}n")
os.write(2, b"the last words{chr(92)}n")
sys.exit(7)"""], nproc=2)
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "running")
        wait_for("the first line", lambda: os.path.getsize(f"{node.log_dir(1)}/g1-rank0.log") == LINE, LONG_S)
        disk.hang()
        go.open()
        report = world.server.wait_report(1, 1, lambda r: r["failed_rank"] == 0, "the failure")
        disk.go_on()
        assert (report["cause"], report["tail"].splitlines()[-1]) == ("rank 0 exited with code 7: the last words", "the last words"), report
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_a_short_hang_loses_nothing():
    lines = (16 << 20) // LINE
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world)
        node, pid, go, through = begin(world, lines)
        disk.hang()
        go.open()
        wait_full(pid)
        assert not os.path.exists(through), "it did not wait for the disk"
        disk.go_on()
        wait_for("the program to print all", lambda: os.path.exists(through), LONG_S)
        world.server.stop(1, 1, signal.SIGTERM)
        world.server.wait_phase(1, 1, "ended")
        with open(f"{node.log_dir(1)}/g1-rank0.log", "rb") as file:
            text = file.read()
        assert text == b"first".ljust(LINE - 1) + b"\n" + b"".join(b"%d" % i + b" " * (LINE - 1 - len(b"%d" % i)) + b"\n"
                                                                  for i in range(lines)), len(text)
        world.forget(node, 1, 1)


def test_cancel():
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world)
        node, pid, go, _ = begin(world, 1 << 20)
        disk.hang()
        go.open()
        wait_full(pid)
        watch = world.watch()
        world.server.stop(1, 1, signal.SIGKILL)
        wait_gone("its worker to go", pid, patience_s=LONG_S)
        report = world.server.wait_phase(1, 1, "ended")
        watch.check("the end after the stop")
        assert report["ranks"][0]["state"] == "stopped", report
        assert "killed" not in report["cause"], report  # launcherd has not killed it as a stuck shim
        disk.go_on()
        world.forget(node, 1, 1)


def test_lease_and_a_death():
    """With the disk hanging, the lease of one job ends, and a worker of the other job dies; its error file cannot be read then."""
    with World(LAUNCHERD, gated=True, lease_us=8_000_000) as world:
        disk = Disk(world)
        node, pid, go, _ = begin(world, 1 << 20)
        argv, other_go, _ = printer(world, 1 << 20, "-other")
        world.server.start(2, 1, argv, slot_mask=2)
        world.server.go(2, 1)
        other = world.server.wait_phase(2, 1, "running")["ranks"][0]["pid"]
        disk.hang()
        go.open()
        other_go.open()
        wait_full(pid)
        wait_full(other)
        os.kill(other, signal.SIGSEGV)
        report = world.server.wait_report(2, 1, lambda r: r["failed_rank"] == 0, "the death of its worker")
        assert report["cause"].startswith("rank 0 was killed by signal 11"), report
        world.server.cut()
        wait_gone("the end of the lease", pid, patience_s=LONG_S)
        world.server.listen()
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "cut off from the server for longer than the lease (8 s)", report
        disk.go_on()
        world.forget(node, 1, 1)
        world.forget(node, 2, 1)


def test_a_shim_ends_although_its_disk_never_goes_on():
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world)
        node, _, go, _ = begin(world, 1 << 20)
        disk.hang()
        go.open()
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)
        assert glob.glob(f"{node.log_dir(1)}/g1-rank0.log"), "the log is gone"


def test_logs_that_cannot_be_read_hold_up_nothing_else():
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world)
        node = world.node(extra=("--allow-root", "--log-dir", f"{world.folder}/logs/read"))
        world.server.run(1, ["echo", "text"], nproc=3)
        world.server.start(2, 1, ["true"])
        world.server.wait_phase(2, 1, "ready")
        disk.hang()
        for rank in range(3):  # more requests than launcherd has threads for them
            world.server.send("log_read", what="output", request_id=77 + rank, job_id=1, generation=1, rank=rank, offset=0, tail_lines=0,
                              bytes_max=100, wait_us=30_000_000, submitted_ms=0)
        world.server.go(2, 1)
        assert world.server.wait_phase(2, 1, "ended")["failed_rank"] == -1
        since = world.server.mark()
        world.server.wait_for("beat", since=since, what="a beat")
        disk.go_on()
        for rank in range(3):
            answer = world.server.wait_for("log_data", lambda m, rank=rank: m["request_id"] == 77 + rank)
            assert answer["is_final"] and not answer["problem"], answer
        world.forget(node, 1, 1)
        world.forget(node, 2, 1)


def test_looking_at_a_rank_hangs():
    """The user database hangs: logs can be read meanwhile, the lookup is given up, and the next lookup works."""
    with World(LAUNCHERD, gated=True) as world:
        disk = Disk(world)
        node, _, go, through = begin(world)
        disk.hang()
        asked = threading.Thread(target=lambda: answers.append(world.server.log_read(1, 1, 0, what="stack")))
        answers = []
        asked.start()
        assert len(world.server.log_read(1, 1, 0)["bytes"]) == LINE and not answers
        asked.join(60)
        assert answers[0]["problem"].endswith("rank 0: looking at it took too long: something hangs there"), answers
        disk.go_on()
        wait_for("a look that is not too slow", lambda: world.server.log_read(1, 1, 0, what="stack")["bytes"].startswith(b'{"schema":"ddp.stack.v1"'), LONG_S)
        go.open()
        wait_for("the program to print all", lambda: os.path.exists(through), LONG_S)
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[3:]))

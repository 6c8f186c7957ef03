"""The disk with the checkpoints is slower than the limits of the ranks. usage: slow_disk_test.py BUILD STUCK_DISK_LIBRARY [NAME...]

The library (tests/lib/stuck_disk.c) lets rank 0's disk hang while a file exists. DDP_GLOO_TIMEOUT shortens the limit of a collective.
saving: rank 0 waits for its checkpoint for longer than that limit; the other rank waits for it, and training goes on.
loading: the same while rank 0 reads the checkpoint to resume from.
lost: the other rank is killed while a checkpoint is being written: rank 0 ends once it is written, later than its limit of 8 s for the end.
stopped: the same after SIGTERM."""

import glob
import os
import signal
import sys
import tempfile

from shim_test import MODEL, PATIENCE_S, Ranks
from processes.waiting import let_pass, Stopwatch, wait_for
from processes.wire import Closed

LIMIT_S = 6  # of a collective; the ranks also have it to connect
END_LIMIT_S = 8  # of ddp-worker's end


class Disk:
    """The disk of rank 0: its folder is node0/<where>."""

    def __init__(self, library, folder, where):
        self.stuck = os.path.join(folder, "stuck")
        self.where = where
        self.ckpt = os.path.join(folder, "node0", where)
        self.environ = {"LD_PRELOAD": library, "DDP_STUCK_FILE": self.stuck, "DDP_GLOO_TIMEOUT": str(LIMIT_S)}
        self.args = [*MODEL, "--checkpoint-dir", where, "--checkpoint-keep", "1000"]
        os.makedirs(self.ckpt)

    def hang(self):
        with open(self.stuck, "wb"):
            pass

    def go_on(self):
        os.remove(self.stuck)

    def steps(self):
        return sorted(int(name.split("-")[-1].split(".")[0]) for name in glob.glob(f"{self.ckpt}/step-*.safetensors"))

    def await_writing(self):
        """Until a checkpoint is being written, which hangs. Returns the steps that are committed."""
        def look():
            before = self.steps()
            let_pass(1)
            return [before] if glob.glob(f"{self.ckpt}/*.tmp*") and before == self.steps() else None
        return wait_for(lambda: f"a checkpoint that is being written: {os.listdir(self.ckpt)}", look, PATIENCE_S)[0]


def await_wait(ranks, what):
    """Rank 1 waits for rank 0, and after more than its limit both are there."""
    try:
        ranks.listen(f"rank 1 in {what}", lambda rank, message: rank == 1 and message.get("doing", "").find(what) >= 0)
        watch = Stopwatch()
        ranks.listen("nothing", lambda rank, message: watch.passed_s > 2 * LIMIT_S + 2)
    except Closed as error:
        raise AssertionError(f"a rank has ended: {ranks.said()}{ranks.said(1)}") from error
    assert ranks.newest[1].get("in_collective", False), ranks.newest
    assert [process.poll() for process in ranks.processes] == [None, None], (ranks.said(), ranks.said(1))


def check_saving(build, folder, library):
    disk = Disk(library, folder, "logs")
    with Ranks(build, folder, [*disk.args, "--checkpoint-every", "5"], more=disk.environ) as ranks:
        ranks.await_step(6)
        disk.hang()
        before = disk.await_writing()
        await_wait(ranks, "all-reduce number")
        step = ranks.newest[0]["step"]
        disk.go_on()
        ranks.await_step(step + 10)
        assert len(disk.steps()) > len(before), (before, disk.steps())
        ranks.stop()
    print(f"ok saving: rank 1 waited at step {step}")


def check_loading(build, folder, library):
    disk = Disk(library, folder, "logs/read")
    with Ranks(build, folder, disk.args, more=disk.environ) as ranks:
        ranks.await_step(6)
        ranks.stop()
    disk.hang()
    with Ranks(build, folder, [*disk.args, "--resume", "auto"], generation=2, more=disk.environ) as ranks:
        await_wait(ranks, " number ")
        disk.go_on()
        ranks.await_step(max(disk.steps()) + 1)
        assert "resumed at step" in ranks.said(), ranks.said()
        ranks.stop()
    print("ok loading")


def check_end(build, folder, library, number, code):
    disk = Disk(library, folder, "logs")
    with Ranks(build, folder, disk.args, more=disk.environ) as ranks:
        ranks.await_step(6)
        disk.hang()
        ranks.processes[0].send_signal(signal.SIGUSR1)  # unlike the others, training does not wait for it
        before = disk.await_writing()
        ranks.processes[1 if number == signal.SIGKILL else 0].send_signal(number)
        let_pass(END_LIMIT_S + 4)
        assert ranks.processes[0].poll() is None, (ranks.processes[0].returncode, ranks.said())
        if number == signal.SIGKILL:  # a server that learns of the loss stops this rank
            ranks.processes[0].send_signal(signal.SIGTERM)
        disk.go_on()
        ended = ranks.processes[0].wait(PATIENCE_S)
        assert ended == code, (ended, ranks.said())
        after = disk.steps()
        assert after[:len(before)] == before and len(after) > len(before), (before, os.listdir(disk.ckpt))
        assert not glob.glob(f"{disk.ckpt}/*.tmp*"), os.listdir(disk.ckpt)
    print(f"ok end after {signal.Signals(number).name}: {before[-1:]}, then {after[len(before):]}")


def check_lost(build, folder, library):
    check_end(build, folder, library, signal.SIGKILL, 1)


def check_stopped(build, folder, library):
    check_end(build, folder, library, signal.SIGTERM, 128 + signal.SIGTERM)


def main():
    build, library, *names = sys.argv[1:]
    for check in (check_saving, check_loading, check_lost, check_stopped):
        if names and check.__name__[len("check_"):] not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="ddp-slow-disk-") as folder:
            check(os.path.abspath(build), folder, os.path.abspath(library))
    return 0


if __name__ == "__main__":
    sys.exit(main())

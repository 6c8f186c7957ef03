#!/usr/bin/env python3
"""Logs that the disk refuses: what is lost is said, by `run` and by `logs`, and a staged directory that does not fit is a failure of its node.

It runs in a namespace of its own (tests/lib/own_namespace.py), with small disks. Without root it is skipped."""
import fcntl
import os
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import own_namespace  # noqa: E402  pylint: disable=wrong-import-position

own_namespace.enter()

from processes.case import BUILD, Case, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for
from full_disk import FullDisk  # pylint: disable=wrong-import-position

LOST = "[... all output, 12 bytes, is lost: it could not be written to the disk of the logs ...]"


class Small(Cluster):
    """One node whose logs are on that disk."""

    def __init__(self, case, disk):
        super().__init__(case, nodes=0)
        self.start_node("node0", 4, "--log-dir", disk)


def fill(disk):
    with open(f"{disk}/filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"f" * 4096)
        except OSError:
            pass


def a_log_that_is_lost_as_a_whole_is_told():
    with Case() as case, FullDisk(case.dir, 256) as disk, Small(case, disk) as cluster:
        fill(disk)
        done = cluster.ctl("run", "--", "echo", "hello world")
        equal((done.returncode, done.stderr.count(LOST) + done.stdout.count(LOST)), (0, 1), done.stdout + done.stderr)
        for words in ((), ("--tail", "1")):
            done = cluster.ctl("logs", "@last", *words)
            equal((done.returncode, done.stderr.count(LOST) + done.stdout.count(LOST)), (0, 1), done.stdout + done.stderr)
        os.unlink(f"{disk}/filler")
        equal(cluster.ctl("run", "--", "echo", "hello again").stdout, "hello again\n")


def a_private_run_goes_on_when_its_own_logs_fill_the_disk():
    """Its server and its node keep their state on that disk, too. The job is restarted while the disk is full."""
    code = ("import os,sys\nfor i in range(160): sys.stdout.write(('x' * 99 + chr(10)) * 1000)\nsys.stdout.flush()\n"
            "sys.exit(3 if os.environ['RANK'] == '0' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)")
    with Case() as case, FullDisk(case.dir, 16 << 10) as disk:
        done = case.ctl("run", "--standalone", "--max-restarts", "1", "--nproc-per-node", "2", "--", "python3", "-c", code, TMPDIR=disk)
        equal((done.returncode, "ended unexpectedly" in done.stderr), (0, False), done.stderr[-3000:])
        assert re.search(r"bytes lost: the disk of the log was full", done.stdout + done.stderr), done.stderr[-3000:]
        equal(os.listdir(disk), [])


def logs_that_cannot_be_read_are_a_failure():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--", "echo", "hello")
        equal(cluster.ctl("wait", job).returncode, 0)
        equal((cluster.ctl("logs", job).returncode, cluster.ctl("logs", job).stdout), (0, "hello\n"))
        logs = f"{case.dir}/node0/logs"
        os.rename(logs, f"{logs}.away")
        done = cluster.ctl("logs", job)
        assert done.returncode == 1 and "no log could be read" in done.stderr, done


def a_staged_directory_that_does_not_fit_is_a_failure_of_the_node():
    with Case() as case, FullDisk(case.dir, 2048) as disk, Small(case, disk) as cluster:
        os.mkdir(f"{case.dir}/project")
        with open(f"{case.dir}/project/data", "wb") as file:
            file.write(random.Random(1).randbytes(3 << 20))
        done = cluster.ctl("run", "--stage", f"{case.dir}/project", "--max-restarts", "0", "--", "true")
        assert done.returncode != 0 and "the staged directory: Write failed: No space left on device" in done.stderr, done
        status = cluster.status("@last")
        equal((status["state"], status["exit"]["code"]), ("failed", 125), status)


class FailingDisk:
    """An ext2 that takes every write(), and loses what its device, a file on a small tmpfs, has no room for. None if it cannot be made."""

    def __init__(self, case, name="failing"):
        self.disk, self.folder, self.is_mounted = FullDisk(case.dir, 1024), f"{case.dir}/{name}", False

    def __enter__(self):
        below = self.disk.__enter__()
        os.mkdir(self.folder)
        if below is not None and shutil.which("mkfs.ext2", path="/usr/sbin:/sbin"):
            with open(f"{below}/image", "wb") as image:
                image.truncate(64 << 20)
            self.is_mounted = all(subprocess.run(words, capture_output=True, check=False).returncode == 0 for words in (
                ["/usr/sbin/mkfs.ext2", "-q", "-F", f"{below}/image"], ["mount", "-o", "loop", f"{below}/image", self.folder]))
        return self.folder if self.is_mounted else None

    def __exit__(self, *rest):
        if self.is_mounted:
            subprocess.run(["umount", self.folder], check=True)
        self.disk.__exit__(*rest)


def loses(name, why):
    """The disk of that name in the folder of the test is the failing one: of the logs, or of the node's state."""
    with Case() as case, FailingDisk(case, name) as disk:
        if disk is None:
            print("skipped: no ext2 on a loop device here", flush=True)
            return
        logs = f"{case.dir}/logs" if name == "node0" else disk
        with Small(case, logs) as cluster:
            os.mkdir(f"{case.dir}/project")
            with open(f"{case.dir}/project/data", "wb") as file:
                file.write(random.Random(2).randbytes(3 << 20))
            done = cluster.ctl("run", "--stage", f"{case.dir}/project", "--max-restarts", "0", "--", "true")
            assert done.returncode != 0 and re.search(why, done.stderr), done


def a_disk_that_loses_a_staged_directory_after_the_writes_is_noticed():
    loses("failing", "the staged directory cannot be written: (Input/output error|No space left on device)")
    loses("node0", "cannot get the staged directory: (its bytes cannot be written: Input/output error|the disk of the state directory is full)")


FREEZE, THAW = 0xC0045877, 0xC0045878  # linux/fs.h: FIFREEZE, FITHAW


def states(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as file:
                found.append(file.read().rsplit(")", 1)[1].split()[0])
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            pass
    return found


def a_killed_launcherd_that_hangs_in_the_kernel_is_named():
    """Its lock stays until the disk answers: nobody can stop it."""
    with Case() as case, FailingDisk(case) as disk:
        folder = os.open(disk, os.O_RDONLY) if disk else -1
        try:
            if folder >= 0:
                fcntl.ioctl(folder, FREEZE, 0)
        except OSError:
            os.close(folder)
            folder = -1
        if folder < 0:
            print("skipped: no disk that can be frozen here", flush=True)
            return
        words = [f"{BUILD}/launcherd/launcherd", "--server", f"unix:{case.dir}/none", "--name", "n", "--slots", "1", "--allow-root",
                 "--keep-trying", "--state-dir", f"{case.dir}/state"]
        hanging = subprocess.Popen([*words, "--log-dir", f"{disk}/logs"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            wait_for("a thread that hangs", lambda: "D" in states(hanging.pid) and os.path.exists(f"{case.dir}/state/lock")
                       and os.path.getsize(f"{case.dir}/state/lock"))
            hanging.kill()
            wait_for("its first thread to end", lambda: states(hanging.pid)[0] in "ZX")
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode != 0 and re.search(
                rf"launcherd, pid {hanging.pid}, holds the state directory {case.dir}/state: it was killed, but its thread \d+ hangs in the "
                r"kernel \(state D\): make the disk answer that it waits for, or restart the machine", done.stderr), done.stderr
        finally:
            fcntl.ioctl(folder, THAW, 0)
            os.close(folder)
            hanging.kill()
            hanging.wait()


if __name__ == "__main__":
    run_and_exit([a_log_that_is_lost_as_a_whole_is_told, a_private_run_goes_on_when_its_own_logs_fill_the_disk,
               logs_that_cannot_be_read_are_a_failure,
               a_staged_directory_that_does_not_fit_is_a_failure_of_the_node,
               a_disk_that_loses_a_staged_directory_after_the_writes_is_noticed,
               a_killed_launcherd_that_hangs_in_the_kernel_is_named])

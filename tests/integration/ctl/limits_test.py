#!/usr/bin/env python3
"""Limits of the process and small disks: each program says which one it has met."""
import os
import re
import resource
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, clean_environ
from processes.runner import equal, run_and_exit
from full_disk import FullDisk

PROGRAMS = (("ddpctl", ["--server", "localhost:1", "nodes"]), ("rendezvous", []), ("launcherd", ["--server", "unix:/none"]), ("worker", []))


def no_threads_are_left():
    """The limit of the user's processes is met: libuv would abort without a word."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))  # this process alone

    with Case() as case:
        os.chmod(case.dir, 0o777)
        other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}  # root has no such limit
        for folder, words in PROGRAMS:
            program = "ddp-worker" if folder == "worker" else folder
            done = subprocess.run([os.path.join(BUILD, folder, program), *words], env=clean_environ(HOME=case.dir), capture_output=True, text=True,
                                  preexec_fn=limit, timeout=60, check=False, **other)
            if "Permission denied" in done.stderr and not os.access(BUILD, os.X_OK):
                print("skipped: another user cannot run what was built")
                return
            assert done.returncode in (1, 5, 125) and f"{program}: " in done.stderr, done
            if folder == "worker":  # it has no libuv
                assert "no thread for signals: Resource temporarily unavailable" in done.stderr, done
            else:
                assert " threads and cannot start them: " in done.stderr and "(ulimit -u, now 1)" in done.stderr, done


def a_run_may_write_no_files():
    """ulimit -f 0: it says so, and leaves no folder."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    with Case() as case:
        done = subprocess.run([os.path.join(BUILD, "ddpctl", "ddpctl"), "run", "--standalone", "--", "true"], env=case.environ(), capture_output=True,
                              text=True, preexec_fn=limit, timeout=60, check=False)
        assert done.returncode == 125 and "File too large" in done.stderr, done
        equal(os.listdir(case.temp), [])


def a_small_stack_is_raised_or_refused():
    """ulimit -s 64, as old scripts set it for many threads: the programs raise it where they may."""
    def limited(words, hard):
        return subprocess.run(words, env=case.environ(), capture_output=True, text=True, timeout=60, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (65536, hard)))

    with Case() as case:
        done = limited([os.path.join(BUILD, "ddpctl", "ddpctl"), "run", "--standalone", "--", "true"], resource.getrlimit(resource.RLIMIT_STACK)[1])
        equal(done.returncode, 0, done.stderr)
        for folder, _ in PROGRAMS:
            done = limited([os.path.join(BUILD, folder, "ddp-worker" if folder == "worker" else folder), "--version"], 65536)
            equal((done.returncode, done.stderr), (1, "the stack may have 64 KiB here (ulimit -s, and its hard limit), and this program needs 256: raise the limit\n"))


def a_run_has_no_room_for_its_state():
    with Case() as case, FullDisk(case.dir, 100) as disk:
        if disk is None:
            print("skipped: mounting a tmpfs is not allowed here")
            return
        done = case.ctl("run", "--standalone", "--", "true", TMPDIR=disk)
        assert done.returncode == 125 and re.search(rf"the disk of {disk}/ddp-\w+ is full \(\d+ KiB are free\): make room, or give another folder with TMPDIR",
                                                   done.stderr), done.stderr
        equal(os.listdir(disk), [])


if __name__ == "__main__":
    run_and_exit([no_threads_are_left, a_run_may_write_no_files, a_small_stack_is_raised_or_refused, a_run_has_no_room_for_its_state])

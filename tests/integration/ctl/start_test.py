#!/usr/bin/env python3
"""What keeps the start of a private run short, without a clock: which processes start, and which wait for which. Our daemons are started through
scripts that note their calls or wait for something, so a wait in the other direction would never end."""
import ctypes
import glob
import os
import re
import shutil
import signal
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, DDPCTL
from processes.proc import command_of
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, PATIENCE_S, wait_for

PROGRAMS = {name: os.path.join(os.path.abspath(BUILD), name, name) for name in ("rendezvous", "launcherd")}


def wrap(case, **before):
    """A --bindir in which each program is a script that runs these lines first, and notes its arguments."""
    folder = f"{case.dir}/bin"
    os.mkdir(folder)
    for name, program in PROGRAMS.items():
        with open(f"{folder}/{name}", "w", encoding="ascii") as script:
            script.write(f'#!/bin/sh\necho "$*" >> {case.dir}/{name}.calls\n{before.get(name, ":")}\nexec {program} "$@"\n')
            os.fchmod(script.fileno(), 0o755)
    return folder


def read(path):
    """Its text; none if it is not there yet."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def calls(case, name):
    return read(f"{case.dir}/{name}.calls").splitlines()


def run_true(case, folder, *more):
    done = case.ctl("run", "--standalone", "--bindir", folder, *more, "--", "/bin/true")
    equal((done.returncode, done.stdout), (0, ""), done.stderr)


def run_true_held(case, gate, what, condition, **before):
    """The job runs only after the gate, which opens when the condition is true."""
    run = case.start("run", "--standalone", "--bindir", wrap(case, **before), "--", "/bin/true")
    wait_for(what, condition)
    assert run.poll() is None, "the job is over"
    gate.open()
    out, err = run.communicate(timeout=PATIENCE_S)
    equal((run.returncode, out), (0, ""), err)


def has_driver():
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        return True
    except OSError:
        return False


def nobody_asks_for_gpus_without_a_driver():
    if has_driver():
        print("skipped: there is a driver of NVIDIA")
        return
    with Case() as case:
        run_true(case, wrap(case))
        equal([call for call in calls(case, "launcherd") if "--list-gpus" in call], [])
        equal((len(calls(case, "launcherd")), len(calls(case, "rendezvous"))), (1, 1))


def nodes_start_while_the_server_starts():
    with Case() as case:
        gate = Gate(f"{case.dir}/gate")
        run_true_held(case, gate, "the start of launcherd", lambda: any("--server" in call for call in calls(case, "launcherd")), rendezvous=gate.wait)


def a_job_is_submitted_before_its_node_is_ready():
    with Case() as case:
        gate = Gate(f"{case.dir}/gate")
        run_true_held(case, gate, "the submit", lambda: any("was submitted" in read(log) for log in glob.glob(f"{case.temp}/ddp-*/rendezvous.log")),
                      launcherd=f'case "$*" in *--server*) {gate.wait};; esac')


def a_state_that_is_kept_is_cleared_first():
    """There the job that a killed run has left must be cancelled before a node can start it."""
    with Case() as case:
        check = f'case "$*" in *--server*) test -S {case.dir}/state/rendezvous.sock || touch {case.dir}/too-early;; esac'
        run_true(case, wrap(case, launcherd=check), "--state-dir", f"{case.dir}/state")
        assert not os.path.exists(f"{case.dir}/too-early")
        assert not os.path.exists(f"{case.dir}/state/rendezvous.sock")


def a_node_that_never_gets_ready_is_named():
    """Though the job was submitted meanwhile."""
    with Case(gated=True) as case:
        folder = wrap(case, launcherd='case "$*" in *--server*) exec sleep 600;; esac')
        done = case.ctl("run", "--standalone", "--bindir", folder, "--", "/bin/true")
        equal(done.returncode, 125, done.stderr)
        assert "node0 did not get ready within 20 s" in done.stderr, done.stderr


def servers(case):
    return [pid for pid in case.processes() if os.path.basename((command_of(pid) or [""])[0]) == "rendezvous"]


def the_server_s_socket_outlives_it():
    with Case() as case:
        gate = Gate(f"{case.dir}/gate")
        run = case.start("run", "--standalone", "--", "sh", "-c", f"echo up; {gate.wait}")
        equal(run.stdout.readline(), "up\n")
        server, = servers(case)
        os.kill(server, signal.SIGKILL)
        wait_for("the restart", lambda: set(servers(case)) - {server})
        gate.open()
        out, err = run.communicate(timeout=60)
        equal((out, run.returncode), ("", 0), err)
        assert "rendezvous ended unexpectedly" in err, err


def traced(case, folder, number):
    """The files that a node of a private run in `state` opens, it and its shim."""
    trace = f"{case.dir}/trace-{number}"
    with open(f"{folder}/launcherd", "w", encoding="ascii") as script:
        script.write(f'#!/bin/sh\nexec strace -D -f -qq -e trace=openat -o {trace} {PROGRAMS["launcherd"]} "$@"\n')
    run_true(case, folder, "--state-dir", f"{case.dir}/state")
    with open(trace, encoding="utf-8") as file:
        return file.read()


def only_a_state_that_was_there_makes_a_node_look_at_all_processes():
    """Shims may run that it does not list. And a controller of cgroups that is passed on, or is none, is not passed on again: for each write the
    kernel visits all groups."""
    if shutil.which("strace") is None:
        print("skipped: no strace here")
        return
    with Case() as case:
        folder = wrap(case)
        new, known = traced(case, folder, 1), traced(case, folder, 2)
        equal(re.findall(r'"/proc/\d+/cmdline"', new), [])
        assert re.search(r'"/proc/\d+/cmdline"', known)
        if os.geteuid() == 0:
            equal(re.findall(r'cgroup\.subtree_control", O_WRONLY', known), [])


def groups_folder():
    """Where root's launcherds make the groups of jobs; None: they cannot."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [line.split()[4] for line in file if " - cgroup2 " in line]
    folder = f"{mounts[0]}/ddp" if mounts else None
    return folder if folder and os.geteuid() == 0 and os.path.isdir(folder) and os.access(folder, os.W_OK) else None


def what_a_killed_start_has_left_is_swept_while_a_job_runs():
    with Case() as case:
        run_true(case, wrap(case))
        folder = groups_folder()
        if folder is None:
            print("skipped: no cgroups of ours here")
            return
        ended = os.fork()
        if ended == 0:
            os._exit(0)
        os.waitpid(ended, 0)
        group = f"{folder}/try-{ended}-1f"
        os.mkdir(group)
        os.utime(group, (1, 1))
        try:
            gate = Gate(f"{case.dir}/gate")
            run = case.start("run", "--standalone", "--", "sh", "-c", gate.wait)
            wait_for("the group to go", lambda: not os.path.exists(group))
            assert run.poll() is None, "the job is over"
            gate.open()
            error = run.communicate(timeout=60)[1]
            equal(run.returncode, 0, error)
        finally:
            if os.path.exists(group):
                os.rmdir(group)


def thread_local_bytes(path):
    """The size of PT_TLS (elf(5)): every thread gets a copy, which is written to when it starts."""
    with open(path, "rb") as file:
        head = file.read(64)
        equal(head[:5], b"\x7fELF\x02", path)
        at, = struct.unpack_from("<Q", head, 32)
        entry_bytes, count = struct.unpack_from("<HH", head, 54)
        file.seek(at)
        table = file.read(entry_bytes * count)
    segments = [struct.unpack_from("<IIQQQQQQ", table, entry_bytes * i) for i in range(count)]
    return sum(segment[6] for segment in segments if segment[0] == 7)


def threads_carry_no_large_buffer():
    for path in (DDPCTL, *PROGRAMS.values()):
        assert thread_local_bytes(path) <= 1024, path


if __name__ == "__main__":
    run_and_exit([nobody_asks_for_gpus_without_a_driver, nodes_start_while_the_server_starts, a_job_is_submitted_before_its_node_is_ready,
               a_state_that_is_kept_is_cleared_first, a_node_that_never_gets_ready_is_named, the_server_s_socket_outlives_it,
               only_a_state_that_was_there_makes_a_node_look_at_all_processes, what_a_killed_start_has_left_is_swept_while_a_job_runs,
               threads_carry_no_large_buffer])

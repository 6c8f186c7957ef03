#!/usr/bin/env python3
"""Signals to an attached run: what reaches the ranks, what ddpctl prints, and how the job ends."""
import contextlib
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, Cluster, DDPCTL
from processes.proc import command_of
from processes.runner import equal, run_and_exit

# Prints the signals that it gets; `last`: the signal at which it exits with 0.
# A signal may come while the line before is written, which print does not bear.
SAYS = """import os, signal, sys, time
last = sys.argv[1]
def say(text):
    os.write(1, text.encode() + b"\\n")
def said(text, name):
    say(text)
    if name == last:
        time.sleep(1)
        say("written")
        sys.exit(0)
for name in ("USR1", "QUIT", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), lambda *_, name=name: said(name, name))
is_up = False
while True:
    try:
        if not is_up:
            is_up = True
            say("up")
        while True:
            signal.pause()
    except KeyboardInterrupt:
        said("KeyboardInterrupt", "INT")
"""
WORKER = os.path.join(os.path.abspath(BUILD), "worker", "ddp-worker")
ALONE = ("run", "--standalone", "--max-restarts", "0", "--no-progress")


def begin(case, *args, last="none", **more):
    """A run whose rank is up."""
    process = subprocess.Popen([DDPCTL, *args, "--", "python3", "-c", SAYS, last], env=case.environ(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    equal(process.stdout.readline(), "up\n")
    return process


def send(process, number, answer):
    """The signal goes to ddpctl, and the rank answers."""
    process.send_signal(number)
    equal(process.stdout.readline(), answer + "\n")


def end(process, code, *says):
    errors = process.communicate(timeout=60)[1]
    equal(process.returncode, code, errors)
    at = 0
    for text in says:
        at = errors.find(text, at)
        assert at >= 0, f"{text!r} is not said in this order: {errors}"
    return errors


def each_ctrl_c_goes_a_step_further():
    with Case() as case:
        process = begin(case, *ALONE)
        send(process, signal.SIGINT, "KeyboardInterrupt")
        send(process, signal.SIGINT, "TERM")
        process.send_signal(signal.SIGINT)
        end(process, 130, "-- SIGINT to every rank: the job has its grace to end; Ctrl-C again sends SIGTERM --",
            "-- SIGTERM to every rank: the job has its grace to end; Ctrl-C again kills it --", "-- killing the job")


def ctrl_backslash_goes_to_the_ranks_first():
    with Case() as case:
        process = begin(case, *ALONE, last="TERM", preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_DFL))
        send(process, signal.SIGQUIT, "QUIT")
        send(process, signal.SIGQUIT, "TERM")
        end(process, 131, "-- SIGQUIT to every rank: the job has its grace to end; Ctrl-C again sends SIGTERM --")


def a_job_that_ends_well_after_ctrl_c_is_cancelled():
    with Case() as case, Cluster(case) as cluster:
        process = begin(case, "--server", cluster.address, "run", "--max-restarts", "3", last="INT")
        send(process, signal.SIGINT, "KeyboardInterrupt")
        equal(process.stdout.readline(), "written\n")
        end(process, 130)
        job = cluster.status("@last")
        equal((job["state"], job["generation"]), ("cancelled", 1))


def the_first_signal_can_be_chosen():
    with Case() as case:
        process = begin(case, *ALONE, "--signal", "USR1", last="TERM")
        send(process, signal.SIGINT, "USR1")
        send(process, signal.SIGINT, "TERM")
        end(process, 130, "-- SIGUSR1 to every rank", "-- SIGTERM to every rank")
        process = begin(case, *ALONE, "--signal", "TERM")
        send(process, signal.SIGINT, "TERM")
        process.send_signal(signal.SIGINT)
        end(process, 130, "-- SIGTERM to every rank", "-- killing the job")
        done = case.ctl(*ALONE, "--signal", "NONE", "--", "true")
        equal(done.returncode, 125, done.stderr)
        assert "NONE" in done.stderr, done.stderr


def sigterm_leaves_the_grace():
    with Case() as case:
        process = begin(case, *ALONE, last="TERM")
        send(process, signal.SIGTERM, "TERM")
        equal(process.stdout.readline(), "written\n")
        end(process, 143, "-- SIGTERM to every rank: the job has its grace to end; Ctrl-C again kills it --")


def the_grace_ends():
    with Case() as case:
        process = begin(case, *ALONE, "--grace", "3s")  # time for the rank to answer
        send(process, signal.SIGTERM, "TERM")
        end(process, 143)


def a_hangup_stops_a_standalone_run():
    with Case() as case:
        process = begin(case, *ALONE, last="TERM")
        send(process, signal.SIGHUP, "TERM")
        equal(process.stdout.readline(), "written\n")
        end(process, 129)


def below(pid):
    """All descendants of a process. A child is that of the thread that has made it."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    return found + [one for child in found for one in below(child)]


def nohup_survives_a_hangup():
    """ddpctl, its daemons and the shim get SIGHUP. The rank has a session of its own, so the hangup of the terminal does not reach it."""
    with Case() as case:
        process = begin(case, *ALONE, last="USR1", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        pids = below(process.pid)
        ranks = [pid for pid in pids if SAYS in command_of(pid)]
        ours = [pid for pid in pids if pid not in ranks]
        equal((len(ranks), sum("--shim" in command_of(pid) for pid in ours)), (1, 1))
        assert len(ours) >= 3, ours  # rendezvous and launcherd, too
        for pid in [process.pid, *ours]:
            os.kill(pid, signal.SIGHUP)
        os.kill(ranks[0], signal.SIGUSR1)
        equal(process.stdout.readline(), "USR1\n")
        equal(process.stdout.readline(), "written\n")
        errors = end(process, 0)
        assert "started again" not in errors and "to every rank" not in errors, errors


def ctrl_c_lets_ddp_worker_write_its_checkpoint():
    with Case() as case:
        folder = f"{case.dir}/checkpoints"
        process = case.start(*ALONE, "-n", "2", "--", WORKER, "-a", "convnet", "--device", "cpu", "--dummy", "-b", "4", "--lr", "0.01",
                             "--epochs", "100", "-p", "1", "--checkpoint-every", "1000000", "--checkpoint-dir", folder)
        for line in process.stdout:
            if "oss" in line:
                break
        process.send_signal(signal.SIGINT)
        end(process, 130)
        assert "latest.safetensors" in os.listdir(folder), os.listdir(folder)


if __name__ == "__main__":
    run_and_exit([each_ctrl_c_goes_a_step_further, ctrl_backslash_goes_to_the_ranks_first, a_job_that_ends_well_after_ctrl_c_is_cancelled, the_first_signal_can_be_chosen,
               sigterm_leaves_the_grace, the_grace_ends, a_hangup_stops_a_standalone_run, nohup_survives_a_hangup,
               ctrl_c_lets_ddp_worker_write_its_checkpoint])

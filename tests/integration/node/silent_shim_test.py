#!/usr/bin/env python3
"""A shim is stopped while its ranks run: it is told of, and a stop ends its ranks in its place. silent_shim_test.py LAUNCHERD [NAME...]"""
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.proc import is_alive, state_of
from processes.runner import run_tests
from processes.waiting import idle_words, LONG_S, wait_for
from processes.world import World

LAUNCHERD = os.path.abspath(sys.argv[1])
STOPPED_S = 10.0  # a stop of ranks that obey it: launcherd asks the shim for 4 s first


def begin(world, argv):
    node = world.node()
    world.server.start(1, 1, argv)
    world.server.go(1, 1)
    pid = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
    shim = world.note_token(node, 1, 1)["pid"]
    return node, pid, shim


def stop_process(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_for("the process to stop", lambda: state_of(pid) == "T", LONG_S)


def wait_told(world, shim):
    beat = world.server.wait_for("beat", lambda m: m["silent"], what="a beat that tells of it")
    told = beat["silent"][0]
    assert (told["job_id"], told["generation"], told["pid"], told["state"]) == (1, 1, shim, "T (stopped)"), told
    return told


def test_it_is_told_of_and_a_stop_ends_its_ranks():
    """The ranks get the signal of the stop, and with it the shim ends: no grace is waited for, nor another process touched."""
    with World(LAUNCHERD, gated=True) as world:
        path = f"{world.folder}/term"
        node, pid, shim = begin(world, ["sh", "-c", f"trap 'echo > {path}; exit 0' TERM; {idle_words(f'{world.folder}/idle')}"])
        stop_process(shim)
        wait_told(world, shim)
        assert is_alive(pid)
        lines = re.findall(r"job 1, generation 1: its shim, pid (\d+), does not answer since \d+ s: state T \(stopped\)", node.log())
        assert lines == [str(shim)], node.log()
        watch = world.watch()
        world.server.stop(1, 1, signal.SIGTERM, grace_us=60_000_000)
        report = world.server.wait_phase(1, 1, "ended")
        watch.check("the end after the stop", 0, STOPPED_S)
        assert os.path.exists(path), report
        assert "it does not answer, and the job is to stop" in report["cause"], report
        assert not is_alive(shim)
        world.forget(node, 1, 1)


def test_it_answers_again():
    with World(LAUNCHERD, gated=True) as world:
        node, _, shim = begin(world, ["sleep", "1000"])
        stop_process(shim)
        wait_told(world, shim)
        since = world.server.mark()
        os.kill(shim, signal.SIGCONT)
        world.server.wait_for("beat", lambda m: not m["silent"], since=since)
        assert "its shim answers again" in node.log()
        world.server.stop(1, 1, signal.SIGTERM, grace_us=30_000_000)
        report = world.server.wait_phase(1, 1, "ended")
        assert (report["ranks"][0]["state"], report["cause"]) == ("stopped", ""), report
        world.forget(node, 1, 1)


def test_a_stop_of_one_that_has_just_been_stopped_takes_its_grace():
    """Nobody has missed it yet. A rank that ignores SIGTERM is killed with its shim when the grace is over."""
    with World(LAUNCHERD, gated=True) as world:
        node, pid, shim = begin(world, ["sh", "-c", "trap '' TERM; sleep 1000"])
        stop_process(shim)
        watch = world.watch()
        world.server.stop(1, 1, signal.SIGTERM, grace_us=6_000_000)
        world.server.wait_phase(1, 1, "ended")
        watch.check("the end after the stop", 6, 12)
        assert not is_alive(pid)
        world.forget(node, 1, 1)


def test_one_that_is_stopped_while_launcherd_is_away():
    """The next launcherd gets no hello from it, and knows none of its ranks: the end of the grace ends them."""
    with World(LAUNCHERD, gated=True) as world:
        node, pid, shim = begin(world, ["sleep", "1000"])
        node.kill()
        stop_process(shim)
        since = world.server.mark()
        node.begin().ready()
        world.server.wait_for("beat", lambda m: m["silent"], since=since)
        assert is_alive(pid)
        world.server.stop(1, 1, signal.SIGTERM, grace_us=1_000_000)
        world.server.wait_phase(1, 1, "ended")
        assert not is_alive(pid) and not is_alive(shim)
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))

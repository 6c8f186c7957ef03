#!/usr/bin/env python3
"""No rank outlives its lease, also if its shim is stopped and launcherd is started again, or away. lease_test.py LAUNCHERD [NAME...]

The ranks of a part that is cut off must be gone when the server starts it elsewhere: a lease and LEASE_MARGIN_US (common/limits.h) after the last
beat that it got."""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.proc import command_of, is_alive, pids, state_of
from processes.runner import run_tests
from processes.waiting import LONG_S, wait_for, wait_gone
from processes.world import token_holders, World

LAUNCHERD = os.path.abspath(sys.argv[1])
LEASE_S = 6.0
MARGIN_S = 1.5
# The rank is a shell, which dies with its shim. Its program does not.
GRANDCHILD = ["sh", "-c", "sleep 1000; true"]


def lease_world():
    return World(LAUNCHERD, gated=True, lease_us=int(LEASE_S * 1e6))


def stop_process(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_for("the process to stop", lambda: state_of(pid) == "T", LONG_S)


def guards_of(node):
    """Processes `launcherd --guard` of the job's shim that are no zombies."""
    return [pid for pid in pids() if command_of(pid)[1:3] == ["--guard", node.run_dir(1, 1)]]


def guarding(node):
    """The guard that has the lock on the page with the lease; the others wait or go."""
    with open("/proc/locks", encoding="ascii") as file:
        holders = {int(line.split()[4]) for line in file if line.split()[1:4] == ["POSIX", "ADVISORY", "WRITE"]}
    return [pid for pid in guards_of(node) if pid in holders]


def kill_guard(node):
    """Ends the guard, and waits for the next one."""
    (pid,) = wait_for("the guard's lock", lambda: guarding(node), LONG_S)
    os.kill(pid, signal.SIGKILL)
    wait_for("the next guard", lambda: [other for other in guarding(node) if other != pid], LONG_S)


def begin(world, argv=("sleep", "1000")):
    """A node with job 1. Returns it, all processes of the job's ranks, and the shim."""
    node = world.node()
    world.server.start(1, 1, list(argv))
    world.server.go(1, 1)
    world.server.wait_phase(1, 1, "running")
    shim = world.note_token(node, 1, 1)
    wait_for("the guard", lambda: guards_of(node), LONG_S)
    ranks = wait_for("the ranks", lambda: len(found := token_holders(shim["token"])) == (2 if argv == GRANDCHILD else 1) and found, LONG_S)
    return node, ranks, shim["pid"]


def cut(world):
    """Returns when the server may start the part elsewhere."""
    world.server.cut()
    heard = max(at for at, message in world.server.messages if message["type"] in ("beat", "node_hello"))
    return heard + LEASE_S + MARGIN_S


def check_gone(world, ranks, until):
    """They are gone in time, and were there until their lease was over: nobody is killed for less."""
    wait_gone("the ranks to go", *ranks)
    left = until - world.now()
    print(f"gone {left:.2f} s before the next generation", flush=True)
    assert 0 < left <= MARGIN_S + 1, left  # at most a beat was not heard


def clean_up(world, node, shim):
    """Whatever happened, a launcherd with a server gets the end of the part."""
    if node.process.poll() is not None:
        node.begin()
    world.server.listen()
    if is_alive(shim):
        os.kill(shim, signal.SIGCONT)
    world.server.wait_phase(1, 1, "ended")
    world.forget(node, 1, 1)
    wait_for("the guard to go", lambda: not guards_of(node), LONG_S)


def test_a_shim_is_stopped():
    with lease_world() as world:
        node, ranks, shim = begin(world)
        stop_process(shim)
        check_gone(world, ranks, cut(world))
        clean_up(world, node, shim)


def test_a_shim_is_stopped_and_has_no_guard():
    with lease_world() as world:
        node, ranks, shim = begin(world)
        for pid in guards_of(node):
            os.kill(pid, signal.SIGKILL)
        stop_process(shim)
        check_gone(world, ranks, cut(world))
        wait_for("its line", lambda: "its shim is killed: it has not ended with its lease" in node.log())
        clean_up(world, node, shim)


def test_launcherd_is_started_again_meanwhile():
    """The new one finds the lease with the shim, which does not answer."""
    with lease_world() as world:
        node, ranks, shim = begin(world)
        for pid in guards_of(node):
            stop_process(pid)
        stop_process(shim)
        until = cut(world)
        node.kill()
        node.begin()
        check_gone(world, ranks, until)
        wait_for("its line", lambda: "it has not ended with its lease" in node.log())
        for pid in guards_of(node):
            os.kill(pid, signal.SIGCONT)
        clean_up(world, node, shim)


def test_launcherd_does_not_come_back():
    with lease_world() as world:
        node, ranks, shim = begin(world, GRANDCHILD)
        stop_process(shim)
        until = cut(world)
        node.kill()
        check_gone(world, ranks, until)
        assert is_alive(shim)
        clean_up(world, node, shim)


def test_launcherd_is_stopped():
    with lease_world() as world:
        node, ranks, shim = begin(world, GRANDCHILD)
        stop_process(shim)
        until = cut(world)
        stop_process(node.process.pid)
        check_gone(world, ranks, until)
        node.process.send_signal(signal.SIGCONT)
        clean_up(world, node, shim)


def test_the_shim_and_launcherd_are_killed():
    """The kernel kills the rank with its shim, and the guard what the rank has started, at once."""
    with lease_world() as world:
        node, ranks, shim = begin(world, GRANDCHILD)
        node.kill()
        os.kill(shim, signal.SIGKILL)
        watch = world.watch()
        wait_gone("the ranks to go", *ranks)
        watch.check("the end of the ranks after the kill", 0, LEASE_S)
        world.server.cut()
        clean_up(world, node, shim)


def test_a_shim_that_goes_on_has_the_lease_of_now():
    """It was stopped for longer than its lease. launcherd has renewed it meanwhile."""
    with lease_world() as world:
        node, ranks, shim = begin(world)
        stop_process(shim)
        world.watch().let_pass(2 * LEASE_S)
        os.kill(shim, signal.SIGCONT)
        since = world.server.mark()
        world.server.wait_for("beat", lambda m: not m["silent"], since=since)
        world.server.send("stop", job_id=1, generation=1, signal=int(signal.SIGTERM), grace_us=10_000_000, reason="told to")
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "" and report["ranks"][0]["signal"] == signal.SIGTERM, report
        assert not any(is_alive(pid) for pid in ranks)
        world.forget(node, 1, 1)


def test_a_shim_that_goes_on_without_a_renewal_kills_at_once():
    with lease_world() as world:
        node, ranks, shim = begin(world)
        stop_process(shim)
        until = cut(world)
        node.signal(signal.SIGKILL)  # before the guard, which it would replace
        for pid in guards_of(node):
            os.kill(pid, signal.SIGKILL)
        node.wait()
        world.sleep_until(until)
        assert all(is_alive(pid) for pid in ranks)
        os.kill(shim, signal.SIGCONT)
        watch = world.watch()
        wait_gone("the ranks to go", *ranks)
        watch.check("the end of the ranks", 0, LEASE_S)
        clean_up(world, node, shim)


def test_the_guard_of_an_adopted_shim_is_the_first_one():
    """Each launcherd starts one, and the guards do not pile up."""
    with lease_world() as world:
        node, _, shim = begin(world)
        first = guards_of(node)
        for _ in range(3):
            node.kill()
            node.begin().ready()
            wait_for("the adoption", lambda: "adopted its shim" in node.log(), LONG_S)
        wait_for("one guard", lambda: guards_of(node) == first, LONG_S)
        world.server.stop(1, 1, signal.SIGKILL)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)
        wait_for("the guard to go", lambda: not guards_of(node), LONG_S)
        assert not is_alive(shim)


def test_a_guard_that_is_stopped_goes_with_the_job():
    """It cannot see that its shim is gone: launcherd ends it when the job is forgotten."""
    with lease_world() as world:
        node, _, _ = begin(world)
        (guard,) = wait_for("the guard's lock", lambda: guarding(node), LONG_S)
        stop_process(guard)
        try:
            world.server.stop(1, 1, signal.SIGKILL)
            world.server.wait_phase(1, 1, "ended")
            world.forget(node, 1, 1)
            wait_for("the guard to go", lambda: not guards_of(node), 30)
        finally:
            for pid in guards_of(node):
                os.kill(pid, signal.SIGKILL)


def test_a_guard_that_is_killed_is_replaced():
    with lease_world() as world:
        node, ranks, shim = begin(world, GRANDCHILD)
        kill_guard(node)
        assert "its shim has no guard now: it has ended" in node.log() and "signal 9" in node.log(), node.log()
        stop_process(shim)
        until = cut(world)
        stop_process(node.process.pid)
        check_gone(world, ranks, until)
        node.process.send_signal(signal.SIGCONT)
        clean_up(world, node, shim)


def test_the_guard_of_an_earlier_launcherd_is_replaced():
    with lease_world() as world:
        node, ranks, shim = begin(world, GRANDCHILD)
        node.kill()
        node.begin().ready()
        kill_guard(node)
        stop_process(shim)
        until = cut(world)
        stop_process(node.process.pid)
        check_gone(world, ranks, until)
        node.process.send_signal(signal.SIGCONT)
        clean_up(world, node, shim)


def test_guards_that_end_at_once_are_replaced_after_a_pause():
    with lease_world() as world:
        beginning = world.edge.hang("open", "*/shim.json", program="launcherd --guard")
        node, _, shim = begin(world)
        times = []
        for count in range(1, 5):
            beginning.wait(count)
            times.append(world.now())
            beginning.kill()
        beginning.drop()
        pauses = [after - before for before, after in zip(times, times[1:])]
        assert 3.9 < pauses[1] < 6 and 7.9 < pauses[2] < 10, pauses  # the first guard may have begun before the test was there
        assert node.log().count("its shim has no guard now") == 1, node.log()
        world.server.stop(1, 1, signal.SIGKILL)
        clean_up(world, node, shim)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))

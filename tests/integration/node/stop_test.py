#!/usr/bin/env python3
"""How a shim ends its workers and their leftover processes, with real processes: stop_test.py LAUNCHERD [NAME...]"""
import glob
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.proc import is_alive
from processes.runner import Skip, run_tests
from processes.waiting import Stopwatch, wait_for
from processes.world import World

LAUNCHERD = os.path.abspath(sys.argv[1])
PYTHON = sys.executable

# Rank 0 writes a checkpoint in its SIGTERM handler, which takes HANDLER_S; rank 1 fails when rank 0 is ready.
HANDLER = """import os, signal, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
def on_term(*_):
    with open(f"{folder}/asked", "w") as file:
        file.write(str(time.monotonic()))
    time.sleep(seconds)
    os.rename(f"{folder}/asked", f"{folder}/checkpoint")
    sys.exit(0)
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, on_term)
    open(f"{folder}/ready", "w").close()
    while True:
        signal.pause()
open(f"{folder}/ready").close()
with open(f"{folder}/failed", "w") as file:
    file.write(str(time.monotonic()))
os.write(1, b"dying\\n")
os._exit(3)
"""


def read(path):
    with open(path) as file:
        return file.read()


def run_handler(world, seconds, grace_us):
    """The last report, a watch of the time since the start of rank 0's handler, and one of the time since rank 1 failed, which is before the
    grace begins."""
    os.mkfifo(f"{world.folder}/ready")
    world.server.start(1, 1, [PYTHON, "-c", HANDLER, world.folder, str(seconds)], nproc=2, grace_us=grace_us)
    world.server.go(1, 1)
    report = world.server.wait_phase(1, 1, "ended")
    watch, since_failure = Stopwatch(), Stopwatch()
    assert os.listdir(world.folder).count("asked") + os.listdir(world.folder).count("checkpoint") == 1, "the handler had no time"
    name = "asked" if os.path.exists(f"{world.folder}/asked") else "checkpoint"
    watch.begun = float(read(f"{world.folder}/{name}"))
    since_failure.begun = float(read(f"{world.folder}/failed"))
    return report, watch, since_failure


def test_a_survivor_writes_its_checkpoint():
    """The worker's handler takes 3 s. The end does not wait for the rest of the grace."""
    with World(LAUNCHERD) as world:
        node = world.node()
        report, watch, _ = run_handler(world, 3, 300_000_000)
        ranks = [(r["state"], r["exit_code"], r["signal"]) for r in report["ranks"]]
        assert ranks == [("stopped", 0, 0), ("exited", 3, 0)], ranks
        assert report["failed_rank"] == 1 and report["cause"] == "rank 1 exited with code 3", report
        assert os.path.exists(f"{world.folder}/checkpoint"), "the handler had no time"
        watch.check("the end of a handler of 3 s", 3, 100)
        world.forget(node, 1, 1)


def test_a_handler_that_outlasts_the_grace_is_killed_and_named():
    with World(LAUNCHERD) as world:
        node = world.node()
        report, _, watch = run_handler(world, 1000, 3_000_000)
        assert (report["ranks"][0]["state"], report["ranks"][0]["signal"]) == ("stopped", 9), report
        watch.check("the grace of 3 s", 3, 100)
        assert os.path.exists(f"{world.folder}/asked")
        log = world.server.log_bytes(1, 1, 0).decode()
        assert "[... rank 0: 1 process has not ended in the grace and is killed: " in log, log
        assert f"{report['ranks'][0]['pid']} (python" in log, log
        assert world.server.log_bytes(1, 1, 1) == b"dying\n"
        world.forget(node, 1, 1)


# A shell ends at SIGTERM, before its program, which still writes.
WRAPPER = """import os, signal, subprocess, sys, time
folder = sys.argv[1]
def on_term(*_):
    asked = os.path.exists(f"{folder}/checkpoint")
    time.sleep(1)
    with open(f"{folder}/checkpoint", "a") as file:
        file.write("twice" if asked else "once")
    os._exit(0)
signal.signal(signal.SIGTERM, on_term)
open(f"{folder}/ready", "w").close()
while True:
    signal.pause()
"""


def test_the_program_of_a_shell_has_the_grace():
    with World(LAUNCHERD) as world:
        node = world.node()
        script = f"{world.folder}/program.py"
        with open(script, "w") as file:
            file.write(WRAPPER)
        world.server.start(1, 1, ["/bin/sh", "-c", f"{PYTHON} {script} {world.folder}; exit 1"], grace_us=20_000_000)
        world.server.go(1, 1)
        wait_for("the program", lambda: os.path.exists(f"{world.folder}/ready"))
        world.server.stop(1, 1, signal.SIGTERM, grace_us=20_000_000)
        report = world.server.wait_phase(1, 1, "ended")
        assert (report["ranks"][0]["state"], report["ranks"][0]["signal"]) == ("stopped", 15), report
        assert read(f"{world.folder}/checkpoint") == "once"
        world.forget(node, 1, 1)


# A rank with two workers, as a DataLoader has: one with a handler, one without. It needs an answer of both before it has saved, and says so in
# its output. The one with a handler notes whether that was before its signal.
LOADER = """import os, signal, sys, time
folder = sys.argv[1]
def worker(has_handler):
    (asked, ask), (answers, answer) = os.pipe(), os.pipe()
    if os.fork():
        os.close(answer)
        return ask, answers
    os.close(ask)
    def on_term(*_):
        with open(f"{folder}/left", "w") as file:
            file.write("after" if os.path.exists(f"{folder}/saved") else "before")
        os._exit(0)
    signal.signal(signal.SIGTERM, on_term if has_handler else signal.SIG_DFL)
    os.write(answer, b"up")
    while os.read(asked, 1):
        os.write(answer, b"data")
    signal.pause() if has_handler else os._exit(0)
def on_term(*_):
    time.sleep(0.1)
    for ask, answers in workers:
        os.write(ask, b"x")
        assert os.read(answers, 4) == b"data"
    print("saving", flush=True)
    os.rename(f"{folder}/ready", f"{folder}/saved")
    os._exit(0)
workers = [worker(True), worker(False)]
assert [os.read(answers, 2) for _, answers in workers] == [b"up", b"up"]
signal.signal(signal.SIGTERM, on_term)
open(f"{folder}/ready", "w").close()
while True:
    signal.pause()
"""


def stop_loader(world, command):
    """Stops a job of this command when its script is ready, and returns the rank's end."""
    node = world.node()
    with open(f"{world.folder}/train.py", "w") as file:
        file.write(LOADER)
    world.server.start(1, 1, command, grace_us=60_000_000)
    world.server.go(1, 1)
    wait_for("the script", lambda: os.path.exists(f"{world.folder}/ready"))
    world.server.stop(1, 1, signal.SIGTERM, grace_us=60_000_000)
    rank = world.server.wait_phase(1, 1, "ended")["ranks"][0]
    assert read(f"{world.folder}/left") == "after"
    log = world.server.log_bytes(1, 1, 0).decode()
    world.forget(node, 1, 1)
    return rank["state"], rank["exit_code"], rank["signal"], log


def test_the_workers_of_a_loader_live_until_the_rank_has_saved():
    with World(LAUNCHERD) as world:
        assert stop_loader(world, [PYTHON, f"{world.folder}/train.py", world.folder]) == ("stopped", 0, 0, "saving\n")


def test_a_script_in_a_shell_saves_and_what_reads_its_output_gets_all_of_it():
    with World(LAUNCHERD) as world:
        command = f"{PYTHON} {world.folder}/train.py {world.folder} 2>&1 | tee {world.folder}/out; exit 1"
        assert stop_loader(world, ["/bin/sh", "-c", command]) == ("stopped", 0, 15, "saving\n")
        assert read(f"{world.folder}/out") == "saving\n"


def test_a_stop_ends_what_waits_for_its_staged_directory():
    with World(LAUNCHERD, gated=True) as world:
        node = world.node()
        world.server.start(1, 1, ["true"], cwd="stage:" + "0" * 64)
        world.server.wait_for("stage_get")
        part = f"{world.folder}/node0/stage/{'0' * 64}.part"
        assert os.path.exists(part)
        world.server.stop(1, 1, signal.SIGTERM, grace_us=0)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "node node0 cannot get the staged directory: it has not carried out a stop in time", report
        # No shim was ever started, so there is no shim.json to look at. A thread removes what was begun.
        wait_for("what was begun of it to go", lambda: not os.path.exists(node.run_dir(1, 1)) and not os.path.exists(part))
        world.server.forget(1, 1)
        world.server.start(2, 1, ["true"])
        world.server.go(2, 1)
        world.server.wait_phase(2, 1, "ended")
        world.forget(node, 2, 1)


# Exits 0 and leaves a child that writes whether it got SIGTERM; `stubborn` ignores it.
LEAVES = """import os, signal, sys, time
folder, stubborn, seconds = sys.argv[1], sys.argv[2] == "stubborn", float(sys.argv[3])
reading, writing = os.pipe()
if os.fork():
    os.close(writing)
    os.read(reading, 1)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else lambda *_: (open(f"{folder}/asked", "w").close(), os._exit(0)))
with open(f"{folder}/child.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{folder}/child.new", f"{folder}/child")
os.close(writing)
time.sleep(seconds)
os._exit(0)  # at once: the shim waits for half a second
"""


def run_leaving(world, kind, seconds=1000, **more):
    """The last report, the log, and the pid of the leftover process."""
    report = world.server.run(1, [PYTHON, "-c", LEAVES, world.folder, kind, str(seconds)], **more)
    assert report["failed_rank"] == -1 and report["ranks"][0]["state"] == "exited", report
    pid = int(read(f"{world.folder}/child"))
    assert not is_alive(pid), "ended was reported with a process left"
    return world.server.log_bytes(1, 1, 0).decode(), pid


def test_what_is_left_after_success_gets_sigterm_and_is_named():
    with World(LAUNCHERD) as world:
        node = world.node()
        log, pid = run_leaving(world, "willing", grace_us=30_000_000)
        assert os.path.exists(f"{world.folder}/asked"), "it was killed without SIGTERM"
        assert f"[... rank 0 has exited and left 1 process: {pid} (python" in log and "SIGKILL in 5.0 s ...]\n" in log, log
        world.forget(node, 1, 1)


def test_what_ignores_sigterm_is_killed_and_named():
    with World(LAUNCHERD) as world:
        node = world.node()
        log, pid = run_leaving(world, "stubborn", grace_us=300_000)
        assert f"left 1 process: {pid} (python" in log and "SIGKILL in 0.3 s" in log, log
        assert f"rank 0: 1 process has not ended in the grace and is killed: {pid} (python" in log, log
        world.forget(node, 1, 1)


def test_what_ends_by_itself_is_not_named():
    with World(LAUNCHERD) as world:
        node = world.node()
        log, _ = run_leaving(world, "willing", 0.02, grace_us=30_000_000)
        assert log == "" and not os.path.exists(f"{world.folder}/asked"), log
        world.forget(node, 1, 1)


# Fills /dev/shm with a segment that has its number in its name, and with one that has not, and is killed.
SHM = """import os, signal
for name, size in (f"torch_{os.getpid()}_1_0", 1 << 20), ("data-set", 3_100_000):
    with open(f"/dev/shm/{name}", "wb") as file:
        file.write(bytes(size))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_rank_leaves_in_dev_shm_is_removed_or_named():
    prefix = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("a /dev/shm of its own needs root")
    with World(LAUNCHERD) as world:
        node = world.node()
        assert node.end() == 0
        node.argv = [*prefix, *node.argv]
        node.begin().ready()
        report = world.server.run(1, [PYTHON, "-c", SHM])
        pid = report["ranks"][0]["pid"]
        left = f"data-set (2.957 MiB), torch_{pid}_1_0 (1 MiB)"
        assert report["tail"] == f"/dev/shm of node node0 is full (4 MiB); in no process's use: {left}", report
        log = read(glob.glob(f"{world.folder}/node0/logs/*/shim-g1.log")[0])
        assert f"removed from /dev/shm, as its process has ended: torch_{pid}_1_0 (1 MiB)\n" in log, log
        assert "left in /dev/shm during this generation, and open in no process: data-set (2.957 MiB)\n" in log, log
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))

#!/usr/bin/env python3
"""What a node finds out about a rank that failed: failure_test.py LAUNCHERD [NAME...]"""
import os
import signal
import sys
import time

LIBRARY = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
sys.path.insert(0, LIBRARY)
from processes.runner import run_tests
from processes.waiting import wait_for
from processes.world import World

LAUNCHERD = os.path.abspath(sys.argv[1])
SHELL = "/bin/sh"


def test_error_files_are_read_as_they_are():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.run(1, [SHELL, "-c", "printf '{\"message\":\"m%s' $RANK > $TORCHELASTIC_ERROR_FILE"])
        data = world.server.log_read(1, 1, 0, what="error")
        assert (data["bytes"], data["is_final"], data["problem"]) == (b'{"message":"m0', True, ""), data
        world.server.run(2, [SHELL, "-c", "exit 3"])
        data = world.server.log_read(2, 1, 0, what="error")
        assert (data["bytes"], data["is_final"], data["problem"]) == (b"", True, ""), data
        world.server.run(3, [SHELL, "-c", "ln -s /etc/hostname $TORCHELASTIC_ERROR_FILE"])
        problem = world.server.log_read(3, 1, 0, what="error")["problem"]
        assert problem == ("node node0 has no error file of job 3, generation 1, rank 0: "
                           "what is there is no plain file of the job's user"), problem
        for job in (1, 2, 3):
            world.forget(node, job, 1)



RAISE = """
import json, os, sys, time, traceback
def fail(text, seconds=None):
    if seconds is None and time.time() % 1 > 0.5:
        time.sleep(1.01 - time.time() % 1)  # the file must be written in the second that it names: its own time has more digits
    try:
        raise ValueError(text)
    except ValueError as error:
        stack = traceback.format_exc()
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": "ValueError: " + text, "extraInfo": {
            "py_callstack": stack, "timestamp": str(int(time.time() if seconds is None else seconds))}}}, file)
rank = os.environ["RANK"]
"""


def python(program):
    return [sys.executable, "-c", RAISE + program]


def test_an_error_file_gives_cause_and_error():
    with World(LAUNCHERD) as world:
        node = world.node()
        report = world.server.run(1, python("fail('no such shard\\nsecond line'); print('bye'); sys.exit(7)"))
        assert report["cause"] == "rank 0 exited with code 7: ValueError: no such shard", report
        assert report["error"].startswith("Traceback (most recent call last):\n"), report
        assert report["error"].endswith("ValueError: no such shard\nsecond line"), report
        assert (report["tail"], report["failed_oom"], report["failed_core"]) == ("bye\n", False, ""), report
        world.forget(node, 1, 1)


def test_a_traceback_in_the_output_gives_cause_and_error():
    with World(LAUNCHERD) as world:
        node = world.node()
        report = world.server.run(1, [sys.executable, "-c", "def f():\n  raise RuntimeError('shape mismatch')\nf()"])
        assert report["cause"] == "rank 0 exited with code 1: RuntimeError: shape mismatch", report
        assert report["error"].startswith("Traceback (most recent call last):\n  File"), report
        assert report["error"].endswith("RuntimeError: shape mismatch\n"), report
        report = world.server.run(2, [SHELL, "-c", "echo no traceback; exit 1"])
        assert (report["cause"], report["error"]) == ("rank 0 exited with code 1", ""), report
        for job in (1, 2):
            world.forget(node, job, 1)


def test_a_program_tells_that_it_lost_another_rank():
    """By the protocol on DDP_SHIM_FD, as ddp-worker does."""
    script = (f"import os, socket, sys\nsys.path.insert(0, {LIBRARY!r})\nfrom processes.wire import Link\n"
              "Link(socket.socket(fileno=int(os.environ['DDP_SHIM_FD']))).send('worker_error', text=sys.argv[1])\nsys.exit(1)\n")
    with World(LAUNCHERD) as world:
        node = world.node()
        for job, (text, is_peers) in enumerate((("all-reduce: Connection closed by peer [10.0.0.2]", True), ("the loss is not a number", False)), 1):
            report = world.server.run(job, [sys.executable, "-c", script, text])
            assert (report["cause"], report["failed_by_peer"]) == (f"rank 0 exited with code 1: {text}", is_peers), report
            world.forget(node, job, 1)


def test_bad_error_files_are_passed_over():
    bad = ["mkfifo $TORCHELASTIC_ERROR_FILE", "mkdir $TORCHELASTIC_ERROR_FILE", "echo '{' > $TORCHELASTIC_ERROR_FILE",
           "ln -s /etc/hostname $TORCHELASTIC_ERROR_FILE", "head -c 300000 /dev/zero > $TORCHELASTIC_ERROR_FILE",
           "printf '{\"message\":\"a\\0b\"}' > $TORCHELASTIC_ERROR_FILE", ": > $TORCHELASTIC_ERROR_FILE",
           "(head -c 9000 /dev/zero | tr '\\0' '[') > $TORCHELASTIC_ERROR_FILE"]
    with World(LAUNCHERD) as world:
        node = world.node()
        for job, make in enumerate(bad, 1):
            report = world.server.run(job, [SHELL, "-c", f"{make}; exit 5"])
            assert (report["cause"], report["error"]) == ("rank 0 exited with code 5", ""), (make, report)
            world.forget(node, job, 1)


def test_who_raised_first_is_the_first_failure():
    """Rank 1 ends first, as a consequence; rank 0 raised its exception before, and does not end by itself."""
    with World(LAUNCHERD) as world:
        node = world.node()
        os.mkfifo(f"{world.folder}/raised")
        program = f"""
if rank == '0':
    fail('the first')
    open('{world.folder}/raised', 'w').close()
    time.sleep(1000)  # as in a destructor that waits for peers
open('{world.folder}/raised').close()
fail('connection reset')
sys.exit(4)
"""
        report = world.server.run(1, python(program), nproc=2)
        assert report["failed_rank"] == 0, report
        assert report["cause"] == ("rank 0 raised an exception: ValueError: the first; "
                                   "it had not ended when rank 1 exited with code 4"), report
        assert report["error"].endswith("ValueError: the first"), report
        assert [rank["exit_code"] for rank in report["ranks"]] == [1, 4], report
        world.forget(node, 1, 1)


def test_a_file_of_the_next_second_was_raised_at_the_end_of_its_second():
    with World(LAUNCHERD) as world:
        node = world.node()
        os.mkfifo(f"{world.folder}/ended")
        second = int(time.time()) - 5
        program = f"""
late = 1.2 if rank == '0' else 0.5
fail('rank ' + rank, {second})
os.utime(os.environ["TORCHELASTIC_ERROR_FILE"], ({second} + late, {second} + late))
open('{world.folder}/ended', 'w' if rank == '0' else 'r').close()  # so both have their files before one ends
sys.exit(4)
"""
        report = world.server.run(1, python(program), nproc=2)
        assert report["failed_rank"] == 1, report
        world.forget(node, 1, 1)


def test_who_raised_before_a_stop_has_failed_before_it():
    """As if a rank of another node, which noticed this rank's failure, had ended first."""
    with World(LAUNCHERD) as world:
        node = world.node()
        program = f"""
import signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(6))
fail('the first', {{seconds}})
os.write(1, b'raised\\n')
while True:
    signal.pause()
"""
        for job, seconds, state in ((1, "time.time() - 5", "exited"), (2, "time.time() + 500", "stopped")):
            world.server.start(job, 1, python(program.format(seconds=seconds)))
            world.server.go(job, 1)
            first = world.server.log_read(job, 1, 0)["bytes"]
            assert first == b"raised\n", first
            world.server.stop(job, 1, grace_us=60_000_000)
            report = world.server.wait_phase(job, 1, "ended")
            assert (report["ranks"][0]["state"], report["ranks"][0]["exit_code"]) == (state, 6), report
            assert (report["failed_rank"] == 0) is (state == "exited"), report
            if state == "exited":
                assert 4_000_000 < int(report["failed_age_us"]) < 100_000_000, report
                assert report["cause"] == "rank 0 exited with code 6: ValueError: the first", report
            world.forget(node, job, 1)


def test_who_raised_first_of_two_that_have_ended():
    """The shim sees both ends at once, that of rank 0 first; rank 1 raised before it."""
    with World(LAUNCHERD) as world:
        node = world.node()
        program = f"""
if rank == '0':
    open('{world.folder}/raised').close()
    fail('connection reset')
    os._exit(4)
fail('the first')
open('{world.folder}/raised', 'w').close()
os._exit(5)
"""
        os.mkfifo(f"{world.folder}/raised")
        world.server.start(1, 1, [SHELL, "-c", f"read line < {world.folder}/go$RANK; exec \"$@\"", "sh", *python(program)], nproc=2)
        for rank in (0, 1):
            os.mkfifo(f"{world.folder}/go{rank}")
        world.server.go(1, 1)
        pids = [rank["pid"] for rank in world.server.wait_phase(1, 1, "running")["ranks"]]
        shim = world.note_token(node, 1, 1)["pid"]
        os.kill(shim, signal.SIGSTOP)
        for rank in (0, 1):
            with open(f"{world.folder}/go{rank}", "w", encoding="ascii") as file:
                file.write("\n")
        wait_for("both ends", lambda: all(state_of(pid) == "Z" for pid in pids))
        os.kill(shim, signal.SIGCONT)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "rank 1 exited with code 5: ValueError: the first", report
        world.forget(node, 1, 1)


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def test_a_traceback_is_not_the_cause_of_a_signal():
    """A process that died of a signal may have printed a traceback long before, and gone on."""
    with World(LAUNCHERD) as world:
        node = world.node()
        printed = "Traceback (most recent call last):\\n  File x\\nKeyError: 1\\n"
        report = world.server.run(1, [SHELL, "-c", f"printf '{printed}'; kill -KILL $$"])
        assert report["cause"] == "rank 0 was killed by signal 9 (SIGKILL)" and report["error"] == "", report
        assert report["tail"].endswith("KeyError: 1\n"), report
        world.forget(node, 1, 1)


def test_a_core_file_is_named():
    with World(LAUNCHERD) as world:
        node = world.node()
        report = world.server.run(1, [SHELL, "-c", "ulimit -c unlimited; kill -SEGV $$"], cwd=world.folder)
        pid = report["ranks"][0]["pid"]
        with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
            pattern = file.read().strip()
        assert report["ranks"][0]["signal"] == 11, report
        if pattern == "core" and "core dumped" in report["cause"]:
            names = [name for name in os.listdir(world.folder) if name.startswith("core")]
            assert [f"{world.folder}/{name}" for name in names] == [report["failed_core"]], (names, report)
        elif pattern.startswith("|"):
            assert report["failed_core"].startswith(("systemd-coredump has it", "given to ")), report
            assert "systemd" not in pattern or str(pid) in report["failed_core"], report
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))

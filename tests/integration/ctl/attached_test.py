#!/usr/bin/env python3
"""An attached run behaves like a program that runs on this machine: stdout and stderr stay separate, byte for byte as under torchrun;
prefixes and times on request; what a terminal shows. attached_test.py [BUILD]"""
import calendar
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "pytorch"))
import pytorch  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, idle_words, let_pass, PATIENCE_S, Stopwatch, wait_for

RUN = ("run", "--standalone", "--max-restarts", "0", "-q")
BOTH = ("import os, sys\nrank = os.environ['RANK']\nfor i in range(200):\n"
        "    print(f'out {rank} {i} \\x1b[1m', flush=True)\n    print(f'err {rank} {i}', file=sys.stderr, flush=True)\n")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def script(case, text, name="program.py"):
    path = f"{case.dir}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def of_rank(text, rank):
    return [line for line in text.splitlines() if line.split()[1] == str(rank)]


def streams_are_apart():
    with Case() as case:
        done = case.ctl(*RUN, "-n", "2", "--", "python3", script(case, BOTH))
        equal(done.returncode, 0, done.stderr)
        for rank in range(2):
            equal(of_rank(done.stdout, rank), [f"out {rank} {i} \x1b[1m" for i in range(200)])
            equal(of_rank(done.stderr, rank), [f"err {rank} {i}" for i in range(200)])
        equal(len((done.stdout + done.stderr).splitlines()), 800, "lines")


def bytes_of_each_stream_are_exact():
    with Case() as case:
        program = ("import os\ndef put(fd, data):\n    while data: data = data[os.write(fd, data):]\n"
                   "for i in range(300):\n    put(1, bytes(range(256)) * 7 + b'no end')\n    put(2, b'\\r%d' % i * 50)\n")
        out = (bytes(range(256)) * 7 + b"no end") * 300
        err = b"".join(b"\r%d" % i * 50 for i in range(300))
        for ranks in "1", "2":
            done = case.ctl(*RUN, "-n", ranks, "--rank", "0", "--", "python3", script(case, program), raw=True)
            assert done.stdout == out, f"{len(done.stdout)} bytes of stdout, not {len(out)}"
            assert done.stderr == err, f"{len(done.stderr)} bytes of stderr, not {len(err)}"


def a_pager_that_waits_gets_everything():
    """The server does not read from a client that does not read; others are served, and then the whole log comes."""
    with Case() as case, Cluster(case) as cluster:
        program = script(case, "import sys\nfor i in range(160000):\n    sys.stdout.write('line %d %s\\n' % (i, 'x' * 80))\n")
        job = case.ctl("--server", cluster.address, "submit", "-q", "--", "python3", program).stdout.strip()
        pager = case.start("--server", cluster.address, "logs", "-f", job)
        try:
            equal(pager.stdout.readline(), f"line 0 {'x' * 80}\n")
            equal(case.ctl("--server", cluster.address, "wait", job).returncode, 0)
            equal(pager.poll(), None)  # 14 MB wait for it
            rest = pager.stdout.read()
            equal(pager.wait(PATIENCE_S), 0)
        finally:
            pager.kill()
            pager.communicate()
        assert rest.splitlines() == [f"line {i} {'x' * 80}" for i in range(1, 160000)], f"{len(rest)} bytes"


def a_long_line_is_whole():
    with Case() as case:
        program = "import os\nb = b'x' * (1 << 20) + b'\\n'\nwhile b: b = b[os.write(1, b):]\n"
        done = case.ctl(*RUN, "-n", "2", "--rank", "1", "--", "python3", script(case, program))
        equal(done.stdout, "x" * (1 << 20) + "\n")
        done = case.ctl(*RUN, "-n", "2", "--rank", "1", "--prefix", "always", "--", "python3", script(case, program))
        lines = done.stdout.splitlines()
        assert len(lines) > 1 and all(line.endswith(" goes on ...]") for line in lines[:-1]), lines[0][-80:]


def streams_are_selected():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--max-restarts", "0", "--", "sh", "-c", "echo one; echo two >&2; echo three; exit 3")
        equal(cluster.ctl("wait", job).returncode, 3)
        equal(sorted(cluster.ctl("logs", job).stdout.split()), ["one", "three", "two"])
        equal(cluster.ctl("logs", job, "--stream", "out").stdout, "one\nthree\n")
        equal(cluster.ctl("logs", job, "--stream", "err").stdout, "two\n")
        equal(cluster.ctl("logs", job, "--stream", "both").returncode, 2)
        done = cluster.ctl("run", "-q", "--stream", "err", "--", "sh", "-c", "echo one; echo two >&2")
        equal((done.stdout, done.stderr), ("", "two\n"))


def times_are_those_of_the_program():
    with Case() as case, Cluster(case) as cluster:
        go = Gate(f"{case.dir}/go")
        begin = time.time()
        job = cluster.submit("-n", "2", "--", "sh", "-c", f"echo first; {go.wait}; echo second >&2")
        wait_for("the first line", lambda: cluster.ctl("logs", job, "--rank", "1", "--raw").stdout == "first\n")
        seen = time.time()
        let_pass(1)  # between the two lines
        go.open()
        equal(cluster.ctl("wait", job).returncode, 0)
        end = time.time()
        lines = cluster.ctl("logs", job, "--rank", "1", "--timestamps").stdout.splitlines()
        found = [re.fullmatch(rf"({TIME})  1 node0 \| (first|second)", line) for line in lines]
        assert len(found) == 2 and all(found), lines
        seconds = [time.strptime(one[1][:19], "%Y-%m-%dT%H:%M:%S") for one in found]
        first, second = (calendar.timegm(moment) + float(one[1][19:23]) for moment, one in zip(seconds, found))
        assert begin - 0.1 < first < seen + 0.1 and seen + 0.9 < second < end + 0.1, (begin, first, seen, second, end)
        lines = cluster.ctl("logs", job, "--rank", "1", "--timestamps", "--prefix", "never").stdout.splitlines()
        assert re.fullmatch(rf"{TIME} first", lines[0]), lines


def at_a_terminal(case, *args, size=(24, 80), both=True, steps=(), environ=None):
    """(what the terminal got, exit code): stdin and stderr are a terminal; stdout too, or a file. `steps`: (text, keys or the number of
    a signal): after the text, which comes after the step before, the keys are typed, or ddpctl gets the signal."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, size)
    out = slave if both else os.open(f"{case.dir}/out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    process = subprocess.Popen([DDPCTL, *args], env=case.environ(TERM="xterm", **(environ or {})), stdin=slave, stdout=out,
                               stderr=slave, start_new_session=True)
    os.close(slave)
    if not both:
        os.close(out)
    text, seen, steps, watch = b"", 0, list(steps), Stopwatch()
    while select.select([master], [], [], max(0, PATIENCE_S - watch.passed_s))[0]:
        try:
            more = os.read(master, 65536)
        except OSError:
            break
        if not more:
            break
        text += more
        while steps and steps[0][0] in text[seen:]:
            seen = text.index(steps[0][0], seen) + len(steps[0][0])
            action = steps.pop(0)[1]
            if isinstance(action, bytes):
                os.write(master, action)
            else:
                process.send_signal(action)
    assert not steps, f"{steps[0][0]} did not come: {text}"
    code = process.wait(PATIENCE_S)
    os.close(master)
    return text, code


def a_terminal_has_prefixes_a_file_has_none():
    with Case() as case:
        program = script(case, "import os, sys\nprint('out', os.environ['RANK'])\nprint('err', os.environ['RANK'], file=sys.stderr)\n")
        text, code = at_a_terminal(case, *RUN, "-n", "2", "--", "python3", program, both=False)
        equal(code, 0, text)
        with open(f"{case.dir}/out", encoding="ascii") as file:
            equal(sorted(file), ["out 0\n", "out 1\n"])
        lines = sorted(re.sub(rb"\x1b\[[0-9;]*[mK]", b"", line) for line in text.splitlines() if b"err" in line)
        equal(lines, [b" 0 node0 | err 0", b" 1 node0 | err 1"])
        text, code = at_a_terminal(case, *RUN, "-n", "2", "--prefix", "never", "--", "python3", program)
        equal((code, sorted(text.split(b"\r\n"))), (0, [b"", b"err 0", b"err 1", b"out 0", b"out 1"]))


def what_is_typed_after_a_cancel_is_not_for_ddpctl():
    with Case() as case, Cluster(case) as cluster:
        program = f"trap 'echo once' INT; trap '' TERM; echo up; {idle_words(f'{case.dir}/idle')}"
        steps = ((b"up\r\n", signal.SIGINT), (b"Ctrl-C cancels --\r\n", b"c\n"), (b"Ctrl-C again sends SIGTERM --\r\n", b""),
                 (b"once\r\n", b"\n"), (b"\r\n", signal.SIGINT), (b"Ctrl-C again kills it --\r\n", signal.SIGINT))
        text, code = at_a_terminal(case, "--server", cluster.address, "run", "--grace", "300s", "--", "sh", "-c", program, steps=steps)
        assert b"going on" not in text and text.count(b"c and Enter cancel it") == 1, text
        equal(code, 130, text)


def a_progress_bar_stays_in_its_place():
    with Case() as case:
        program = "import sys\nfor i in range(5): sys.stderr.write(f'\\r{i * 25:3}%'); sys.stderr.flush()\nprint()\n"
        text, code = at_a_terminal(case, *RUN, "--", "python3", script(case, program))
        equal(code, 0, text)
        equal(text.split(b"\n")[0].replace(b"\r\r", b"\r").rstrip(b"\r"), b"\r  0%\r 25%\r 50%\r 75%\r100%")


def restarts_are_said_once():
    """A restart prints once why it happened, from where the job goes on, and where the logs of the crashed generation are."""
    with Case() as case, Cluster(case) as cluster:
        go = Gate(f"{case.dir}/go")
        command = f"test $TORCHELASTIC_RESTART_COUNT = 2 && {go.wait} && exit 0; exit 7"
        process = case.start("--server", cluster.address, "run", "--max-restarts", "2", "--", "sh", "-c", command)
        wait_for("the third generation", lambda: cluster.ctl("ps", "-q").stdout
                   and [cluster.status("1")[key] for key in ("state", "generation")] == ["running", 3])
        said = cluster.ctl("status", "@last").stdout
        assert "crashed    ddpctl logs 1 -g 2 --rank 0\n" in said, said
        errors = [process.stderr.readline().rstrip()]
        while errors[-1] != "-- job 1 runs again, generation 3 --":  # it is not said of a job that has ended meanwhile
            errors.append(process.stderr.readline().rstrip())
            assert errors[-1], f"the end of its output: {errors}"
        go.open()
        errors += process.stderr.read().splitlines()
        equal(process.wait(PATIENCE_S), 0, errors)
        process.stdout.close()
        process.stderr.close()
        # Where a restart takes more than a second, it also says that the job waits for it, each time.
        lines = [line for line in errors if line.startswith("-- ") and " waits to start again: " not in line]
        equal([line for line in lines if "runs again" in line][-1:], ["-- job 1 runs again, generation 3 --"], errors)
        for generation in 2, 3:
            equal(len([line for line in lines if line.startswith(f"-- rank 0 exited with code 7; generation {generation}: ")]), 1, errors)
        equal(len(lines), len(set(lines)), f"something is said twice: {errors}")
        assert "next       ddpctl logs 1\n" in cluster.ctl("status", "1").stdout, "it has succeeded"


def a_crash_is_found_behind_a_failed_restart():
    with Case() as case, Cluster(case) as cluster:
        os.mkdir(f"{case.dir}/cwd")
        job = cluster.submit("--max-restarts", "1", "--cwd", f"{case.dir}/cwd", "--", "sh", "-c", "echo why; rmdir $PWD; exit 3")
        equal(cluster.ctl("wait", job).returncode, 126)  # the second generation has no working directory
        said = cluster.ctl("status", job).stdout
        assert f"next       ddpctl logs {job} -g 1 --rank 0\n" in said, said


def a_silent_node_is_said():
    with Case(gated=True) as case, Cluster(case, nodes=2, server_options=("--lost", "45s")) as cluster:
        process = case.start("--server", cluster.address, "run", "--nodes", "2", "--", "sleep", "600")
        wait_for("the job", lambda: cluster.ctl("ps", "-q").stdout and cluster.status("@last")["state"] == "running")
        cluster.daemons["node1"].signal(signal.SIGSTOP)
        first = process.stderr.readline()
        while "does not answer" not in first:
            assert first, "the end of its output"
            first = process.stderr.readline()
        assert re.fullmatch(r"-- job 1: its node node1 does not answer: silent for \d+ s --\n", first), first
        cluster.daemons["node1"].signal(signal.SIGCONT)
        equal(process.stderr.readline(), "-- job 1: its node node1 answers again --\n")
        equal(cluster.ctl("cancel", "1", "--now").returncode, 0)
        process.communicate(timeout=PATIENCE_S)


def what_is_not_sent_is_said():
    with Case() as case:
        done = case.ctl("run", "--standalone", "--", "sh", "-c", "echo ${DDP_CUDA_SYNC-none}", DDP_CUDA_SYNC="1", DDP_QUIET="0")
        equal(done.stdout, "none\n")
        equal(done.stderr.count("not sent to the job: DDP_CUDA_SYNC: "), 1, done.stderr)


def what_a_killed_run_has_left_is_removed():
    with Case() as case:
        process = case.start("run", "--standalone", "--", "sh", "-c", "echo up; sleep 600")
        equal(process.stdout.readline(), "up\n")
        left = os.listdir(case.temp)
        equal(len(left), 1)
        foreign = f"{case.temp}/ddp-abcdef"  # a name like ours, without our lock
        os.mkdir(foreign)
        elsewhere = f"{case.temp}/ddp-abcdeh"  # TMPDIR is shared; locks of other machines are not visible here
        os.mkdir(elsewhere)
        with open(f"{elsewhere}/standalone.lock", "w", encoding="ascii") as lock:
            lock.write("another-machine")
        starting = f"{case.temp}/ddp-abcdeg"  # its ddpctl runs and has no daemons yet
        os.mkdir(starting)
        with open(f"{starting}/standalone.lock", "w", encoding="ascii") as lock:
            lock.write(f"{socket.gethostname()}\nfolder ddp-abcdeg {os.stat(starting).st_ino} {os.stat(starting).st_dev}\n")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = case.ctl(*RUN, "--", "true")  # the first still runs
            equal((done.returncode, sorted(os.listdir(case.temp))), (0, sorted([*left, "ddp-abcdef", "ddp-abcdeg", "ddp-abcdeh"])))
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        wait_for("the daemons' end", lambda: not case.processes())
        done = case.ctl("run", "--standalone", "--", "true")
        equal((done.returncode, sorted(os.listdir(case.temp))), (0, ["ddp-abcdef", "ddp-abcdeh"]), done.stderr)
        assert "removed 2 temporary folders of earlier runs that were killed" in done.stderr, done.stderr
        os.rmdir(foreign)
        shutil.rmtree(elsewhere)


def torchrun_prints_the_same():
    try:
        torchrun = shutil.which("torchrun", path=os.path.dirname(pytorch.python_or_skip()))
    except SystemExit:
        torchrun = None
    if torchrun is None:
        print("skipped: no PyTorch here (tests/pytorch/setup makes one), so nothing to compare with", flush=True)
        return
    with Case() as case:
        path = script(case, "import os, sys\nfor i in range(50):\n    print('line', i, '\\t\\xe9\\x1b[31m')\n"
                            "    sys.stderr.write(f'\\rbar {i}')\nsys.stdout.write('no end')\n")
        theirs = subprocess.run([torchrun, "--standalone", "--nproc-per-node", "1", path], capture_output=True, timeout=4 * PATIENCE_S,
                                env=case.environ(PYTHONUNBUFFERED="1", TMPDIR=case.dir, TORCHINDUCTOR_CACHE_DIR=f"{case.dir}/inductor"), check=True)
        ours = case.ctl("run", "--standalone", "-q", "--nproc-per-node", "1", path, raw=True)
        equal(ours.returncode, 0, ours.stderr)
        equal(ours.stdout, theirs.stdout)
        assert ours.stderr in theirs.stderr, (ours.stderr, theirs.stderr)


if __name__ == "__main__":
    run_and_exit([streams_are_apart, bytes_of_each_stream_are_exact, a_pager_that_waits_gets_everything, a_long_line_is_whole, streams_are_selected,
               times_are_those_of_the_program, a_terminal_has_prefixes_a_file_has_none, what_is_typed_after_a_cancel_is_not_for_ddpctl, a_progress_bar_stays_in_its_place,
               restarts_are_said_once, a_crash_is_found_behind_a_failed_restart, a_silent_node_is_said,
               what_is_not_sent_is_said, what_a_killed_run_has_left_is_removed, torchrun_prints_the_same], side_by_side=4)

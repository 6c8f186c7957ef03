#!/usr/bin/env python3
"""What keeps a disk from filling up: the largest size of a log, and how long logs and ended jobs are kept."""
import os
import re
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, Cluster
from processes.relay import UnixRelay
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, PATIENCE_S, wait_for

LINE_BYTES = 64
LINES = 50_000_000 // LINE_BYTES
LIMIT = 4 << 20
WRITE = ("import sys\nfor block in range(0, {0}, 1000):\n"
         " sys.stdout.write(''.join('%063d\\n' % i for i in range(block, min(block + 1000, {0}))))").format(LINES)
RUNAWAY = ("--name", "talks", "--max-restarts", "0", "--", "python3", "-c", WRITE)


class Keeping(Cluster):
    """A cluster whose launcherd and rendezvous get more options."""

    def __init__(self, case, server_options=(), node_options=()):
        super().__init__(case, nodes=0, server_options=server_options)
        self.start_node("node0", 4, *node_options)

    def logs(self):
        return f"{self.case.dir}/node0/logs"


def check_lines(text):
    """Checks that lines are whole, with rising numbers, except the two lines at the cut in the middle."""
    numbers = [int(line) for line in text.split("\n") if re.fullmatch(r"[0-9]{63}", line)]
    equal((numbers[0], numbers[-1]), (0, LINES - 1), "the first and the last line are there")
    assert all(a < b for a, b in zip(numbers, numbers[1:])), "lines are not in order"
    return numbers


def a_long_log_is_cut_in_the_middle():
    with Case() as case, Keeping(case, node_options=("--log-max", "4M")) as cluster:
        job = cluster.submit(*RUNAWAY)
        follow = case.start("--server", cluster.address, "logs", "-f", "--raw", job)
        followed, errors = follow.communicate(timeout=280)
        equal((follow.returncode, cluster.ctl("wait", job).returncode), (0, 0), errors)
        check_lines(followed.replace("\0", "?"))
        assert "\0" not in followed, "a reader was given the zeros of a hole"
        path = f"{cluster.logs()}/{os.listdir(cluster.logs())[0]}/g1-rank0.log"
        equal(os.stat(path).st_size, LINES * LINE_BYTES, "every byte keeps its offset")
        kept = os.stat(path).st_blocks * 512
        assert LIMIT // 2 < kept <= LIMIT + 65536, f"{kept} bytes are on the disk"
        done = cluster.ctl("logs", job)
        equal(done.returncode, 0, done.stderr)
        assert "\0" not in done.stdout
        numbers = check_lines(done.stdout)
        mark = re.search(r"\n\[\.\.\. ([0-9]+) bytes cut +\.\.\.\]\n", done.stdout)
        assert mark, "the cut is not marked"
        equal(len(done.stdout) - 64 + int(mark.group(1)), LINES * LINE_BYTES, "the mark counts what is gone")
        assert len(numbers) < LINES and "some of its log is missing here" in done.stderr, done.stderr
        equal(cluster.ctl("logs", "--tail", "2", job).stdout, "".join(f"{i:063d}\n" for i in (LINES - 2, LINES - 1)))
        far = cluster.ctl("logs", "--tail", "1000000", job).stdout
        equal(far[-64:], f"{LINES - 1:063d}\n")
        assert "cut" not in far and "\0" not in far, "more lines than are kept: from the cut on"


def a_log_below_the_limit_is_whole():
    with Case() as case, Keeping(case, node_options=("--log-max", "100M")) as cluster:
        job = cluster.submit(*RUNAWAY)
        equal(cluster.ctl("wait", job, timeout=280).returncode, 0)
        equal(len(check_lines(cluster.ctl("logs", job, timeout=280).stdout)), LINES)


def logs_go_when_their_time_is_over():
    with Case() as case, Keeping(case, node_options=("--keep-logs", "1s")) as cluster:
        ready, go = f"{case.dir}/ready", Gate(f"{case.dir}/go")
        os.makedirs(f"{cluster.logs()}/{'a' * 31}-7")  # its name is not one of ours
        os.makedirs(f"{cluster.logs()}/{'a' * 32}-7/g1-errors/deep")
        os.makedirs(f"{cluster.logs()}/{'a' * 32}-8.removed/g1-errors")  # as if launcherd had been killed as it removed it
        os.symlink(case.dir, f"{cluster.logs()}/{'a' * 32}-7/g1-errors/link")
        with open(f"{cluster.logs()}/{'a' * 32}-7/g1-errors/deep/file", "w", encoding="ascii") as file:
            file.write("x")
        runs = cluster.submit("--", "sh", "-c", f"echo up; touch {ready}; {go.wait}; echo end")
        wait_for("the first job", lambda: os.path.exists(ready))
        ended = cluster.submit("--", "echo", "hello")
        equal(cluster.ctl("wait", ended).returncode, 0)
        wait_for("the end of the old logs", lambda: not [name for name in os.listdir(cluster.logs()) if re.fullmatch(f"[0-9a-f]{{32}}-({ended}-[0-9]+|7|8.removed)", name)])
        assert os.path.isdir(f"{cluster.logs()}/{'a' * 31}-7") and os.path.exists(ready), "what is not ours was removed"
        equal(cluster.ctl("logs", runs).stdout, "up\n", "the logs of a job that runs stay, however old")
        done = cluster.ctl("logs", ended)
        assert f"has no log of job {ended}" in done.stderr, done.stderr
        assert done.returncode == 1 and "no log could be read" in done.stderr, done
        go.open()
        equal(cluster.ctl("wait", runs).returncode, 0)
        wait_for("the end of all logs", lambda: len(os.listdir(cluster.logs())) == 1)


def launcherds_with_one_log_dir_remove_only_their_own():
    with Case() as case, Keeping(case, node_options=("--log-dir", f"{case.dir}/logs")) as cluster:
        os.mkdir(f"{case.dir}/source")
        with open(f"{case.dir}/source/data", "w", encoding="ascii") as file:
            file.write("whole")
        of_another = f"{case.dir}/logs/{'a' * 32}-7-12345"
        os.mkdir(of_another)
        with open(f"{of_another}/g1-rank0.log", "w", encoding="ascii") as file:
            file.write("quiet")
        for path in (f"{of_another}/g1-rank0.log", of_another):
            os.utime(path, (1, 1))
        ready, go = f"{case.dir}/ready", Gate(f"{case.dir}/go")
        runs = cluster.submit("--stage", f"{case.dir}/source", "--", "sh", "-c", f"touch {ready}; {go.wait}; cat data")
        wait_for("the first job", lambda: os.path.exists(ready))
        cluster.launch("node1", "launcherd", "--server", cluster.address, "--name", "node1", "--slots", "4", "--allow-root",
                       "--log-dir", f"{case.dir}/logs", "--keep-logs", "1s")
        both = cluster.submit("--nodes", "2", "--stage", f"{case.dir}/source", "--max-restarts", "0", "--", "sh", "-c",
                              "cat data; echo $RANK > out; sleep 1; cat out")
        equal(cluster.ctl("wait", both).returncode, 0, cluster.ctl("why", both).stdout)
        wait_for("node1's own to go", lambda: len([name for name in os.listdir(f"{case.dir}/logs") if f"-{both}-" in name]) == 1)
        equal(cluster.ctl("logs", "--raw", "--rank", "0", both).stdout, "whole0\n")
        assert os.path.exists(f"{of_another}/g1-rank0.log"), "a folder that neither made was removed"
        quiet = cluster.submit("--nodes", "2", "--", "sh", "-c", f"touch {ready}-$RANK; {go.wait}")
        wait_for("a job that writes nothing", lambda: os.path.exists(f"{ready}-0") and os.path.exists(f"{ready}-1"))
        folders = [f"{case.dir}/logs/{name}" for name in os.listdir(f"{case.dir}/logs") if f"-{quiet}-" in name]
        before = [os.stat(folder).st_mtime_ns for folder in folders]
        wait_for("node1 to say that it is known", lambda: before != [os.stat(folder).st_mtime_ns for folder in folders])
        go.open()
        equal((cluster.ctl("wait", runs).returncode, cluster.ctl("logs", "--raw", runs).stdout), (0, "whole"), "the job of the other")


def rows(case, table):
    with sqlite3.connect(f"file:{case.dir}/rendezvous/state.db?mode=ro", uri=True) as db:
        # The newest event of any job is kept, so that no event number is used twice.
        kept = "WHERE id < (SELECT max(id) FROM events)" if table == "events" else ""
        return [row[0] for row in db.execute(f"SELECT DISTINCT {'id' if table == 'jobs' else 'job_id'} FROM {table} {kept}")]


def ended_jobs_are_forgotten():
    with Case() as case, Keeping(case, server_options=("--keep-jobs", "1s")) as cluster, \
            UnixRelay(f"{case.dir}/relay.sock", cluster.address[5:]) as relay:
        go = Gate(f"{case.dir}/go")
        held = cluster.submit("--", "sh", "-c", f"{go.wait}")
        # Waits from now on: one that asks only after the end may come when the job is forgotten.
        waiter = case.start("--server", relay.address, "wait", held)
        assert relay.answered.wait(PATIENCE_S), "the server did not answer `wait`"
        jobs = [cluster.submit("--name", "short", "--", "true") for _ in range(40)]
        cluster.ctl("wait", *jobs)
        wait_for("the ended jobs to go", lambda: cluster.ctl("ps", "-a", "-q").stdout.split() == [held, jobs[-1]])
        for table in ("jobs", "specs", "request_ids"):
            wait_for(f"the rows of {table} to go", lambda t=table: sorted(rows(case, t)) == [int(held), int(jobs[-1])])
        for table in ("events", "ranks"):
            wait_for(f"the rows of {table} to go", lambda t=table: not {int(job) for job in jobs[:-1]} & set(rows(case, t)))
        equal(cluster.ctl("status", jobs[0]).returncode, 3)
        cluster.kill_server()
        relay.answered.clear()
        cluster.start_server()
        assert relay.answered.wait(PATIENCE_S), "`wait` does not ask the server that came back"
        equal(int(cluster.submit("--", "true")), int(jobs[-1]) + 1, "a number is given once")
        go.open()
        said = waiter.communicate(timeout=PATIENCE_S)[1]
        equal(waiter.returncode, 0, f"it went on meanwhile: {said}")


def what_a_job_waits_for_stays():
    """A restarted server must still find that the first job has succeeded."""
    with Case() as case, Keeping(case, server_options=("--keep-jobs", "1s")) as cluster:
        gates = [Gate(f"{case.dir}/go{i}") for i in range(2)]
        first, held = (cluster.submit("--", "sh", "-c", gate.wait) for gate in gates)
        waits = cluster.submit("--after", f"{first},{held}", "--", "true")
        behind = cluster.submit("--after", waits, "--", "true")
        gates[0].open()
        wait_for("the first job", lambda: cluster.status(first)["state"] == "succeeded")
        gone, last = (cluster.submit("--", "true") for _ in range(2))  # the newest job stays
        wait_for("a later job to go", lambda: gone not in cluster.ctl("ps", "-a", "-q").stdout.split())
        equal(cluster.ctl("ps", "-a", "-q").stdout.split(), [first, held, waits, behind, last])
        cluster.kill_server()
        cluster.start_server()
        waiter = case.start("--server", cluster.address, "wait", waits, behind)
        equal(cluster.status(waits)["state"], "queued")
        gates[1].open()
        said = waiter.communicate(timeout=PATIENCE_S)[1]
        assert "cancelled" not in said, said
        wait_for("all to go", lambda: cluster.ctl("ps", "-a", "-q").stdout.split() == [last])
        events = cluster.ctl("events").stdout
        assert "is not known any more" not in events, events


def sizes_and_times_are_checked():
    for program, option, value, error in (("launcherd", "--log-max", "10", "is not in"), ("launcherd", "--log-max", "1X", "a size as"),
                                          ("launcherd", "--keep-logs", "0", "is not in"),
                                          ("rendezvous", "--keep-jobs", "1ms", "is not in")):
        done = subprocess.run([os.path.join(BUILD, program, program), option, value], capture_output=True, text=True, timeout=60,
                              check=False)
        equal(done.returncode, 2)
        assert option in done.stderr and error in done.stderr, done.stderr


if __name__ == "__main__":
    run_and_exit([a_long_log_is_cut_in_the_middle, a_log_below_the_limit_is_whole, logs_go_when_their_time_is_over, launcherds_with_one_log_dir_remove_only_their_own,
               ended_jobs_are_forgotten, what_a_job_waits_for_stays, sizes_and_times_are_checked])

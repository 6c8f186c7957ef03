#!/usr/bin/env python3
"""Jobs that wait for other jobs, job arrays, preemption, the warning before the end of --time: ddpctl against a private cluster."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import PATIENCE_S, Gate, idle_words, wait_for


def states(cluster, *jobs):
    return [cluster.status(job)["state"] for job in jobs]


def jobs_after_others():
    with Case() as case, Cluster(case) as cluster:
        gate = Gate(f"{case.dir}/gate")
        hold = ("sh", "-c", f"{gate.wait}")
        first = cluster.submit("--name", "prep", "--", *hold)
        good = cluster.submit("--name", "train", "--after", "prep", "--", "true")
        last = cluster.submit("--after", "@last:ok", "--", "true")
        equal(cluster.status(good)["reason"], "waits for job 1 (prep) to succeed (--after)")
        equal(cluster.ctl("why", good).stdout, "train (2) queued: waits for job 1 (prep) to succeed (--after)\n")
        cluster.kill_server()  # the wait is stored
        cluster.start_server()
        wait_for("the job", lambda: cluster.status(first)["state"] == "running")
        equal(states(cluster, good, last), ["queued", "queued"])
        gate.open()
        equal(cluster.ctl("wait", last).returncode, 0)
        equal(states(cluster, first, good, last), ["succeeded"] * 3)

        failed = cluster.submit("--max-restarts", "0", "--name", "bad", "--", "false")
        cluster.ctl("wait", failed)
        never = cluster.submit("--after", failed, "--", "true")
        anyhow = cluster.submit("--after", f"{failed}:any", "--", "true")
        equal(cluster.ctl("wait", never).returncode, 125)
        equal(cluster.status(never)["reason"],
              f"job {failed} has failed, and this one was to start after its success (--after {failed}:ok)")
        equal(cluster.ctl("wait", anyhow).returncode, 0)

        waits = cluster.submit("--name", "waits", "--", "sleep", "600")
        behind = cluster.submit("--after", waits, "--", "true")
        equal(cluster.ctl("cancel", "--now", "--wait", waits).returncode, 0)
        equal(cluster.ctl("wait", behind).returncode, 125)
        assert "was cancelled" in cluster.status(behind)["reason"]

        several = [cluster.submit("--name", f"part{i}", "--", "sleep", "600") for i in range(2)]
        joined = cluster.submit("--after", f"{several[0]}:any,{failed}:any", "--after", "part1:any", "--", "true")
        strict = cluster.submit("--after", f"{several[0]}:any", "--after", several[1], "--", "true")
        equal(cluster.status(joined)["reason"], f"waits for job {several[0]} (part0) to end, and for 1 more (--after)")
        twice = cluster.submit("--after", f"{several[0]}:any, part0", "--", "true")  # both words name one job, and the stricter one asks for its success
        equal(cluster.status(twice)["reason"], f"waits for job {several[0]} (part0) to succeed (--after)")
        assert f"{failed}-{failed}" not in cluster.ctl("status", joined, "--json").stdout  # the form in which the list is stored is not shown
        cluster.kill_server()  # the list is stored
        cluster.start_server()
        equal(cluster.ctl("cancel", "--now", "--wait", several[0]).returncode, 0)
        equal(states(cluster, joined, strict), ["queued", "queued"])
        equal(cluster.ctl("cancel", "--now", "--wait", several[1]).returncode, 0)
        equal(cluster.ctl("wait", joined).returncode, 0)
        equal(cluster.ctl("wait", twice).returncode, 125)
        equal(cluster.ctl("wait", strict).returncode, 125)
        equal(cluster.status(strict)["reason"],
              f"job {several[1]} was cancelled, and this one was to start after its success (--after {several[1]}:ok)")
        dry = cluster.ctl("submit", "--after", "1:any,part0", "--after", "2", "--dry-run", "--json", "--", "true")
        equal(json.loads(dry.stdout)["after"], "1:any,part0,2")
        many = cluster.ctl("submit", "--after", ",".join(["1"] * 17), "--", "true")
        equal(many.returncode, 2)
        assert "16 others at most" in many.stderr, many.stderr

        refused = cluster.ctl("submit", "--after", "1,99", "--", "true")
        equal((refused.returncode, refused.stdout), (3, ""))
        assert "there is no job 99" in refused.stderr, refused.stderr
        refused = cluster.ctl("submit", "--after", "1:never", "--", "true")
        equal(refused.returncode, 2)


def arrays():
    with Case() as case, Cluster(case, slots=8) as cluster:
        gate = Gate(f"{case.dir}/gate")
        count = ("sh", "-c", f"echo $DDP_ARRAY_JOB_ID $DDP_ARRAY_INDEX of $DDP_ARRAY_COUNT $DDP_ARRAY_MIN "
                             f"$DDP_ARRAY_MAX $SLURM_ARRAY_TASK_ID; {gate.wait}; "
                             f"exit $((DDP_ARRAY_INDEX == 6))")
        done = cluster.ctl("submit", "--name", "sweep", "--array", "0,2-8:2%2", "--max-restarts", "0", "--env-style",
                           "slurm", "--", *count)
        equal((done.returncode, done.stdout), (0, "1\n"), done.stderr)
        assert "array 0,2-8:2%2, each with 1 rank" in done.stderr, done.stderr
        wait_for("two jobs", lambda: states(cluster, "1_0", "1_2") == ["running", "running"])
        equal(states(cluster, "1_4", "1_6", "1_8"), ["queued"] * 3)
        equal(cluster.status("1_6")["array"], {"job": 1, "index": 6, "count": 5})
        after = cluster.submit("--after", "sweep:any", "--", "true")
        wait_for("its output", lambda: cluster.ctl("logs", "1_2", "--raw").stdout == "1 2 of 5 0 8 2\n")

        lines = cluster.ctl("ps").stdout.splitlines()
        equal(len(lines), 3)  # the array is one line
        equal(lines[1].split(None, 4)[:4], ["1_[0,2,4,6,8]", "sweep", "running", "2/5"])
        assert "2 running, 3 queued: waits for other jobs of its array" in lines[1], lines[1]
        for option in ("--expand", "-a"):
            lines = cluster.ctl("ps", option).stdout.splitlines()
            equal([line.split()[0] for line in lines[1:]], ["1_0", "1_2", "1_4", "1_6", "1_8", after])
        lines = cluster.ctl("status", "1").stdout.splitlines()
        equal([line.split()[0] for line in lines[1:]], ["1_0", "1_2", "1_4", "1_6", "1_8"])

        cluster.kill_server()
        cluster.start_server()
        gate.open()
        equal(cluster.ctl("wait", "sweep").returncode, 1)  # of 1_6
        equal(cluster.ctl("wait", after).returncode, 0)
        equal(states(cluster, "1_0", "1_2", "1_4", "1_6", "1_8"), ["succeeded"] * 3 + ["failed", "succeeded"])
        equal([job["array"]["index"] for job in json.loads(cluster.ctl("status", "1", "--json").stdout)["jobs"]],
              [0, 2, 4, 6, 8])

        done = cluster.ctl("submit", "--array", "0-9%1", "--", "sleep", "600")
        array = done.stdout.strip()
        equal(cluster.ctl("cancel", "--now", f"{array}_3").returncode, 0)
        equal(states(cluster, f"{array}_3", f"{array}_2"), ["cancelled", "queued"])
        equal(cluster.ctl("cancel", "--now", "--wait", array).returncode, 0)
        equal(states(cluster, *(f"{array}_{i}" for i in range(10))), ["cancelled"] * 10)
        equal([i for i in range(10) if cluster.status(f"{array}_{i}")["started_at"]], [0])  # none started as others were cancelled
        equal(cluster.ctl("status", f"{array}_77").returncode, 3)

        for wrong in ("9-1", "0-1000", "1,1", "x"):
            refused = cluster.ctl("submit", "--array", wrong, "--", "true")
            equal((refused.returncode, refused.stdout), (2, ""), refused.stderr)
        refused = cluster.ctl("submit", "-f", "--array", "0-3", "--", "true")
        equal(refused.returncode, 125)
        assert "only one can be followed" in refused.stderr, refused.stderr


def room_in_the_queue():
    with Case() as case, Cluster(case, nodes=0, server_options=("--max-queued-per-user", "2")) as cluster:
        jobs = [cluster.submit("--wait-for-nodes", "--", "true") for _ in range(2)]
        full = "2 jobs of root wait already, a user may have 2 (--max-queued-per-user of the server): submit again when some have started"
        full = full.replace("root", cluster.status(jobs[0])["user"])
        for verb in ("submit", "run"):
            refused = cluster.ctl(verb, "--wait-for-nodes", "--", "true")
            equal((refused.returncode, refused.stdout, refused.stderr), (1 if verb == "submit" else 125, "",
                  f"ddpctl: {full}\n  ddpctl ps lists the jobs; --wait-for-room submits it when there is room\n"))
        refused = cluster.ctl("submit", "--wait-for-room", "--array", "0-2", "--wait-for-nodes", "--", "true")
        equal(refused.returncode, 4, refused.stderr)  # there never is room for it
        assert "submit the array in parts" in refused.stderr, refused.stderr
        waiting = [subprocess.Popen([DDPCTL, "--server", cluster.address, *words, "--wait-for-room", "--wait-for-nodes", "--", "true"], env=case.environ(),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for words in (("submit",), ("run", "--name", "later"))]
        for process in waiting:
            equal(process.stderr.readline(), f"-- waits for room: {full} --\n")
        for job in jobs:
            equal(cluster.ctl("cancel", "--now", "--wait", job).returncode, 0)
        equal((waiting[0].wait(PATIENCE_S), waiting[0].stdout.read() in ("3\n", "4\n")), (0, True))
        assert waiting[1].stderr.readline().startswith("queued later: 1 rank on 1 node"), waiting[1].stderr.read()
        equal(cluster.ctl("cancel", "--now", "--wait", "later").returncode, 0)
        equal(waiting[1].wait(PATIENCE_S), 125)
        for process in waiting:
            process.stdout.close()
            process.stderr.close()
        refused = cluster.ctl("submit", "--array", "0-9999", "--", "true")
        assert "an array has 1000 jobs at most: submit several, as --array 0-999 and --array 1000-1999" in refused.stderr, refused.stderr


def preemption():
    with Case() as case, Cluster(case, nodes=2, slots=2, server_options=("--preempt", "priority")) as cluster:
        gate = Gate(f"{case.dir}/gate")
        said = os.path.join(case.dir, "said")
        hold = f"trap 'echo $DDP_GENERATION >> {said}; exit 0' TERM; echo up; {gate.wait}"
        low = cluster.submit("-n", "2", "--priority", "-5", "--name", "low", "--", "sh", "-c", hold)
        equal_one = cluster.submit("-n", "2", "--name", "usual", "--", "sh", "-c", hold)
        wait_for("both", lambda: states(cluster, low, equal_one) == ["running", "running"])
        wait_for("their traps", lambda: [cluster.ctl("logs", job, "--raw").stdout for job in (low, equal_one)] == ["up\nup\n"] * 2)
        high = cluster.submit("-n", "2", "--name", "urgent", "--", "sh", "-c", hold)
        wait_for("the urgent job", lambda: states(cluster, high) == ["running"])
        equal(cluster.status(equal_one)["generation"], 1)  # a job of equal priority runs on
        status = cluster.status(low)
        equal((status["state"], status["generation"], status["id"]), ("queued", 1, int(low)))
        assert "preempted by job 3 (urgent) for its priority, 0 against -5" in cluster.ctl("events", low).stdout
        with open(said, encoding="ascii") as file:
            equal(file.read().split(), ["1", "1"])  # each rank of the preempted job got SIGTERM, and no rank of the other
        cluster.kill_server()
        cluster.start_server()
        gate.open()
        equal(cluster.ctl("wait", high, equal_one, low).returncode, 0)
        status = cluster.status(low)
        equal((status["state"], status["generation"], status["restarts_used"]), ("succeeded", 2, 0))


def a_warning_before_the_end_of_the_time():
    with Case(gated=True) as case, Cluster(case) as cluster:
        idle = idle_words(f"{case.dir}/idle")
        saves = f"trap 'echo saved; exit 0' USR1; {idle}"
        # The warnings come some seconds after the start, when the shells surely have their traps.
        saver = cluster.submit("-n", "2", "--time", "65s", "--warn", "60s:USR1", "--", "sh", "-c", saves)
        equal(cluster.ctl("wait", saver).returncode, 0)  # the warning came 60 s before the stop
        equal(cluster.ctl("logs", saver, "--raw").stdout, "saved\nsaved\n")
        deaf = cluster.submit("--time", "8s", "--warn", "3s:USR1", "--grace", "1s", "--max-restarts", "3", "--",
                              "sh", "-c", f"trap 'echo warned' USR1; trap '' TERM; {idle}")
        equal(cluster.ctl("wait", deaf).returncode, 124)
        equal(cluster.ctl("logs", deaf, "--raw").stdout.splitlines()[0], "warned")
        equal(cluster.status(deaf)["restarts"], 0)
        equal(cluster.ctl("submit", "--warn", "60s:USR1", "--time", "60s", "--", "true").returncode, 2)


run_and_exit([jobs_after_others, arrays, room_in_the_queue, preemption, a_warning_before_the_end_of_the_time], side_by_side=4)

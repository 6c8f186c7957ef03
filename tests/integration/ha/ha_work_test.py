"""Work on several servers with the default lease, while leaders are killed: an array of so many tasks that they do not fit into one
transaction of etcd, and a job of four ranks that step. Usage: ha_work_test.py BUILD [TEST...]"""

import base64
import collections
import json
import os
import signal
import sys
import threading
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes import wire
from processes.etcd import wait_for
from processes.servers import all_jobs, Cluster, NO_ANSWER, run_tests, WORK_S
from processes.stepper import Stepper

TASKS = 400  # several commits of more than 126 writes each
RANKS = 4


def kill_leader(cluster):
    leader, token = cluster.leader(), cluster.seen.newest()
    leader.end_by(signal.SIGKILL)
    cluster.seen.wait_above(token)
    leader.start()


# -- an array --


class Submission(threading.Thread):
    """Sends one request, and repeats it with the same id until it is answered."""

    def __init__(self, cluster, **fields):
        super().__init__(daemon=True)
        self.cluster, self.fields, self.job = cluster, fields, 0
        self.request = wire.request_id()
        self.start()

    def run(self):
        self.job = wait_for("an answer", self.ask, WORK_S)

    def ask(self):
        for server in self.cluster.servers:
            try:
                with wire.Client(server.asked) as client:
                    return client.submit(self.request, **self.fields)["job_id"]
            except NO_ANSWER:
                pass
        return None


def is_staged(etcd):
    """Whether a commit that needs several transactions is in progress."""
    body = {"key": base64.b64encode(b"/ddp/pending/").decode(), "range_end": base64.b64encode(b"/ddp/pending0").decode(),
            "count_only": True, "serializable": True}
    request = urllib.request.Request("http://127.0.0.1:%d/v3/kv/range" % etcd.client_ports()[0], json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(json.load(answer).get("count", 0)) > 0


def lines_of(path):
    try:
        with open(path, encoding="ascii") as lines:
            return lines.read().split()
    except FileNotFoundError:
        return []


def jobs_of(cluster):
    with cluster.client() as client:
        return all_jobs(client)


def an_array_is_whole_and_runs_once(cluster):
    """A leader is killed while the array is written, or just after; two more while its tasks run."""
    ran = cluster.folder + "/tasks"
    submission = Submission(cluster, name="sweep", array="0-%d" % (TASKS - 1), max_restarts=0,
                            argv=["/bin/sh", "-c", "echo $DDP_ARRAY_INDEX >> " + ran])
    wait_for("the array is written", lambda: is_staged(cluster.etcd) or submission.job)
    print("killed while the array is %s" % ("answered" if submission.job else "staged"), flush=True)
    kill_leader(cluster)
    submission.join(WORK_S)
    assert submission.job, "the array was never answered"
    for count in (TASKS // 10, TASKS // 3):
        wait_for("tasks run", lambda least=count: len(lines_of(ran)) >= least, WORK_S)
        kill_leader(cluster)
    done = cluster.ctl("wait", str(submission.job), patience_s=WORK_S)
    assert done.returncode == 0, done
    counts = collections.Counter(lines_of(ran))
    assert counts == {str(i): 1 for i in range(TASKS)}, [pair for pair in counts.items() if pair[1] != 1] or len(counts)
    tasks = [job for job in jobs_of(cluster) if job["name"] == "sweep"]
    assert len(tasks) == TASKS and {job["state"] for job in tasks} == {"succeeded"}, len(tasks)


# -- a job that steps --


def finish(cluster, job):
    done = cluster.ctl("wait", str(job), patience_s=WORK_S)
    assert done.returncode == 0, done
    status = json.loads(cluster.ctl("status", str(job), "--json").stdout)["job"]
    assert (status["state"], status["generation"], status["restarts"]) == ("succeeded", 1, 0), status
    return [rank["pid"] for rank in status["ranks"]]


def processes(cluster, job):
    """The pids of all ranks. Empty until a new leader has heard of each rank."""
    done = cluster.ctl("status", str(job), "--json")
    pids = [rank["pid"] for rank in json.loads(done.stdout)["job"]["ranks"]] if done.returncode == 0 else [None]
    return [] if None in pids else pids


def a_job_notices_nothing(cluster):
    """It steps on while no server leads, in its first generation, with the same processes."""
    stepper = Stepper(cluster.folder + "/steps", RANKS)
    done = cluster.ctl("submit", "--name", "steps", "--nodes", "2", "--nproc-per-node", "2", "--max-restarts", "3", "--", *stepper.argv)
    assert done.returncode == 0, done
    job, seen = int(done.stdout.split()[0]), []
    for kills in range(2):
        assert stepper.step() == (1, 2 * kills + 1)
        seen.append(wait_for("the leader knows the processes", lambda: processes(cluster, job), WORK_S))
        leader, token = cluster.leader(), cluster.seen.newest()
        leader.end_by(signal.SIGKILL)
        assert stepper.step() == (1, 2 * kills + 2)
        cluster.seen.wait_above(token)
        leader.start()
    assert stepper.step() == (1, 5)
    stepper.say("exit 0")
    at_end = finish(cluster, job)
    assert seen == [at_end] * 2 and len(set(at_end)) == RANKS, (seen, at_end)
    stepper.close()


def main():
    cluster = Cluster(sys.argv[1], every_s=0.2)
    try:
        tests = (an_array_is_whole_and_runs_once, a_job_notices_nothing)
        failed = run_tests(cluster, [test for test in tests if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]])
        if failed:
            for server in cluster.servers:
                print(server.log_path, *server.said().splitlines()[-8:], sep="\n  ")
    finally:
        cluster.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

"""Work on several servers with the default lease, while leaders are killed: an array of so many tasks that they do not fit into one
transaction of etcd, and a training of ddp-worker. Usage: ha_work_test.py BUILD [TEST...]"""

import base64
import collections
import json
import signal
import sys
import threading
import time
import urllib.request

from ha_lib import NO_ANSWER, WORK_S, Cluster, all_jobs, ddpproto, run_tests, wait_for
from pace import paced

TASKS = 400  # several commits of more than 126 writes each
RANKS = 4
STEPS = 1500
MOST_STEPS_PER_S = 40  # so that it still trains when the second leader is replaced


def kill_leader(cluster):
    leader, token = cluster.leader(), cluster.seen.newest()
    leader.end(signal.SIGKILL)
    cluster.seen.wait_above(token)
    leader.start().ready()


# -- an array --


class Submission(threading.Thread):
    """Sends one request, and repeats it with the same id until it is answered."""

    def __init__(self, cluster, **fields):
        super().__init__(daemon=True)
        self.cluster, self.fields, self.job = cluster, fields, 0
        self.request = ddpproto.request_id()
        self.start()

    def run(self):
        end = time.monotonic() + WORK_S
        while self.job == 0 and time.monotonic() < end:
            for server in self.cluster.servers:
                try:
                    with ddpproto.Client(server.asked) as client:
                        self.job = client.submit(self.request, **self.fields)["job_id"]
                        return
                except NO_ANSWER:
                    time.sleep(0.02)  # between two tries


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


# -- a training --


def train(cluster, name, steps):
    """Submits the training and returns the job's number; each rank writes the loss of each step."""
    program = [cluster.build + "/worker/ddp-worker", "-a", "convnet", "--dummy", "-b", "20", "--lr", "0.01", "--momentum", "0.9",
               "--epochs", str(steps // 750 + 1), "--max-steps", str(steps), "--loss-log",
               "%s/%s.loss.%%r" % (cluster.folder, name)]
    done = cluster.ctl("submit", "--name", name, "--nodes", "2", "--nproc-per-node", "2", "--max-restarts", "3", "--", *program)
    assert done.returncode == 0, done
    return int(done.stdout.split()[0])


def losses(cluster, name):
    files = []
    for rank in range(RANKS):
        with open("%s/%s.loss.%d" % (cluster.folder, name, rank), encoding="ascii") as file:
            files.append(file.read())
    return files


def steps_done(cluster, name):
    try:
        with open("%s/%s.loss.0" % (cluster.folder, name), encoding="ascii") as file:
            return file.read().count("\n")
    except FileNotFoundError:
        return 0


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


def disturb(cluster, name, steps):
    """Kills two leaders while the job trains. Returns None if it had ended before that."""
    job = train(cluster, name, steps)
    log = "%s/%s.loss." % (cluster.folder, name)
    with paced(log + "0", log, MOST_STEPS_PER_S):
        for least in (1, steps // 5):
            wait_for("it trains", lambda one=least: steps_done(cluster, name) > one, WORK_S)
            pids = wait_for("the leader knows the processes", lambda: processes(cluster, job), WORK_S)
            kill_leader(cluster)
    trained_on = steps_done(cluster, name) < steps
    at_end = finish(cluster, job)
    assert at_end == pids and len(set(pids)) == RANKS, (pids, at_end)
    return job if trained_on else None


def a_training_notices_nothing(cluster):
    steps = STEPS
    for _ in range(4):
        name = "disturbed%d" % steps
        if disturb(cluster, name, steps):
            break
        print("%d steps had ended before the second leader was replaced: once more" % steps, flush=True)
        steps *= 3
    else:
        raise AssertionError("it never trained long enough")
    finish(cluster, train(cluster, "calm", steps))
    calm, disturbed = losses(cluster, "calm"), losses(cluster, name)
    assert calm[0].count("\n") == steps, calm[0][-200:]
    assert calm == disturbed, "the losses differ"


def main():
    cluster = Cluster(sys.argv[1], every_s=0.2)
    try:
        tests = (an_array_is_whole_and_runs_once, a_training_notices_nothing)
        failed = run_tests(cluster, [test for test in tests if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]])
        if failed:
            for server in cluster.servers:
                print(server.log, *server.said().splitlines()[-8:], sep="\n  ")
    finally:
        cluster.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

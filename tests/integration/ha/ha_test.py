"""Several servers on a real etcd: leaders are killed, stopped, ended and cut off from etcd, while jobs are submitted and one job
trains. Usage: ha_test.py BUILD [ROUNDS [CUTS [SEED [BACKUP]]]]; by hand with more rounds, and with the jobs of a backup
(docs/results/2026-11-23-several-servers.md).

After each fault another server leads. No acknowledged request is lost or doubled, tokens never go back, and the job that runs
all the time stays in its first generation."""

import contextlib
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes import wire
from processes.etcd import restore, wait_for
from processes.servers import Cluster
from processes.waiting import Stopwatch
from ha_times import Times

LEASE = "2s"
SLOW_S = 3.0  # a failover that takes longer has its phases printed


def kill(cluster, leader):
    """kill -9; the server is started again when another one leads."""
    leader.end_by(signal.SIGKILL)
    yield
    leader.start()


def terminate(cluster, leader):
    """SIGTERM: the leader hands over by itself."""
    leader.end_by(signal.SIGTERM)
    assert leader.process.returncode == 0, leader.process.returncode
    yield
    leader.start()


def schedule(pid, policy, cpus):
    """Sets the policy of all threads except the first one, which serves clients. A thread may end meanwhile."""
    for task in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), cpus)
            if int(task) != pid or policy == os.SCHED_OTHER:
                os.sched_setscheduler(int(task), policy, os.sched_param(0))


def stop(cluster, leader):
    """SIGSTOP: when the server wakes up while another one leads, it must not answer pending requests. The thread that renews its lease
    would end it soon; here that thread runs last, so that the server's own check of the clock is tested."""
    pid, cpus = leader.process.pid, os.sched_getaffinity(0)
    clients = [wire.Client(leader.asked) for _ in range(20)]
    tokens = [client.ask("server_get", request_id=1)["token"] for client in clients]
    schedule(pid, os.SCHED_IDLE, {min(cpus)})
    leader.signal(signal.SIGSTOP)
    yield
    for client in clients:
        client.send("server_get", request_id=2)
    clients[0].send("submit", **wire.submission(name="stale"))
    leader.signal(signal.SIGCONT)
    answers = [answer for client in clients for answer in client.recv_until_closed()]
    assert answers == [], "the server with token %d woke up and answered: %s" % (tokens[0], answers)
    schedule(pid, os.SCHED_OTHER, cpus)
    for client in clients:
        client.close()


def cut(cluster, leader):
    """Cuts the leader off from etcd only: it must stop leading by itself."""
    leader.links.is_cut = True
    yield
    leader.links.is_cut = False


def choose(rounds, cuts, seed):
    faults = [cut] * cuts + [(kill, kill, kill, stop, terminate)[i % 5] for i in range(rounds)]
    random.Random(seed).shuffle(faults)
    return faults


def run_fault(cluster, fault):
    """Waits for some submits and at least one job that this leader has started, so that its nodes are connected again."""
    acked, begun = len(cluster.submitter.acked) + random.randint(1, 20), len(cluster.ran())
    wait_for("submits are answered", lambda: len(cluster.submitter.acked) >= acked)
    wait_for("a job begins", lambda: len(cluster.ran()) > begun)
    leader, token = cluster.leader(), cluster.seen.newest()
    times = Times(cluster, fault.__name__, leader)
    begun = fault(cluster, leader)
    watch = Stopwatch()
    next(begun)
    took = cluster.seen.wait_above(token) - watch.begun
    for _ in begun:
        pass
    cluster.check()
    if took > SLOW_S:
        times.show(took)
    return took


def train(cluster):
    """A training job that must not notice the faults."""
    with cluster.client() as client:
        return client.submit(name="train", argv=["/bin/sh", "-c", "echo begun >> %s/train; sleep 100000" % cluster.folder])[
            "job_id"]


def check_end(cluster, training):
    by_name = cluster.check_jobs(training)
    assert "stale" not in by_name, "a server that did not lead any more took a job"
    trained = by_name["train"][0]
    assert (trained["state"], trained["generation"], trained["restarts"]) == ("running", 1, 0), trained
    with open(cluster.folder + "/train", encoding="ascii") as lines:
        assert lines.read() == "begun\n"
    return len(cluster.submitter.acked)


def show(took):
    """How long no server led."""
    everything = sorted(one for times in took.values() for one in times)
    if not everything:
        return
    for name, times in sorted(took.items()) + [("all", everything)]:
        times.sort()
        print("%-9s %4d  p50 %.2f s  p99 %.2f s  max %.2f s" % (
            name, len(times), times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)], times[-1]))


def main():
    build = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 17
    cuts = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    random.seed(seed)
    fill = restore(build, sys.argv[5]) if len(sys.argv) > 5 else None
    cluster = Cluster(build, ["--leader-lease", LEASE], fill=fill)
    took = {}
    try:
        training = train(cluster)
        wait_for("the training runs", lambda: cluster.ctl("wait", "--for", "running", "train").returncode == 0)
        for i, fault in enumerate(choose(rounds, cuts, seed)):
            took.setdefault(fault.__name__, []).append(run_fault(cluster, fault))
            if (i + 1) % 50 == 0:
                print("%d faults" % (i + 1), flush=True)
        count = check_end(cluster, training)
    except BaseException:
        print("seed %d" % seed, flush=True)
        show(took)
        for server in cluster.servers:
            with open(server.log_path, encoding="utf-8") as log:
                print(server.log_path, *log.read().splitlines()[-8:], sep="\n  ")
        raise
    finally:
        cluster.close()
    show(took)
    print("%d jobs answered, each stored and run once" % count)


if __name__ == "__main__":
    main()

"""Several servers, of which one has a state directory on a disk that does not answer, or a loop that stands still.
Usage: frozen_test.py BUILD STUCK_LIBRARY [TEST...]

The library (tests/lib/stuck_disk.c) is preloaded into the servers."""
import contextlib
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes import wire
from processes.etcd import wait_for
from processes.servers import Cluster
from processes.runner import run_tests, tests_of
from processes.waiting import Stopwatch, lasting

BUILD, LIBRARY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
LEASE_S = 2
NOTE_S = 1  # the leader notes what it has committed at most once in this time
LATE_S = 10  # SEEN_LATE_US
LEADS_S = 20  # two leases, a claim, reading the state; on a busy machine
ANSWER_S = 5


@contextlib.contextmanager
def a_cluster(nodes=0):
    """A cluster without submits, and a function that hangs calls of one server: hang("etcd-seen", server)."""
    marks, made = tempfile.mkdtemp(prefix="ddp-frozen-"), []
    os.environ.update(LD_PRELOAD=LIBRARY, DDP_STUCK_FILE=marks + "/stuck", ASAN_OPTIONS="verify_asan_link_order=0")

    def hang(what, server):
        path = f"{marks}/stuck.{what}"
        with open(path + ".new", "w", encoding="ascii") as mark:
            mark.write(str(server.process.pid))
        os.rename(path + ".new", path)
        made.append(path)

    def thaw():
        while made:
            os.unlink(made.pop())

    try:
        cluster = Cluster(BUILD, ["--leader-lease", f"{LEASE_S}s"], servers=2, nodes=nodes, every_s=0.05)
        try:
            yield cluster, hang, thaw
        finally:
            thaw()
            cluster.close()
    finally:
        del os.environ["LD_PRELOAD"]
        shutil.rmtree(marks)


def standby_of(cluster, leader):
    (other,) = [server for server in cluster.servers if server is not leader]
    wait_for("the standby knows the state", lambda: os.path.exists(seen_path(other)))
    return other


def seen_path(server):
    return os.path.join(server.argv[server.argv.index("--state-dir") + 1], "etcd-seen")


def test_a_leader_with_a_frozen_state_directory_goes_on():
    """Commits go to etcd, so the disk holds up none; the log says what is not written."""
    with a_cluster() as (cluster, hang, thaw):
        leader, token = cluster.leader(), cluster.seen.newest()
        hang("etcd-seen", leader)
        watch = Stopwatch()
        line = f"the disk of {seen_path(leader)} does not answer: it has taken longer than {LATE_S} s"
        with wire.Client(leader.asked, ANSWER_S) as client:
            client.submit()  # each within ANSWER_S
        wait_for("the log names the disk", lambda: line in leader.said())
        watch.check("a disk that does not answer until it is told", LATE_S - NOTE_S)
        with wire.Client(leader.asked, ANSWER_S) as client:
            job = client.submit()["job_id"]
        assert cluster.seen.newest() == token, "another server led meanwhile"
        thaw()
        wait_for("it is written again", lambda: f"{seen_path(leader)} is written again" in leader.said())

        def noted():
            with open(seen_path(leader), encoding="ascii") as file:
                return int(file.read().split(" job=")[1].split()[0]) >= job
        wait_for("the job is noted", noted)
        cluster.check()


def test_a_standby_with_a_frozen_state_directory_leads():
    with a_cluster() as (cluster, hang, thaw):
        leader, token = cluster.leader(), cluster.seen.newest()
        other = standby_of(cluster, leader)
        hang("etcd-seen", other)
        leader.end_by(signal.SIGKILL)
        with lasting("the change of the leader", at_most=LEADS_S):
            cluster.seen.wait_above(token)
        with wire.Client(other.asked, ANSWER_S) as client:
            client.submit()
        thaw()
        leader.start()
        cluster.check()


def test_another_server_leads_when_the_loop_of_the_leader_stands_still():
    with a_cluster(nodes=1) as (cluster, hang, thaw):
        leader, token = cluster.leader(), cluster.seen.newest()
        other = standby_of(cluster, leader)
        wait_for("a job runs", lambda: len(cluster.ran()) > 0)
        hang("loop", leader)
        with lasting("the change of the leader", at_most=LEADS_S):
            cluster.seen.wait_above(token)
        assert cluster.leader() is other
        ran = len(cluster.ran())
        wait_for("the node serves the new leader", lambda: len(cluster.ran()) > ran)
        assert "its loop has stood still" in leader.log(), leader.log()
        token = cluster.seen.newest()
        thaw()
        with wire.Client(other.asked, ANSWER_S) as client:
            wait_for("the other one stands by", lambda: len(client.ask("server_get", request_id=1)["servers"]) == 2)
        assert cluster.seen.newest() == token
        cluster.check_jobs()


if __name__ == "__main__":
    sys.exit(run_tests(tests_of(globals()), sys.argv[3:]))

"""etcd is restored to an earlier state under running servers, as by `etcdctl snapshot restore`: its revisions go back, and later
changes are lost. Jobs acknowledged since that state are lost, but nothing else may go wrong: no job number is used twice, no job
acknowledged afterwards is confused with an earlier one, and the log says what happened.
Usage: snapshot_test.py BUILD [TEST...]"""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.etcd import Etcd, wait_for
from processes.servers import all_jobs, Cluster, NO_ANSWER, run_tests, WORK_S

BACK = "etcd has an earlier state than this server has seen"
BACK_IDS = BACK + r" \(commit \d+ of cluster (\w+); commit \d+ of cluster (\w+) was seen"


class OldEtcd(Etcd):
    """Three members whose data can be saved and restored."""

    def all_down(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def all_up(self):
        for i in range(3):
            self.start(i)
        self.wait_up()

    def keep(self):
        self.all_down()
        shutil.copytree(self.folder + "/etcd", self.folder + "/kept")
        self.all_up()

    def lose(self):
        """All members begin with empty data directories."""
        self.all_down()
        shutil.rmtree(self.folder + "/etcd")
        self.all_up()

    def put_back(self, while_down):
        self.all_down()
        shutil.rmtree(self.folder + "/etcd")
        shutil.copytree(self.folder + "/kept", self.folder + "/etcd")
        while_down()
        self.all_up()


def seen_file(server):
    return Path(server.argv[server.argv.index("--state-dir") + 1], "etcd-seen")


def work_goes_on(cluster, jobs):
    acked, begun = len(cluster.submitter.acked) + jobs, len(cluster.ran()) + jobs
    wait_for("submits are answered", lambda: len(cluster.submitter.acked) >= acked)
    wait_for("jobs begin", lambda: len(cluster.ran()) >= begun)


def begins(cluster, name):
    """A job that runs until it is stopped; a file counts its starts."""
    with cluster.client() as client:
        argv = ["/bin/sh", "-c", "echo begun >> %s/%s; sleep 100000" % (cluster.folder, name)]
        number = client.submit(name=name, argv=argv)["job_id"]
    wait_for("%s runs" % name, lambda: cluster.ctl("wait", "--for", "running", name).returncode == 0)
    return number


def all_have_noted(cluster, number):
    """A standby notes every three seconds what it sees."""
    for server in cluster.servers:
        seen = seen_file(server)
        wait_for("%s has job %d" % (seen, number),
                 lambda: seen.exists() and int(re.search(r"job=(\d+)", seen.read_text())[1]) >= number)


def go_back(cluster, while_down):
    """Saves etcd's state, does more work, and restores the state. Returns all job numbers used before, and the acknowledged requests."""
    etcd = cluster.etcd
    begins(cluster, "train")
    work_goes_on(cluster, 20)
    etcd.keep()
    work_goes_on(cluster, 20)
    begins(cluster, "later")
    work_goes_on(cluster, 20)
    with cluster.client() as client:
        given = {job["job_id"] for job in all_jobs(client)}
    cluster.submitter.pause()
    given |= set(cluster.submitter.acked.values())
    acked = set(cluster.submitter.acked)
    all_have_noted(cluster, max(given))
    # the tokens of the restored state are lower
    etcd.put_back(lambda: (while_down(), cluster.seen.forget()))
    cluster.submitter.go_on()
    return given, acked


def check_numbers(cluster, given, acked_before):
    new = {request: number for request, number in list(cluster.submitter.acked.items()) if request not in acked_before}
    assert not given & set(new.values()), "numbers that were given twice: %s" % sorted(given & set(new.values()))[:10]
    return new


def check_back(cluster, given, acked_before, with_training):
    submitter = cluster.submitter
    wait_for("submits are answered again", lambda: len(submitter.acked) >= len(acked_before) + 40)
    submitter.pause()
    new = check_numbers(cluster, given, acked_before)

    def all_ended():
        try:
            with cluster.client() as client:
                jobs = {job["name"]: job for job in all_jobs(client)}
        except NO_ANSWER:
            return None
        return jobs if all(jobs[request]["ended"] for request in new) else None

    jobs = wait_for("the new jobs have ended", all_ended, WORK_S)
    failed = [jobs[request] for request in new if jobs[request]["state"] != "succeeded"]
    assert failed == [], failed[:3]
    begun = cluster.ran()
    assert [request for request in new if begun.count(request) != 1] == []
    assert "later" not in jobs, jobs["later"]
    if with_training:  # once the leases of the nodes are over
        wait_for("the training begins again", lambda: cluster.ctl("wait", "--for", "running", "train", patience_s=WORK_S).returncode == 0)
    assert any(BACK in server.log() for server in cluster.servers), "no server says what happened"
    submitter.go_on()


def under_running_servers(cluster):
    given, acked = go_back(cluster, lambda: None)
    check_back(cluster, given, acked, True)


def all_start_again(cluster):
    """Restarts all servers, so that they know only what is in their files."""
    for server in cluster.servers:
        server.end_by(signal.SIGKILL)
    for server in cluster.servers:
        server.start()


def under_servers_that_start_again(cluster):
    """And once more with the same copy, which knows nothing of the first time."""
    given, acked = go_back(cluster, lambda: all_start_again(cluster))
    check_back(cluster, given, acked, False)
    cluster.submitter.pause()
    given |= set(cluster.submitter.acked.values())
    acked = set(cluster.submitter.acked)
    all_have_noted(cluster, max(given))
    cluster.etcd.put_back(lambda: (all_start_again(cluster), cluster.seen.forget()))
    cluster.submitter.go_on()
    check_back(cluster, given, acked, False)
    said = [found for server in cluster.servers for found in re.findall(BACK_IDS, server.log())]
    assert any(now != seen for now, seen in said), "nobody has noticed the second time: %s" % said


def a_moved_state_is_no_earlier_one(cluster):
    """A moved state has the cluster id that its servers know, and its commits are counted from the start."""
    begins(cluster, "train")
    work_goes_on(cluster, 40)
    cluster.submitter.pause()
    for server in cluster.servers:
        server.end_by(signal.SIGTERM)
    url, file = cluster.servers[0].links.url, cluster.folder + "/moved"
    ddpctl = cluster.build + "/ddpctl/ddpctl"
    subprocess.run([ddpctl, "backup", "--move", "--store", url, file], check=True, timeout=120)
    subprocess.run([ddpctl, "restore", "--store", url + "/other", file], check=True, timeout=120)
    cluster.seen.forget()
    for server in cluster.servers:
        server.argv[server.argv.index("--store") + 1] += "/other"
        server.start()
    cluster.submitter.go_on()
    work_goes_on(cluster, 20)
    with cluster.client() as client:
        train = {job["name"]: job for job in all_jobs(client)}["train"]
    assert (train["state"], train["generation"]) == ("running", 1), train
    assert not any(BACK in server.log() for server in cluster.servers)
    cluster.check_jobs(train["job_id"])


TOLD = "The server that leads is told"
DID_NOT_KNOW = "etcd was put back to an earlier state, which this server did not know"


def a_leader_that_knows_less_is_told(cluster):
    """The server that leads has the file of the time of the copy. It gives no number that a standby knows once that one has seen the
    state. Nodes, which know numbers, too, come later."""
    first, knows, away = cluster.servers
    begins(cluster, "train")
    work_goes_on(cluster, 20)
    cluster.submitter.pause()
    all_have_noted(cluster, 1)
    old = seen_file(first).read_bytes()
    cluster.etcd.keep()
    cluster.submitter.go_on()
    work_goes_on(cluster, 40)
    cluster.submitter.pause()
    given = set(cluster.submitter.acked.values())
    all_have_noted(cluster, max(given))

    def swap():
        for daemon in cluster.nodes + cluster.servers:
            daemon.end_by(signal.SIGKILL)
        seen_file(first).write_bytes(old)
        seen_file(away).write_bytes(old)
        cluster.seen.forget()
        first.start()

    cluster.etcd.put_back(swap)
    cluster.seen.wait_above(0)
    assert cluster.leader() is first
    knows.start()
    wait_for("the standby has the rows", lambda: "this server stands by with the rows" in knows.said())
    acked = set(cluster.submitter.acked)
    cluster.submitter.go_on()
    wait_for("submits are answered", lambda: len(cluster.submitter.acked) >= len(acked) + 40)
    check_numbers(cluster, given, acked)
    for node in cluster.nodes:
        node.start()
    check_back(cluster, given, acked, False)
    assert TOLD in knows.log(), knows.log()
    assert DID_NOT_KNOW in first.log(), first.log()
    away.start()


LOST = "has no state, but this server has seen cluster"


def state_key(etcd):
    """Whether there is a state in etcd: the key that the first leader makes."""
    key = base64.b64encode(b"/ddp/format").decode()
    return "kvs" in etcd.ask(0, "v3/kv/range", {"key": key})


def an_empty_etcd_is_no_new_cluster(cluster):
    """No server leads, whether it ran meanwhile or not, and each says what was seen and what to do, until an administrator makes a
    new cluster."""
    begins(cluster, "train")
    work_goes_on(cluster, 20)
    for server in cluster.servers:
        wait_for("%s is written" % seen_file(server), seen_file(server).exists)
    cluster.submitter.pause()
    cluster.servers[0].end_by(signal.SIGKILL)
    cluster.etcd.lose()
    cluster.seen.forget()
    cluster.servers[0].start()
    for server in cluster.servers:
        wait_for("a server says that the state is lost", lambda: LOST in server.said())
    answer = cluster.ctl("server")
    assert answer.returncode != 0 and "etcd has no state, but had cluster" in answer.stderr, answer
    assert not state_key(cluster.etcd), "a server has made a new state"
    url = cluster.servers[0].links.url
    subprocess.run([cluster.build + "/rendezvous/rendezvous", "--new-cluster", "--store", url], check=True, timeout=120)
    work_goes_on_anew(cluster)


def work_goes_on_anew(cluster):
    cluster.submitter.go_on()
    work_goes_on(cluster, 20)
    cluster.submitter.pause()
    with cluster.client() as client:
        assert "train" not in {job["name"] for job in all_jobs(client)}
    cluster.submitter.go_on()


TESTS = [under_running_servers, under_servers_that_start_again, a_leader_that_knows_less_is_told, a_moved_state_is_no_earlier_one,
         an_empty_etcd_is_no_new_cluster]


def main():
    tests = [test for test in TESTS if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]]
    failed = 0
    for test in tests:
        cluster = Cluster(sys.argv[1], ["--leader-lease", "2s"], every_s=0.02, make_etcd=OldEtcd)
        try:
            failed += run_tests(cluster, [test])
            if failed:
                for server in cluster.servers:
                    print(server.log_path, *[line for line in server.log().splitlines() if " job " not in line], sep="\n  ")
        finally:
            cluster.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

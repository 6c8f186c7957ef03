"""Three members of etcd in trouble under running servers: with TLS and client certificates, killed, stopped, compacted, out of space;
and certificates that expire or are replaced. Submits go on, each acknowledged job is stored once, and the training is not disturbed.
Usage: members_test.py BUILD [TEST...]"""

import base64
import os
import random
import shutil
import signal
import ssl
import sys
import urllib.error

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.etcd import Etcd, wait_for
from processes.servers import Cluster, count_servers, run_tests
from secure_etcd import Authority

QUOTA = 24 << 20


def coded(text):
    return base64.b64encode(text.encode()).decode()


class TlsMembers(Etcd):
    """Members that accept only clients with a certificate of their authority."""

    scheme = "etcds"

    def prepare(self):
        self.authority, self.newer = Authority(self.folder, "ca"), Authority(self.folder, "newer-ca")
        self.files = {name: "%s/now-%s" % (self.folder, name) for name in ("ca", "etcd.crt", "etcd.key", "us.crt", "us.key")}
        self.trusted = self.authority
        self.put_authorities(self.authority)
        self.put("etcd", self.authority.sign("etcd", "IP:127.0.0.1"))
        self.put("us", self.authority.sign("us"))
        self.arguments = ["--cert-file", self.files["etcd.crt"], "--key-file", self.files["etcd.key"], "--client-cert-auth",
                          "--trusted-ca-file", self.files["ca"]]
        self.options = ["--store-ca", self.files["ca"], "--store-cert", self.files["us.crt"], "--store-key",
                        self.files["us.key"]]

    @property
    def context(self):
        context = ssl.create_default_context(cafile=self.files["ca"])
        context.load_cert_chain(self.files["us.crt"], self.files["us.key"])
        return context

    def put_authorities(self, *authorities):
        with open(self.files["ca"] + ".new", "w", encoding="ascii") as out:
            for one in authorities:
                with open(one.ca, encoding="ascii") as text:
                    out.write(text.read())
        os.rename(self.files["ca"] + ".new", self.files["ca"])

    def put(self, who, pair):
        for path, end in zip(pair, ("crt", "key")):
            shutil.copy(path, self.files[who + "." + end] + ".new")
            os.rename(self.files[who + "." + end] + ".new", self.files[who + "." + end])

    def again(self, i):
        self.kill(i)
        self.start(i)
        self.wait_up()


class SmallMembers(Etcd):
    arguments = ["--quota-backend-bytes", str(QUOTA)]


def goes_on(cluster):
    acked, begun = len(cluster.submitter.acked) + 5, len(cluster.ran()) + 5
    wait_for("submits are answered", lambda: len(cluster.submitter.acked) >= acked)
    wait_for("jobs begin", lambda: len(cluster.ran()) >= begun)
    wait_for("all servers are there", lambda: count_servers(cluster) == 3)


def fail_over(cluster):
    leader, token = cluster.leader(), cluster.seen.newest()
    leader.end_by(signal.SIGKILL)
    cluster.seen.wait_above(token)
    leader.start()
    goes_on(cluster)


def members_and_leaders_are_killed(cluster):
    for i in range(3):
        cluster.etcd.kill(i)
        goes_on(cluster)
        fail_over(cluster)
        cluster.etcd.start(i)
        cluster.etcd.wait_up()


def all_are_connected_anew(cluster):
    """Restarts the members, since open connections do not check certificates again."""
    for i in range(3):
        cluster.etcd.again(i)
        goes_on(cluster)


def certificates_are_replaced(cluster):
    """Certificates are replaced by those of another authority, in the steps of docs/operations.md, without restarting a server."""
    etcd = cluster.etcd
    etcd.put_authorities(etcd.authority, etcd.newer)
    all_are_connected_anew(cluster)
    etcd.put("us", etcd.newer.sign("us2"))
    etcd.put("etcd", etcd.newer.sign("etcd2", "IP:127.0.0.1"))
    all_are_connected_anew(cluster)
    etcd.put_authorities(etcd.newer)
    etcd.trusted = etcd.newer
    all_are_connected_anew(cluster)
    fail_over(cluster)


def certificates_end(cluster):
    """Our certificates expire, then those of the members: the log says so, and new files are used without a restart."""
    etcd = cluster.etcd
    for who, words in (("us", "--store-cert has ended"), ("etcd", "certificate has expired")):
        past = etcd.trusted.sign(who + "-past", "IP:127.0.0.1", days=-1)
        good = etcd.trusted.sign(who + "-good", "IP:127.0.0.1")
        etcd.put(who, past)
        for i in range(3):
            etcd.kill(i)
            etcd.start(i)
        wait_for("each server says that a certificate has ended",
                 lambda said=words: all(said in server.log() for server in cluster.servers))
        etcd.put(who, good)
        goes_on(cluster)


def members_are_stopped(cluster):
    for i in range(3):
        process = cluster.etcd.processes[i]
        process.send_signal(signal.SIGSTOP)
        goes_on(cluster)
        process.send_signal(signal.SIGCONT)
        cluster.etcd.wait_up()
        goes_on(cluster)


def compact(etcd):
    revision = etcd.ask(0, "v3/kv/range", {"key": coded("/ddp/seq")}, 60)["header"]["revision"]
    etcd.ask(0, "v3/kv/compaction", {"revision": revision, "physical": True}, 60)
    for i in range(3):
        etcd.ask(i, "v3/maintenance/defragment", {}, 60)


def history_is_dropped(cluster):
    for _ in range(5):
        compact(cluster.etcd)
        goes_on(cluster)
    fail_over(cluster)


def fill(etcd):
    """Writes until etcd accepts no more writes."""
    value = base64.b64encode(random.Random(1).randbytes(1 << 19)).decode()
    for i in range(200):
        try:
            etcd.ask(0, "v3/kv/put", {"key": coded("junk/%d" % i), "value": value}, 30)
        except urllib.error.HTTPError as error:
            assert b"space exceeded" in error.read()
            return
    raise AssertionError("etcd is not full")


def there_is_no_room(cluster):
    etcd = cluster.etcd
    fill(etcd)
    wait_for("a server says that etcd has no room",
             lambda: any("has no room" in server.log() for server in cluster.servers))
    acked = len(cluster.submitter.acked)
    etcd.ask(0, "v3/kv/deleterange", {"key": coded("junk/"), "range_end": coded("junk0")}, 30)
    compact(etcd)
    for alarm in etcd.ask(0, "v3/maintenance/alarm", {"action": "GET"}, 30)["alarms"]:
        etcd.ask(0, "v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm}, 30)
    wait_for("submits are answered again", lambda: len(cluster.submitter.acked) > acked)
    goes_on(cluster)
    fail_over(cluster)


def train(cluster):
    with cluster.client() as client:
        cluster.training = client.submit(name="train", argv=["/bin/sleep", "100000"])["job_id"]
    wait_for("the training runs", lambda: cluster.ctl("wait", "--for", "running", "train").returncode == 0)


def all_ran_once(cluster):
    trained = cluster.check_jobs(cluster.training)["train"][0]
    assert (trained["state"], trained["generation"], trained["restarts"]) == ("running", 1, 0), trained


GROUPS = [
    (TlsMembers, [members_and_leaders_are_killed, certificates_are_replaced, certificates_end]),
    (SmallMembers, [members_are_stopped, history_is_dropped, there_is_no_room]),
]


def run_group(build, make_etcd, tests):
    cluster = Cluster(build, ["--leader-lease", "2s"], every_s=0.05, make_etcd=make_etcd)
    try:
        print(make_etcd.__name__ + ":", flush=True)
        failed = run_tests(cluster, [train, *tests, all_ran_once])
        if failed:
            for server in cluster.servers:
                lines = [line for line in server.log().splitlines() if " job " not in line]
                print(server.log_path, *lines[-25:], sep="\n  ")
    finally:
        for process in cluster.etcd.processes:
            process.send_signal(signal.SIGCONT)
        cluster.close()
    return failed


def main():
    failed = 0
    for make_etcd, tests in GROUPS:
        tests = [test for test in tests if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]]
        if tests:
            failed += run_group(sys.argv[1], make_etcd, tests)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

"""Several servers on an etcd with authentication: by certificates, by users and passwords, with tokens that expire all the time. Each
acknowledged job is stored once, a standby follows, and problems are reported.
Usage: secure_test.py BUILD [TEST...]"""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.etcd import wait_for
from processes.servers import Cluster, Member, run_tests
from secure_etcd import ShortEtcd, TlsEtcd, UsersEtcd


def standbys(cluster):
    leader = cluster.leader()
    return [server for server in cluster.servers if server is not leader]


def standby_has_rows(cluster):
    for server in standbys(cluster):
        wait_for("a standby has the rows", lambda one=server: "this server stands by with the rows" in one.said())


def work_goes_on(cluster):
    """Waits until submits are answered and jobs start."""
    acked, begun = len(cluster.submitter.acked) + 5, len(cluster.ran())
    wait_for("submits are answered", lambda: len(cluster.submitter.acked) >= acked)
    wait_for("a job begins", lambda: len(cluster.ran()) > begun)


def fail_over(cluster):
    leader, token = cluster.leader(), cluster.seen.newest()
    leader.end_by(signal.SIGKILL)
    cluster.seen.wait_above(token)
    leader.start()


def change_leaders(cluster):
    for _ in range(2):
        work_goes_on(cluster)
        standby_has_rows(cluster)
        fail_over(cluster)
    work_goes_on(cluster)


def leaders_change(cluster):
    """Each leader already had the rows as a standby: no server had to read them because it lacked the right to watch."""
    change_leaders(cluster)
    for server in cluster.servers:
        assert "no copy of the rows" not in server.said(), server.said()
        assert "permission denied" not in server.said(), server.said()
        assert "user name is empty" not in server.said(), server.said()


def says(cluster, words, options, url=None):
    """A server with these options logs these words, never leads, and ends when it is told to."""
    name = "%s/wrong%d" % (cluster.folder, len(os.listdir(cluster.folder)))
    server = Member([cluster.build + "/rendezvous/rendezvous", "--state-dir", name, "--store", url or cluster.etcd.url(),
                     *options], name + ".log").begin()
    cluster.nodes.append(server)  # is ended with the others
    server.ready()
    words = [*words, "the keys could not be read"]  # logged once two attempts to read the keys have failed
    wait_for("%s is said in %s" % (words, server.log_path), lambda: all(word in server.said() for word in words))
    assert "etcd answers again" not in server.said(), server.said()
    server.end_by(signal.SIGTERM)
    assert server.process.returncode == 0, server.process.returncode
    assert "this server leads" not in server.said()


def backup(cluster, *options, url=None):
    file = "%s/backup%d" % (cluster.folder, len(os.listdir(cluster.folder)))
    return subprocess.run([cluster.build + "/ddpctl/ddpctl", "backup", "--store", url or cluster.etcd.url(), *options, file],
                          capture_output=True, text=True, timeout=120, check=False)


def wrong_certificates_are_named(cluster):
    etcd = cluster.etcd
    says(cluster, ["127.0.0.1:", "certificate", "--store-ca"], etcd.with_files(ca=etcd.other.ca))
    says(cluster, ["localhost:", "certificate", "localhost'"], etcd.options, url=etcd.url("localhost"))
    says(cluster, ["127.0.0.1:", " alert ", "--store-cert"], ["--store-ca", etcd.authority.ca])
    says(cluster, ["127.0.0.1:", " alert ", "--store-cert"],
         etcd.with_files(cert=etcd.foreign_cert, key=etcd.foreign_key))
    says(cluster, ["127.0.0.1:", "etcds://"], [], url=etcd.url().replace("etcds", "etcd"))


def a_backup_has_the_certificates_too(cluster):
    etcd = cluster.etcd
    done = backup(cluster, *etcd.options)
    assert done.returncode == 0 and " jobs" in done.stdout, done
    done = backup(cluster, *etcd.with_files(ca=etcd.other.ca))
    assert done.returncode == 1 and "--store-ca" in done.stderr, done


def wrong_users_are_named(cluster):
    etcd = cluster.etcd
    says(cluster, ["user ddp", "invalid user ID or password", "--store-password-file"], etcd.as_user("ddp", "wrong"))
    says(cluster, ["permission denied", "under the prefix"], etcd.as_user("guest", "of guest"))
    says(cluster, ["permission denied", "under the prefix"], etcd.options, url=etcd.url() + "/other")
    says(cluster, ["user name is empty", "--store-user"], [])


def a_backup_has_the_user_too(cluster):
    done = backup(cluster, *cluster.etcd.options)
    assert done.returncode == 0 and " jobs" in done.stdout, done
    done = backup(cluster, *cluster.etcd.as_user("ddp", "wrong"))
    assert done.returncode == 2 and "invalid user ID or password" in done.stderr, done


def etcd_starts_again(cluster):
    """There is only one member, so no server can lead meanwhile."""
    standby_has_rows(cluster)
    cluster.etcd.again()
    work_goes_on(cluster)


def all_tokens_are_forgotten(cluster):
    """Authentication is turned off and on, as an operator may do to look for a problem."""
    token = cluster.etcd.token()
    root = cluster.etcd.must("auth/authenticate", {"name": "root", "password": "of root"})["token"]
    standby_has_rows(cluster)
    cluster.etcd.must("auth/disable", {}, root)
    cluster.etcd.must("auth/enable", {})
    assert not cluster.etcd.takes(token), "etcd knows a token from before"
    work_goes_on(cluster)
    fail_over(cluster)
    work_goes_on(cluster)


def users_are_changed(cluster):
    """After a change of users, etcd refuses older tokens with a different error."""
    root = cluster.etcd.must("auth/authenticate", {"name": "root", "password": "of root"})["token"]
    for i in range(3):
        cluster.etcd.must("auth/user/add", {"name": "more%d" % i, "password": "x"}, root)
        root = cluster.etcd.must("auth/authenticate", {"name": "root", "password": "of root"})["token"]
        work_goes_on(cluster)
    fail_over(cluster)
    work_goes_on(cluster)


def tokens_end(cluster):
    """Tokens expire while servers lead, stand by and change roles."""
    for _ in range(3):
        token = cluster.etcd.token()
        work_goes_on(cluster)
        wait_for("a token ends", lambda one=token: not cluster.etcd.takes(one))
    change_leaders(cluster)


def count_readings(server):
    return server.said().count("this server stands by with the rows")


def cut_off(cluster, server):
    """Cuts a standby off until its token has expired. Returns whether it then follows with the rows that it had."""
    standby_has_rows(cluster)
    readings, token = count_readings(server), cluster.etcd.token()
    server.links.is_cut = True
    wait_for("a token ends", lambda: not cluster.etcd.takes(token))
    server.links.resets = True
    server.links.is_cut = False
    work_goes_on(cluster)
    standby_has_rows(cluster)
    return count_readings(server) == readings


def watches_begin_again(cluster):
    """On a busy machine a new token may expire before it is used, and then the rows are read again: so several tries."""
    for _ in range(6):
        if cut_off(cluster, standbys(cluster)[0]):
            break
    else:
        raise AssertionError("a standby whose token ends reads all rows each time")
    fail_over(cluster)
    work_goes_on(cluster)


GROUPS = [
    (TlsEtcd, [leaders_change, wrong_certificates_are_named, a_backup_has_the_certificates_too]),
    (UsersEtcd, [leaders_change, wrong_users_are_named, a_backup_has_the_user_too, etcd_starts_again, all_tokens_are_forgotten,
                 users_are_changed]),
    (ShortEtcd, [tokens_end, watches_begin_again]),
]


def run_group(build, make_etcd, tests):
    cluster = Cluster(build, ["--leader-lease", "3s"], servers=2, nodes=1, every_s=0.05, make_etcd=make_etcd)
    try:
        print(make_etcd.__name__ + ":", flush=True)
        failed = run_tests(cluster, [*tests, all_ran_once])
        if failed:
            for server in cluster.servers:
                print(server.log_path, *server.said().splitlines()[-12:], sep="\n  ")
    finally:
        cluster.close()
    return failed


def all_ran_once(cluster):
    cluster.check_jobs()


def main():
    failed = 0
    for make_etcd, tests in GROUPS:
        tests = [test for test in tests if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]]
        if tests:
            failed += run_group(sys.argv[1], make_etcd, tests)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

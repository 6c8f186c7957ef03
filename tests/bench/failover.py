"""How long nobody leads where the state on etcd has many ended jobs. Usage: failover.py BUILD BACKUP [KILLS [WARM]]

BACKUP is a file of `ddpctl backup`, say of a state with 100,000 ended jobs; it is restored into an etcd of three members, and three
servers are started on it. Then the leader is killed, again and again; before each kill both standbys have the rows (their logs
say so; WARM 0: no waiting). From the kill to the first answer of the next leader is what is printed."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "ha"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.etcd import restore, wait_for
from processes.servers import Cluster

HAS_ROWS = "stands by with the rows"


def wait_for_rows(cluster, leader):
    for server in cluster.servers:
        if server is not leader:
            wait_for("a standby has the rows", lambda one=server: HAS_ROWS in one.said(), 600)


def choose_leader(cluster, warm):
    """Who leads when both standbys have the rows; on a busy machine that may change while they read them."""
    while True:
        leader, token = cluster.leader(), cluster.seen.newest()
        if warm:
            wait_for_rows(cluster, leader)
        acked = len(cluster.submitter.acked)
        wait_for("submits are answered", lambda: len(cluster.submitter.acked) > acked + 5)
        if cluster.seen.newest() == token:
            return leader, token


def main():
    build, backup = sys.argv[1:3]
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    warm = len(sys.argv) < 5 or sys.argv[4] != "0"
    cluster = Cluster(build, fill=restore(build, backup))
    took = []
    try:
        for _ in range(kills):
            leader, token = choose_leader(cluster, warm)
            leader.end_by(signal.SIGKILL)
            at = time.monotonic()
            took.append(cluster.seen.wait_above(token) - at)
            print("%.2f s, load %.1f" % (took[-1], os.getloadavg()[0]), flush=True)
            leader.start()
            cluster.check()
    finally:
        for server in cluster.servers:
            with open(server.log_path, encoding="utf-8") as log:
                print(server.log_path, *log.read().splitlines()[-8:], sep="\n  ")
        cluster.close()
    took.sort()
    print("%d kills: p50 %.2f s, p99 %.2f s, longest %.2f s" % (
        len(took), took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)], took[-1]))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""launcherd --drain-on-term: at SIGTERM it stops its jobs with their grace, they continue on other nodes, and only then does it end."""
import json
import os
import signal
import socket
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ctl_lib import BUILD, WAIT_S, Case, Cluster, clean_environ, wait_until  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from unix_relay import UnixRelay  # noqa: E402

# On SIGTERM takes a second for its checkpoint, and prints that.
PROGRAM = "trap 'echo saving; sleep 1; echo saved; exit 143' TERM; echo begun; while :; do sleep 0.1; done"


class StopsLost(UnixRelay):
    """Between node and server: no stop arrives, and all else does."""

    lost = 0

    def move(self, source, target, passed):
        while head := source.recv(4, socket.MSG_WAITALL):
            body = source.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)
            if json.loads(body)["type"] == "stop":
                self.lost += 1
            else:
                target.sendall(head + body)


def start_node(case, cluster, name, *more):
    """Like ctl_lib's launch, but without --exit-with-parent, which conflicts with --drain-on-term."""
    with open(f"{case.dir}/{name}.log", "ab") as log:
        daemon = subprocess.Popen([os.path.join(BUILD, "launcherd", "launcherd"), "--server", cluster.server, "--name", name, "--slots", "1",
                                   "--allow-root", "--state-dir", f"{case.dir}/{name}", *more], env=clean_environ(),
                                  stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
    assert daemon.stdout.readline(), f"{name} did not get ready"
    cluster.daemons[name] = daemon


def a_stop_that_is_lost():
    """The node is connected all the time: after 10 s it stops its job itself, with the job's grace, and ends."""
    with Case() as case, Cluster(case, nodes=0) as cluster:
        server = cluster.server
        with StopsLost(f"{case.dir}/between.sock", server.removeprefix("unix:")) as relay:
            cluster.server = relay.address
            start_node(case, cluster, "leaves", "--drain-on-term")
            cluster.server = server
            job = cluster.submit("--name", "j", "--nodes", "1", "--nproc-per-node", "1", "--cwd", "/", "--", "sh", "-c", PROGRAM)
            wait_until("its first line", lambda: "begun" in cluster.ctl("logs", job).stdout)
            leaving = cluster.daemons.pop("leaves")
            leaving.send_signal(signal.SIGTERM)
            assert leaving.wait(WAIT_S) == 0
            leaving.stdout.close()
            assert relay.lost > 0
        with open(f"{case.dir}/leaves.log", encoding="utf-8") as log:
            text = log.read()
        assert "no server stops 1 shims: they are stopped from here" in text and "no job is here any more: ending" in text, text
        events = cluster.ctl("events", job).stdout
        assert "it leaves node leaves" in events and "was lost" not in events, events
        cluster.ctl("cancel", "--now", job)
    print("ok a stop that is lost")


def main():
    with Case() as case, Cluster(case, nodes=0) as cluster:
        start_node(case, cluster, "leaves", "--drain-on-term")
        job = cluster.submit("--name", "j", "--nodes", "1", "--nproc-per-node", "1", "--cwd", "/", "--", "sh", "-c", PROGRAM)
        wait_until("its first line", lambda: "begun" in cluster.ctl("logs", job).stdout)
        start_node(case, cluster, "stays")
        leaving = cluster.daemons.pop("leaves")
        leaving.send_signal(signal.SIGTERM)
        assert leaving.wait(WAIT_S) == 0
        leaving.stdout.close()
        with open(f"{case.dir}/leaves.log", encoding="utf-8") as log:
            text = log.read()
        assert "draining this node before the end" in text and "no job is here any more: ending" in text, text
        wait_until("its second generation", lambda: (s := cluster.status(job))["generation"] == 2 and s["state"] == "running")
        status = cluster.status(job)
        assert status["ranks"][0]["node"] == "stays" and status["restarts_used"] == 0, status
        events = cluster.ctl("events", job).stdout
        assert "it leaves node leaves, whose launcherd was told to end" in events, events
        cluster.ctl("cancel", "--now", job)
        wait_until("its end", lambda: cluster.status(job)["exit"] is not None)
        stays = cluster.daemons.pop("stays")
        stays.terminate()
        assert stays.wait(WAIT_S) == 0  # without the option it ends at once
        stays.stdout.close()
    print("ok a node leaves")
    a_stop_that_is_lost()


if __name__ == "__main__":
    main()

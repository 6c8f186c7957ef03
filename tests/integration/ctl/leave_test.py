#!/usr/bin/env python3
"""launcherd --drain-on-term: at SIGTERM it stops its jobs with their grace, they continue on other nodes, and only then does it end."""
import json
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.relay import UnixRelay
from processes.waiting import idle_words, wait_for

# On SIGTERM takes a second for its checkpoint, and prints that.
PROGRAM = "trap 'echo saving; sleep 1; echo saved; exit 143' TERM; echo begun; "


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


def start_node(cluster, name, *more):
    """Without --exit-with-parent, which conflicts with --drain-on-term."""
    cluster.start_node(name, 1, *more, outlives=True)


def a_stop_that_is_lost():
    """The node is connected all the time: after 10 s it stops its job itself, with the job's grace, and ends."""
    with Case() as case, Cluster(case, nodes=0) as cluster:
        server = cluster.address
        with StopsLost(f"{case.dir}/between.sock", server.removeprefix("unix:")) as relay:
            cluster.address = relay.address
            start_node(cluster, "leaves", "--drain-on-term")
            cluster.address = server
            job = cluster.submit("--name", "j", "--nodes", "1", "--nproc-per-node", "1", "--cwd", "/", "--", "sh", "-c", PROGRAM + idle_words(f"{case.dir}/idle"))
            wait_for("its first line", lambda: "begun" in cluster.ctl("logs", job).stdout)
            leaving = cluster.daemons.pop("leaves")
            assert leaving.end() == 0
            assert relay.lost > 0
        text = leaving.log()
        assert "no server stops 1 shims: they are stopped from here" in text and "no job is here any more: ending" in text, text
        events = cluster.ctl("events", job).stdout
        assert "it leaves node leaves" in events and "was lost" not in events, events
        cluster.ctl("cancel", "--now", job)
    print("ok a stop that is lost")


def main():
    with Case() as case, Cluster(case, nodes=0) as cluster:
        start_node(cluster, "leaves", "--drain-on-term")
        job = cluster.submit("--name", "j", "--nodes", "1", "--nproc-per-node", "1", "--cwd", "/", "--", "sh", "-c", PROGRAM + idle_words(f"{case.dir}/idle"))
        wait_for("its first line", lambda: "begun" in cluster.ctl("logs", job).stdout)
        start_node(cluster, "stays")
        leaving = cluster.daemons.pop("leaves")
        assert leaving.end() == 0
        text = leaving.log()
        assert "draining this node before the end" in text and "no job is here any more: ending" in text, text
        wait_for("its second generation", lambda: (s := cluster.status(job))["generation"] == 2 and s["state"] == "running")
        status = cluster.status(job)
        assert status["ranks"][0]["node"] == "stays" and status["restarts_used"] == 0, status
        events = cluster.ctl("events", job).stdout
        assert "it leaves node leaves, whose launcherd was told to end" in events, events
        cluster.ctl("cancel", "--now", job)
        wait_for("its end", lambda: cluster.status(job)["exit"] is not None)
        stays = cluster.daemons.pop("stays")
        assert stays.end() == 0  # without the option it ends at once
    print("ok a node leaves")
    a_stop_that_is_lost()


if __name__ == "__main__":
    main()

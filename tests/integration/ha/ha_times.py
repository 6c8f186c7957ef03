"""Shows the phases of a failover, from the logs of the servers: when they saw the lease end, when another server was elected, when that one had
its state; and how many standbys had the rows of the state when the fault came. For ha_test.py by hand."""

import datetime
import os
import re
import time

NOBODY = "no server leads"
ELECTED = "this server leads now"
HAS_STATE = "this server has its state"
HAS_ROWS = "stands by with the rows"


def time_of(line):
    stamp = re.match(r"(\d+-\d+-\d+)[T ](\d+:\d+:\d+\.\d+)", line)
    return datetime.datetime.fromisoformat("%s %s+00:00" % stamp.groups()).timestamp() if stamp else None


class Times:
    """The times of one fault. Make this object just before the fault."""

    def __init__(self, cluster, fault, leader):
        self.cluster, self.fault, self.leader = cluster, fault, leader
        self.sizes = [os.path.getsize(server.log_path) for server in cluster.servers]
        self.had_rows = [HAS_ROWS in server.said() for server in cluster.servers if server is not leader]
        self.at = time.time()
        self.load = os.getloadavg()[0]

    def since(self, i, server):
        with open(server.log_path, "rb") as log:
            log.seek(self.sizes[i])
            for line in log.read().decode().splitlines():
                at = time_of(line)
                if at is not None and at >= self.at:
                    yield at - self.at, line

    def show(self, took_s):
        """`took_s`: the time from the fault to the first answer of the next leader."""
        first = {NOBODY: [], ELECTED: [], HAS_STATE: []}
        for i, server in enumerate(self.cluster.servers):
            for at, line in self.since(i, server):
                for words, times in first.items():
                    if words in line and at < took_s + 1:
                        times.append(at)
        print("%-9s %.2f s: standbys with rows %d of 2; nobody leads %s, elected %s, has its state %s; load %.1f" % (
            self.fault, took_s, sum(self.had_rows), *(" ".join("%.2f" % at for at in sorted(times)) for times in first.values()),
            self.load), flush=True)

"""tests/lib/processes for the tests of this folder, as they call it: the condition first, and a build's folder."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD  # noqa: E402
from processes.own import OwnCluster, digits_env, losses, nodes_of  # noqa: E402, F401  pylint: disable=unused-import
from processes.proc import is_alive  # noqa: E402, F401  pylint: disable=unused-import
from processes.waiting import LONG_S as PATIENCE_S, wait_for  # noqa: E402, F401  pylint: disable=unused-import


def wait_until(condition, what, patience_s=PATIENCE_S):
    return wait_for(what, condition, patience_s)


def wait_status(cluster, job, condition, what):
    return cluster.wait_status(job, condition, what, PATIENCE_S)


class Cluster(OwnCluster):
    def __init__(self, build, nodes=2, slots=2, server_options=()):
        assert os.path.abspath(build) == BUILD, (build, BUILD)
        super().__init__(nodes, slots, server_options)

#!/usr/bin/env python3
"""PyTorch's own cases for stores, against our c10d store: store_cases.py TEST_STORE_PY STORE_SERVER

TEST_STORE_PY is PyTorch's test/distributed/test_store.py of the installed version (it is not part of its wheel). Whatever a case makes with
is_master=True becomes a client of a store-server of ours. Cases about a server within the process are left out, by name and with the reason."""
import importlib.util
import os
import subprocess
import sys
import unittest

import pytorch

pytorch.rerun_or_skip()

import torch.distributed as dist  # noqa: E402

IN_PROCESS = "it is about a server in the process of the client"
LEFT_OUT = {
    "test_address_already_in_use": IN_PROCESS, "test_multitenancy": IN_PROCESS, "test_repr": IN_PROCESS,
    "test_take_over_listen_socket": IN_PROCESS, "test_store_timeout_on_missing_clients": IN_PROCESS, "test_agent_store": IN_PROCESS,
    "test_init_pg_and_rpc_with_same_socket": IN_PROCESS, "test_common_errors": "no store is made", "test_dns_timeout": "no store is reached",
    "test_world_size_0_raises": "no store is made",
}
# The store without libuv has no queues: its client refuses them before anything is sent.
NO_QUEUES = ("test_queues", "test_queues_nonblocking", "test_queues_bidirectional", "test_queues_timeout")
CLASSES = ("TCPStoreTest", "LibUvTCPStoreTest", "PrefixTCPStoreTest", "RendezvousTCPTest", "RendezvousEnvTest")
servers = []
Real = dist.TCPStore


class Remote(Real):
    """A TCPStore that never serves: a master is a client of a store-server."""

    def __init__(self, host_name, port, world_size=None, is_master=False, *args, **kinds):
        kinds.pop("master_listen_fd", None)
        if is_master:
            server = subprocess.Popen([sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            host_name, port = server.stdout.readline().split()[1].rsplit(":", 1)
            servers.append(server)
        super().__init__(host_name, int(port), world_size, False, *args, **kinds)


def load(path):
    """The module of the cases, whose stores are Remote."""
    dist.TCPStore = sys.modules["torch.distributed.distributed_c10d"].TCPStore = Remote
    sys.modules["torch.distributed.rendezvous"].TCPStore = Remote
    spec = importlib.util.spec_from_file_location("test_store", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    module = load(sys.argv[1])
    suite = unittest.TestSuite()
    for name in CLASSES:
        for case in unittest.defaultTestLoader.getTestCaseNames(getattr(module, name, unittest.TestCase)):
            if name == "TCPStoreTest" and case in NO_QUEUES:
                print(f"left out {name}.{case}: PyTorch's client without libuv has no queues")
            elif case in LEFT_OUT:
                print(f"left out {name}.{case}: {LEFT_OUT[case]}")
            else:
                suite.addTest(getattr(module, name)(case))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for server in servers:
        server.stdin.close()
        server.wait(60)
    print(f"{result.testsRun} cases, {len(result.failures) + len(result.errors)} failed, {len(result.skipped)} skipped, {len(servers)} stores")
    return 0 if result.wasSuccessful() and result.testsRun > 20 else 1


if __name__ == "__main__":
    if len(sys.argv) != 3 or not os.access(sys.argv[2], os.X_OK):
        sys.exit(__doc__)
    sys.exit(main())

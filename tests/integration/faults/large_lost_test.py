"""Large messages to one node are lost on the way, as with a black hole for the path MTU: its hello and its beats pass, so it is up, and a
start order of 60 KiB holds up its connection until it closes it. The node has failed the job, by name, and the job runs on the other one.
usage: large_lost_test.py BUILD"""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, wait_until  # noqa: E402
from processes.relay import UnixRelay  # noqa: E402

LARGE_BYTES = 8 << 10
BYTES = 60 << 10


def receive(sock, count):
    data = b""
    while len(data) < count:
        got = sock.recv(count - len(data))
        if not got:
            raise OSError("closed")
        data += got
    return data


class BlackHole(UnixRelay):
    """From the server, nothing passes from the first large frame of a connection on."""

    stalled = 0  # connections that were held up

    def copy(self, source, target, passed):
        if passed:
            self.to_node(target, source)
        else:
            super().copy(source, target, passed)

    def to_node(self, near, far):
        try:
            while True:
                head = receive(far, 4)
                body = receive(far, struct.unpack(">I", head)[0])
                if len(body) > LARGE_BYTES:
                    self.stalled += 1
                    return
                near.sendall(head + body)
        except OSError:
            near.close()


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main():
    cluster = Cluster(sys.argv[1])
    hole = f"{cluster.folder}/hole.sock"
    lost = cluster.nodes[0]
    lost.argv[lost.argv.index(cluster.address)] = f"unix:{hole}"
    with BlackHole(hole, cluster.address[len("unix:"):]) as black_hole, cluster:
        job = cluster.submit("--nproc-per-node", "2", "--", "sh", "-c", "exit 0", "x" * BYTES)
        wait_until(lambda: cluster.status(job)["state"] in ("succeeded", "failed"), "the end of the job")
        status = cluster.status(job)
        assert status["state"] == "succeeded" and status["generation"] == 2, status
        assert status["where"] == "node1", status
        server, node = text_of(f"{cluster.folder}/server.log"), text_of(lost.log_path)
        assert "node node0 did not take its start order within 30 s, although it is up" in server, server
        assert "large ones may be lost on the way" in server, server
        assert server.count("node node0 has connected again 3 times") == 1, server
        assert node.count("it does not hold") == 1, node
        assert black_hole.stalled >= 3, black_hole.stalled
        # A small order passes, so the next job may run there.
        small = cluster.submit("--nproc-per-node", "2", "--nodes", "2", "--", "true")
        wait_until(lambda: cluster.status(small)["state"] == "succeeded", "a job with a small order")
        os.unlink(hole)
    print("ok")


main()

"""ddp-worker on two machines, two workers on each: its losses equal PyTorch's, also when a cable is pulled for 3 s meanwhile, and when
strangers connect to the ports of its ranks. usage: train_test.py [TEST...]"""
import json
import math
import os
import random
import sys
import threading

from cluster_lib import SHARED, Cluster, main
from processes.waiting import let_pass

TOLERANCE = 1e-4  # as tests/integration/golden
STEPS = int(os.environ.get("DDP_STEPS", "10"))  # 150 are an epoch


def golden():
    path = f"{SHARED}/golden/convnet-mnist-4ranks.json"
    if not os.path.exists(path) or not os.path.isdir(f"{SHARED}/data/mnist"):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)["losses"][0]


def start_training(cluster, late_s=0):
    """The last rank starts late, so the others wait for it with open ports."""
    return cluster.submit("--nodes", "2", "--nproc-per-node", "2", "--max-restarts", "3", "--", "env", "OMP_NUM_THREADS=1",
                          "sh", "-c", f'test "$RANK" != 3 || sleep {late_s}; exec "$@"', "sh", f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "--seed", "0", "-b", "100", "--lr", "1e-4",
                          "--epochs", "1", "--max-steps", str(STEPS), "--loss-log", f"{cluster.dir}/loss-%r",
                          f"{cluster.shared}/data/mnist")


def losses(cluster, rank):
    try:
        with open(f"{cluster.dir}/loss-{rank}", encoding="ascii") as file:
            return [float(line.split()[2]) for line in file if line.endswith("\n")]
    except OSError:
        return []


def finish(cluster, job, expected):
    try:
        found = cluster.wait_job(job, lambda one: one["state"] in ("succeeded", "failed", "cancelled"), "ended", 420)
    except AssertionError:
        print(cluster.status(job), cluster.ctl("logs", job, ok=False).stdout[-3000:])
        raise
    log = cluster.ctl("logs", job, ok=False)
    assert found["state"] == "succeeded", f"{found}\n{log.stdout[-3000:]}{log.stderr}\n{cluster.ctl('why', job, ok=False).stdout}"
    assert found["generation"] == 1, found
    worst = 0.0
    for rank in range(4):
        ours = losses(cluster, rank)
        assert len(ours) == STEPS, (rank, len(ours))
        for step, (one, other) in enumerate(zip(ours, expected[rank])):
            assert abs(one - other) <= TOLERANCE and not math.isnan(one), f"rank {rank}, step {step}: {one}, PyTorch {other}"
            worst = max(worst, abs(one - other))
    print(f"  {STEPS} steps of 4 ranks on 2 machines, largest difference {worst:.1e}", flush=True)


def test_golden_losses_and_a_pulled_cable():
    expected = golden()
    if expected is None:
        return "skip (no MNIST or no golden losses in ../shared)"
    with Cluster() as cluster:
        cluster.node("a")
        two = cluster.node("b")
        job = start_training(cluster)
        cluster.wait_job(job, lambda one: (one["progress"]["step"] or 0) >= 1, "past the first step")
        two.cut()
        let_pass(3)  # this duration is what the test is about
        two.mend()
        finish(cluster, job, expected)
    return None


class Caller(threading.Thread):
    """Connects to every port that a machine listens on, except the server's; sends nothing, nonsense or half a hello, and stays connected."""

    def __init__(self, cluster, target, number):
        super().__init__(daemon=True)
        self.machine = cluster.machine(f"caller{number}")
        self.target, self.running, self.calls, self.ports = target, True, 0, set()

    def listening(self):
        found = set()
        for name in ("tcp", "tcp6"):
            with open(f"/proc/{self.target.holder.pid}/net/{name}", encoding="ascii") as file:
                for line in file.readlines()[1:]:
                    words = line.split()
                    if words[3] == "0A":
                        found.add(int(words[1].rsplit(":", 1)[1], 16))
        return found

    def run(self):
        socks = []
        while self.running:
            for port in self.listening():
                self.ports.add(port)
                try:
                    sock = self.machine.connect(self.target.address, port, timeout_s=1)
                    sock.sendall([b"x", b"GET / HTTP/1.1\r\n\r\n" * 20, random.Random(1).randbytes(92), random.Random(2).randbytes(40)][self.calls % 4])
                    socks.append(sock)
                    self.calls += 1
                except OSError:
                    pass
                if len(socks) > 300:
                    socks.pop(0).close()
            let_pass(0.02)  # leave processor time to the ranks
        for sock in socks:
            sock.close()


def test_strangers_call_the_ranks():
    """Strangers call from before the ranks meet until the end: none gets in, no rank has to wait, and the losses are the same."""
    expected = golden()
    if expected is None:
        return "skip (no MNIST or no golden losses in ../shared)"
    with Cluster() as cluster:
        machines = [cluster.node("a"), cluster.node("b")]
        callers = [Caller(cluster, machine, i) for i, machine in enumerate(machines)]
        for caller in callers:
            caller.start()
        try:
            job = start_training(cluster, 5)
            finish(cluster, job, expected)
        finally:
            for caller in callers:
                caller.running = False
                caller.join(60)
        calls = [(caller.calls, len(caller.ports)) for caller in callers]
        print(f"  strangers' calls, ports: {calls}", flush=True)
        if sum(count for count, _ in calls) == 0:  # the ports are open until the ranks have met, no longer
            return "skip (the ranks met before a stranger could call)"
    return None


if __name__ == "__main__":
    sys.exit(main([test_golden_losses_and_a_pulled_cable, test_strangers_call_the_ranks]))

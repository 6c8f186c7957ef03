"""Network cables that are pulled for shorter and longer than the lease, and a cable that is slow and loses packets."""
import sys

from cluster_lib import Cluster, main
from processes.waiting import lasting, let_pass, LONG_S, Stopwatch, wait_for

JOB = ["--nproc-per-node", "2", "--max-restarts", "3", "--", "sleep", "1000"]


def workers(machine):
    return sorted(pid for pid, words in machine.processes().items() if words[:2] == ["sleep", "1000"])


def running(cluster, job, generation):
    return cluster.wait_job(job, lambda found: found["state"] == "running" and found["generation"] == generation,
                            f"running in generation {generation}")


def events(cluster):
    return cluster.server.log()


def test_pulled_for_3_s():
    """Nothing is lost: the same workers go on in the same generation."""
    with Cluster() as cluster:
        one, two = cluster.node("a"), cluster.node("b")
        job = cluster.submit("--nodes", "2", *JOB)
        running(cluster, job, 1)
        before = workers(one) + workers(two)
        assert len(before) == 4, before
        two.cut()
        let_pass(3)  # this duration is what the test is about
        two.mend()
        def is_heard():
            node = next(n for n in cluster.state_of_nodes() if n["name"] == "b")
            return node["state"] == "up" and node["seen_s_ago"] < 1.5
        wait_for("beats of b again", is_heard, LONG_S)
        found = cluster.status(job)
        assert found["state"] == "running" and found["generation"] == 1, found
        assert workers(one) + workers(two) == before
        assert "node b is lost" not in events(cluster), events(cluster)


def test_pulled_for_longer_than_the_lease():
    """The machine that is cut off kills its workers within the lease; the job goes on elsewhere, in the next generation."""
    lease_s = 8
    with Cluster("--suspect", "2s", "--lost", "5s", "--lease", f"{lease_s}s") as cluster:
        machines = {name: cluster.node(name) for name in ("a", "b", "c")}
        job = cluster.submit("--nodes", "2", *JOB)
        running(cluster, job, 1)
        busy = [name for name in machines if workers(machines[name])]
        assert len(busy) == 2, busy
        cut, kept = machines[busy[1]], machines[busy[0]]
        spare = next(machine for name, machine in machines.items() if name not in busy)
        old = workers(cut)
        cut.cut()
        with lasting(f"the end of workers with their lease of {lease_s} s", at_most=lease_s + 3):
            wait_for("the end of workers that are cut off", lambda: not workers(cut), LONG_S)
        running(cluster, job, 2)
        assert len(workers(kept)) == len(workers(spare)) == 2
        new = workers(kept) + workers(spare)
        cut.mend()
        cluster.wait_node(cut.name, "up")
        found = cluster.status(job)
        assert found["state"] == "running" and found["generation"] == 2, found
        assert workers(kept) + workers(spare) == new and not workers(cut) and not set(old) & set(new)


def test_server_far_away():
    """A delay of 50 ms and 1 % loss each way between the server and all other machines."""
    with Cluster() as cluster:
        how = cluster.head.slow(50, 0.01)
        one, two = cluster.node("a"), cluster.node("b")
        laptop = cluster.machine("laptop")
        cluster.ctl("login", "-", machine=laptop, given=cluster.key("user", "root", "--admin") + "\n")
        watch = Stopwatch()
        done = cluster.ctl("run", "--nodes", "2", "--nproc-per-node", "2", "--", "sh", "-c", "sleep 5; echo rank $RANK", machine=laptop)
        assert all(f"rank {rank}" in done.stdout for rank in range(4)), done.stdout + done.stderr
        print(f"  by {how}: a job of 5 s took {watch.passed_s:.1f} s", flush=True)
        assert cluster.status(1)["generation"] == 1
        assert "is lost" not in events(cluster), events(cluster)
        assert one.launcherd.process.poll() is None and two.launcherd.process.poll() is None


if __name__ == "__main__":
    sys.exit(main([test_pulled_for_3_s, test_pulled_for_longer_than_the_lease, test_server_far_away]))

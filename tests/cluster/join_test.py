"""Install, join, submit: machines join with keys, by address, by name and over IPv6 alone, and jobs get their addresses."""
import sys

from cluster_lib import Cluster, main

SHOW = ('echo "shown $RANK $(hostname) $MASTER_ADDR gloo=$GLOO_SOCKET_IFNAME nccl=$NCCL_SOCKET_IFNAME node=$DDP_NODE_ADDRESS '
        'home=$(ls /home/tester | tr "\\n" " ")"')


def shown(cluster, *more, machine=None):
    """What each of two ranks on two nodes sees."""
    done = cluster.ctl("run", "--nodes", "2", "--nproc-per-node", "1", *more, "--", "sh", "-c", SHOW, machine=machine)
    lines = sorted(line.split("shown ")[1] for line in done.stdout.splitlines() if "shown " in line)
    assert len(lines) == 2, done.stdout + done.stderr
    return [line.split() for line in lines]


def check_two(cluster, one, two, names=("a", "b")):
    """`names`: of their hosts."""
    ranks, machines = shown(cluster), dict(zip(names, (one, two)))
    master = machines[ranks[0][1]].address
    assert sorted(rank[1] for rank in ranks) == sorted(names), ranks
    for rank in ranks:
        machine = machines[rank[1]]
        assert rank[2] == master, ranks
        assert rank[3] == "gloo=eth0" and rank[4] == "nccl==eth0", ranks
        assert rank[5] == "node=" + machine.address, ranks


def test_join_and_submit():
    """The steps of docs/two-machines.md: a key for each node, and a job from a third machine by a user who has logged in."""
    with Cluster("--suspect", "1s", "--lost", "2s") as cluster:
        one, two = cluster.node("a"), cluster.node("b")
        check_two(cluster, one, two)
        laptop = cluster.machine("laptop")
        done = cluster.ctl("login", "-", machine=laptop, given=cluster.key("user", "root", "--admin") + "\n")
        assert "#" not in done.stdout + done.stderr, "the secret is shown"
        ranks = shown(cluster, machine=laptop)
        assert sorted(rank[1] for rank in ranks) == ["a", "b"], ranks
        for machine in (one, two):  # a later start needs no key
            machine.launcherd.kill(15)
            machine.launcherd.wait()
            cluster.wait_node(machine.name, "lost")
            machine.launcherd = cluster.start_node(machine, key="kept")
            assert machine.launcherd.line()
            cluster.wait_node(machine.name, "up")
        check_two(cluster, one, two)


def test_ipv6_alone():
    with Cluster(has_v4=False) as cluster:
        check_two(cluster, cluster.node("a"), cluster.node("b"))


def test_a_head_that_joins_itself():
    """launcherd of the server's machine knows only its unix socket, and a key is made without --advertise."""
    for has_v4 in (True, False):
        with Cluster(has_v4=has_v4, advertises=False) as cluster:
            assert cluster.key("node", "x").startswith(f"ddp://{cluster.bracketed(cluster.head)}:7400/x#")
            node = cluster.head.start("launcherd", cluster.program("launcherd"), "--server", cluster.socket, "--name", "a", "--slots", "1",
                                      "--state-dir", f"{cluster.head.dir}/node", "--allow-root")
            assert node.line(), node.log()
            check_two(cluster, cluster.head, cluster.node("b"), names=("head", "b"))


def test_server_by_name():
    with Cluster(by_name=True) as cluster:
        assert "@" not in cluster.key("node", "x") and "//head:" in cluster.key("node", "y")
        check_two(cluster, cluster.node("a"), cluster.node("b"))


if __name__ == "__main__":
    sys.exit(main([test_join_and_submit, test_ipv6_alone, test_a_head_that_joins_itself, test_server_by_name]))

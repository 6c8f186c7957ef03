"""ddpctl doctor on machines whose network is broken in one place after another: doctor must name each place."""
import json
import sys

from cluster_lib import Cluster, main
from machines import plain_packets, quiet


def findings(cluster, *args):
    """{(check, node): [(level, text)]}, and the exit code."""
    done = cluster.ctl("doctor", *args, "--json", ok=False)
    assert done.stdout, done.stderr
    found = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault((finding["check"], finding["node"]), []).append((finding["level"], finding["text"]))
    return found, done.returncode


def bad(found, *checks):
    """The failures of these checks: {node: texts}."""
    wrong = {}
    for (check, node), all_of_it in found.items():
        texts = [text for level, text in all_of_it if level == "fail" and check in checks]
        if texts:
            wrong[node] = texts
    return wrong


def test_a_healthy_network():
    with Cluster() as cluster:
        for name in "abc":
            cluster.node(name)
        found, code = findings(cluster)
        assert bad(found, "connect", "packets", "interface", "clock", "answer", "node") == {}, found
        assert sum(len(found[("connect", name)]) for name in "abc") == 6, found
        assert [level for level, _ in found[("peer-names", None)]] == ["ok"], found
        assert found[("mtu", None)] == [("ok", "MTU: 1500 on all 3 nodes")], found
        assert found[("own-name", "a")][0][0] == "ok" and "eth0" in found[("interface", "a")][0][1], found
        failed = [key for key, levels in found.items() if any(level == "fail" for level, _ in levels)]
        assert code == (1 if failed else 0), (code, failed)
        net, code = findings(cluster, "--net", "--node", "a", "--node", "b")
        assert code == 0 and sum(check == "connect" for check, _ in net) == 2 and ("memory", "a") not in net, net


def test_broken_one_after_another():
    with Cluster() as cluster:
        one, two, three = (cluster.node(name) for name in "abc")

        # packets from a to b vanish, as with a firewall that drops them: neither can connect to the other
        quiet(one.command("ip", "neigh", "replace", two.v4, "lladdr", "02:00:00:00:00:99", "dev", "eth0"))
        found, code = findings(cluster, "--net")
        wrong = bad(found, "connect")
        assert code == 1 and set(wrong) == {"a", "b"}, wrong
        assert len(wrong["a"]) == 1 and wrong["a"][0].startswith("to b: 3 of 3 ports: no answer within 5 s"), wrong
        assert len(wrong["b"]) == 1 and wrong["b"][0].startswith("to a: 3 of 3 ports: no answer"), wrong
        quiet(one.command("ip", "neigh", "del", two.v4, "dev", "eth0"))

        # no route from c to a
        quiet(three.command("ip", "route", "add", "unreachable", one.v4 + "/32"))
        found, code = findings(cluster, "--net")
        wrong = bad(found, "connect")
        assert code == 1 and any(text.startswith("to a: 3 of 3 ports: no route") for text in wrong["c"]), wrong
        assert "b" not in wrong, wrong
        quiet(three.command("ip", "route", "del", "unreachable", one.v4 + "/32"))

        # the switch accepts only smaller packets towards b than both ends believe
        for machine in (one, two, three):
            with machine.network():
                plain_packets("eth0")
        cluster.switch.ip("link", "set", f"p{two.number}", "mtu", "1300")
        found, code = findings(cluster, "--net")
        wrong = bad(found, "packets")
        assert code == 1 and bad(found, "connect") == {}, found
        assert any("to b: connects, but 64 KiB do not get through" in text for text in wrong["a"]), wrong
        assert not any("to c" in text for text in wrong["a"]), wrong
        cluster.switch.ip("link", "set", f"p{two.number}", "mtu", "1500")

        # b itself has a smaller MTU, and a wrong address for c
        quiet(two.command("ip", "link", "set", "eth0", "mtu", "1400"))
        with open(two.hosts, "a", encoding="ascii") as file:
            file.write("192.0.2.9 c\n")
        with open(two.hosts, encoding="ascii") as file:
            lines = [line for line in file if not line.startswith(three.address + " ")]
        with open(two.hosts, "w", encoding="ascii") as file:
            file.writelines(lines)
        found, code = findings(cluster)
        assert found[("mtu", "b")] == [("warn", "MTU: 1400 here, 1500 on a")], found
        assert found[("peer-names", "b")] == [("warn", f"c is 192.0.2.9 here, {three.address} on a")], found
        assert bad(found, "connect", "packets") == {}, found


def test_a_node_that_is_gone():
    with Cluster("--suspect", "1s", "--lost", "2s") as cluster:
        cluster.node("a")
        two = cluster.node("b")
        two.launcherd.kill(9)
        cluster.wait_node("b", "lost")
        found, code = findings(cluster)
        assert code == 1 and found[("node", "b")] == [("fail", "is lost")], found
        assert found[("node", "a")][0][0] == "ok" and ("memory", "a") in found and ("memory", "b") not in found, found


if __name__ == "__main__":
    sys.exit(main([test_a_healthy_network, test_broken_one_after_another, test_a_node_that_is_gone]))

"""What users see of several servers: any of them can be asked, attached verbs continue when another server becomes leader, keys name all
servers and work with all of them, including standbys. Usage: ha_clients_test.py BUILD [TEST...]"""

import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes import wire
from processes.etcd import wait_for
from processes.servers import Cluster, Member, NO_ANSWER, run_tests
from processes.waiting import Gate, lasting, LONG_S


FAR = "192.0.2.1:7400"  # an address that no machine has (RFC 5737)


def standbys(cluster):
    leader = cluster.leader()
    return [server for server in cluster.servers if server is not leader]


def fail_over(cluster, number=signal.SIGKILL):
    """Ends the leader, waits until another server leads, and starts the first one again."""
    leader, token = cluster.leader(), cluster.seen.newest()
    leader.end_by(number)
    cluster.seen.wait_above(token)
    leader.start()


def a_standby_refers(cluster):
    for server in cluster.servers:
        found = cluster.ctl("nodes", "--json", servers=server.address)
        assert found.returncode == 0, found
        assert len(json.loads(found.stdout)["nodes"]) == 2, found.stdout
    with wire.Peer(standbys(cluster)[0].address) as peer:
        peer.send("client_hello", **wire.CLIENT_HELLO)
        assert peer.recv_until_closed() == referred_to(cluster.leader())
    with wire.Peer(standbys(cluster)[0].address) as peer:
        peer.send("submit", **wire.submission())
        (answer,) = peer.recv_until_closed()
        assert (answer["type"], answer["code"]) == ("error", "bad_request"), answer


def announced(cluster):
    """The servers that the leader knows, once it knows all three."""
    def find():
        try:
            with cluster.client() as client:
                servers = client.ask("server_get", request_id=1)["servers"]
        except NO_ANSWER:
            return None
        return servers if len(servers) == 3 else None
    return wait_for("all three are announced", find)


def the_servers_are_shown(cluster):
    servers = announced(cluster)
    assert [server["leads"] for server in servers] == [True, False, False], servers
    assert servers[0]["address"] == cluster.leader().address, servers
    assert sorted(server["address"] for server in servers) == sorted(server.address for server in cluster.servers)
    lines = cluster.ctl("server").stdout.splitlines()
    assert lines[0].startswith("rendezvous ") and lines[1].startswith("leads     %s on " % cluster.leader().address), lines
    assert [line.split()[:2] for line in lines[2:]] == [["stands", "by"]] * 2, lines
    answer = json.loads(cluster.ctl("server", "--json").stdout)
    assert answer["servers"] == servers and answer["server"]["token"] == cluster.seen.newest(), answer


def a_dead_address_in_the_list_is_passed_over(cluster):
    found = cluster.ctl("nodes", "-q", servers="127.0.0.1:1,unix:/nowhere," + standbys(cluster)[0].address)
    assert (found.returncode, sorted(found.stdout.split())) == (0, ["n0", "n1"]), found
    found = cluster.ctl("nodes", servers="127.0.0.1:1,unix:/nowhere")
    assert found.returncode == 5 and "cannot be reached" in found.stderr, found
    found = cluster.ctl("nodes", servers="127.0.0.1:1,nowhere")
    assert found.returncode == 5 and '"nowhere" is no address' in found.stderr, found


def attached_verbs_go_on(cluster):
    """run, logs -f and wait survive a leader that is killed, one after the other."""
    gate = Gate(cluster.folder + "/go")
    argv = [cluster.build + "/ddpctl/ddpctl", "--server", cluster.list]
    script = "echo first; %s; echo last; exit 3" % gate.wait
    run = subprocess.Popen([*argv, "run", "--name", "attached", "--max-restarts", "0", "--", "/bin/sh", "-c", script],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "first\n"
    logs = subprocess.Popen([*argv, "logs", "-f", "attached"], stdout=subprocess.PIPE, text=True)
    assert logs.stdout.readline() == "first\n"
    wait = subprocess.Popen([*argv, "wait", "attached"], stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        fail_over(cluster)
        assert run.poll() is None and logs.poll() is None and wait.poll() is None
    gate.open()
    out, err = run.communicate(timeout=LONG_S)
    assert (run.returncode, out) == (3, "last\n"), (run.returncode, out, err)
    assert logs.communicate(timeout=LONG_S)[0] == "last\n"
    wait.communicate(timeout=LONG_S)
    assert wait.returncode == 3, wait.returncode
    with cluster.client() as client:
        assert client.job("attached")["jobs"][0]["generation"] == 1


def a_server_that_is_told_to_end_hands_over(cluster):
    with lasting("the hand-over", at_most=30):  # another leads before the lease is over; for the times see docs/results
        fail_over(cluster, signal.SIGTERM)


def referred_to(server):
    return [{"type": "refer", "leader": server.address, "why": ""}]


def what_a_key_gets(server, key):
    """The answers to a client's hello, or how the connection ended without any."""
    try:
        with wire.Peer(server.address, key=key) as peer:
            peer.send("client_hello", **wire.CLIENT_HELLO)
            return peer.recv_until_closed() or peer.tunnel_end()
    except wire.Closed as closed:
        return str(closed)


def keys_stay_while_etcd_is_silent(cluster):
    """A standby that cannot read the keys any more has those that it read before. One that has never read them takes no connections."""
    with cluster.client() as client:
        user = client.ask("principal_add", name="berta", role="user")["url"]
    server, leader = standbys(cluster)[0], cluster.leader()
    wait_for("the standby knows the key", lambda: what_a_key_gets(server, user) == referred_to(leader))
    server.links.is_cut = True
    try:
        wait_for("the keys are not read", lambda: "the keys could not be read" in server.said())
        assert what_a_key_gets(server, user) == referred_to(leader), what_a_key_gets(server, user)
        server.end_by(signal.SIGKILL)
        server.start()
        wait_for("the keys are not read", lambda: "the keys could not be read" in server.said())
        got = what_a_key_gets(server, user)
        assert "Connection refused" in got, got  # by the kernel: nobody listens
    finally:
        server.links.is_cut = False
    wait_for("the standby knows the key", lambda: what_a_key_gets(server, user) == referred_to(leader))


def keys_name_all_servers(cluster):
    """Over TLS: all servers accept a key that the leader makes, and a standby refers clients with a key to the leader."""
    announced(cluster)
    with cluster.client() as client:
        key = client.ask("principal_add", name="tls0", role="node")["url"]
        user = client.ask("principal_add", name="anna", role="user")["url"]
    addresses = re.match("ddp://([^/]*)/tls0#", key).group(1).split(",")
    assert sorted(addresses) == sorted(server.address for server in cluster.servers), addresses
    for server in standbys(cluster):
        wait_for("the standby knows the key", lambda: what_a_key_gets(server, user) == referred_to(cluster.leader()))
        with wire.Peer(server.address, key=user[:-6] + "AAAAAA") as peer:
            try:
                peer.send("client_hello", **wire.CLIENT_HELLO)
            except wire.Closed:
                pass
            assert peer.recv_until_closed() == [], "a wrong key was referred"
            assert "BUSY" in peer.tunnel_end(), peer.tunnel_end()  # a standby may not know the newest key
    with open(cluster.folder + "/key", "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(key)
    node = Member([cluster.build + "/launcherd/launcherd", "--join", "@" + cluster.folder + "/key", "--slots", "1",
                   "--allow-root", "--state-dir", cluster.folder + "/tls0"], cluster.folder + "/tls0.log").begin()
    node.ready()
    cluster.nodes.append(node)
    fail_over(cluster)

    def is_back():
        try:
            with cluster.client() as client:
                nodes = client.nodes()
        except NO_ANSWER:
            return False
        return any(one["name"] == "tls0" and one["state"] == "up" for one in nodes)
    wait_for("the node is at the new server", is_back)


def a_standby_names_the_leader_to_who_has_no_key(cluster):
    """The leader is on another machine, so without a key ddpctl does not even connect to it."""
    for verb in ("server", "nodes"):
        found = cluster.ctl(verb, servers=standbys(cluster)[0].asked)
        assert found.returncode == 4, found
        assert "it stands by for the server at %s, which takes only clients with a key" % FAR in found.stderr, found
        assert "ddpctl login" in found.stderr, found


TESTS = [a_standby_refers, the_servers_are_shown, a_dead_address_in_the_list_is_passed_over, attached_verbs_go_on,
         a_server_that_is_told_to_end_hands_over]
TESTS_TLS = [keys_stay_while_etcd_is_silent, keys_name_all_servers]
TESTS_FAR = [a_standby_names_the_leader_to_who_has_no_key]


def main():
    failed = 0
    for tests, options, nodes in ((TESTS, [], 2), (TESTS_TLS, ["--require-key"], 2), (TESTS_FAR, ["--require-key", "--advertise", FAR], 0)):
        tests = [test for test in tests if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]]
        if not tests:
            continue
        cluster = Cluster(sys.argv[1], ["--leader-lease", "2s", *options], nodes=nodes, every_s=0.05)
        try:
            failed += run_tests(cluster, tests)
        finally:
            cluster.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

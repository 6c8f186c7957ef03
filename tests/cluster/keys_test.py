"""Only valid keys are accepted: the test tries wrong, revoked, rotated and misused keys, and replays a recorded session."""
import socket
import sys
import threading

from cluster_lib import PORT, Cluster, Session, main
from processes.waiting import Stopwatch
from processes.wire import CLIENT_HELLO, submission

SLEEP = ["submit", "-q", "--", "sleep", "1000"]


def wrong(url):
    """The same key with another secret."""
    head, secret = url.split("#")
    return head + "#" + ("B" if secret[0] != "B" else "C") + secret[1:]


def refused_node(cluster, machine, url, *args):
    """What launcherd prints about this key; it must exit with 2 and must not print the secret."""
    program = cluster.start_node(machine, *args, key=url)
    code = program.wait()
    log = program.log()
    assert code == 2, f"exit {code}: {log}"
    assert url.split("#")[1] not in log, "the secret is in the log"
    return log


def refused_client(cluster, machine, url):
    """What a client with this key is told."""
    path = f"{machine.dir}/refused-key"
    with open(path, "w", encoding="ascii") as file:
        file.write(url)
    session = Session(cluster, machine, path)
    answer = session.as_client() if session.first.get("event") == "ready" else session.first
    session.close()
    return answer


def check_wrong(cluster, stranger, good_node, good_user):
    before = cluster.state()
    refused_node(cluster, stranger, wrong(good_node))
    refused_node(cluster, stranger, good_node.replace("/spare#", "/nobody#"))
    answer = refused_client(cluster, stranger, wrong(good_user))
    assert answer.get("event") == "closed" and answer["status"] == "REFUSED", answer
    plain = Session(cluster, stranger, None)
    plain.say("client_hello", **CLIENT_HELLO)
    answers = [plain.hear(), plain.hear()]
    assert not any(a and a.get("type") == "client_welcome" for a in answers), answers
    plain.close()
    assert cluster.state() == before


def check_roles(cluster, stranger, node_key, user_key):
    answer = refused_client(cluster, stranger, node_key)
    assert answer["type"] == "error" and answer["code"] == "refused" and "node" in answer["message"], answer
    log = refused_node(cluster, stranger, user_key)
    assert "user" in log, log
    path = cluster.key_file("node", "other")
    session = Session(cluster, stranger, path)
    answer = session.as_node("a")  # the name of a node that is up
    assert answer["type"] == "error" and answer["code"] == "refused", answer
    session.close()


def check_revoked(cluster, node, user_path, laptop):
    """The connections of a removed user and of a removed node are cut at once; the job moves to another node."""
    session = Session(cluster, laptop, user_path)
    assert session.as_client()["type"] == "client_welcome"
    watch = Stopwatch()
    cluster.ctl("user", "remove", "eve")
    while session.hear() is not None:  # perhaps an error, then the end
        pass
    session.close()
    cluster.ctl("node", "remove", node.name)
    code = node.launcherd.wait()
    watch.check("the end of both connections", 0, 30)
    assert code == 2, f"exit {code}\n{node.launcherd.log()}"
    with open(user_path, encoding="ascii") as file:
        answer = refused_client(cluster, laptop, file.read())
    assert answer.get("event") == "closed", answer


def check_rotated(cluster, laptop):
    old = cluster.key("user", "ann")
    new = cluster.ctl("user", "rotate", "ann", "-q").stdout.strip()
    assert refused_client(cluster, laptop, old)["type"] == "client_welcome"  # both are valid for a while
    assert refused_client(cluster, laptop, new)["type"] == "client_welcome"
    newest = cluster.ctl("user", "rotate", "ann", "-q", "--overlap", "0").stdout.strip()
    for key in (old, new):
        assert refused_client(cluster, laptop, key).get("event") == "closed"
    assert refused_client(cluster, laptop, newest)["type"] == "client_welcome"


def test_keys():
    with Cluster() as cluster:
        node, other = cluster.node("a"), cluster.node("b")
        stranger = cluster.machine("stranger")
        spare, eve = cluster.key("node", "spare"), cluster.key_file("user", "eve")
        with open(eve, encoding="ascii") as file:
            eve_key = file.read().strip()
        check_wrong(cluster, stranger, spare, eve_key)
        check_roles(cluster, stranger, spare, eve_key)
        check_rotated(cluster, stranger)
        check_revoked(cluster, node, eve, stranger)
        assert cluster.node_states()["b"] == "up" and other.launcherd.process.poll() is None
        assert cluster.server.process.poll() is None


class Recorder(threading.Thread):
    """A relay in the middle of one connection, which records what the client sends."""

    def __init__(self, machine, target):
        super().__init__(daemon=True)
        self.machine, self.target, self.said = machine, target, b""
        with machine.network():
            self.listener = socket.socket()
        self.listener.bind((machine.address, 0))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        with machine.network():
            self.server = socket.create_connection(target)
        self.start()

    def run(self):
        client, _ = self.listener.accept()
        back = threading.Thread(target=self.copy, args=(self.server, client), daemon=True)
        back.start()
        while True:
            data = client.recv(65536)
            if not data:
                break
            self.said += data
            self.server.sendall(data)
        self.server.shutdown(socket.SHUT_WR)
        back.join()
        client.close()
        self.listener.close()

    @staticmethod
    def copy(source, target):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_replay():
    """A client's recorded bytes, sent again unchanged, are not accepted as a client."""
    with Cluster() as cluster:
        key = cluster.key_file("user", "root", "--admin")
        middle = cluster.machine("middle")
        recorder = Recorder(middle, (cluster.head.address, PORT))
        session = Session(cluster, middle, key, host=middle.address, port=recorder.port)
        assert session.as_client()["type"] == "client_welcome"
        assert session.ask("submit", **submission(name="once"))["type"] == "submitted"
        session.process.stdin.close()
        recorder.join(60)
        session.process.wait()
        session.process.stdout.close()
        assert len(recorder.said) > 200, len(recorder.said)
        before = cluster.state()
        assert [job["name"] for job in before["jobs"]] == ["once"], before
        for count in (len(recorder.said), len(recorder.said) // 2):
            again = middle.connect(cluster.head.address, PORT)
            again.sendall(recorder.said[:count])
            again.shutdown(socket.SHUT_WR)
            heard = b""
            while True:
                data = again.recv(65536)
                if not data:
                    break
                heard += data
            assert len(heard) < 1000, len(heard)  # a server's hello and an alert, no messages
            again.close()
        assert cluster.state() == before


if __name__ == "__main__":
    sys.exit(main([test_keys, test_replay]))

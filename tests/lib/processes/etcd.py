"""An etcd of three members, and the links to it."""
import json
import select
import shutil
import socket
import subprocess
import threading
import urllib.request

from processes import waiting
from processes.waiting import LONG_S, Stopwatch


def wait_for(what, condition, patience_s=LONG_S):
    """Elections of etcd and of our servers are among what is waited for."""
    return waiting.wait_for(what, condition, patience_s)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Etcd:
    """An etcd of three members."""

    scheme, options = "etcd", []  # options for a server
    arguments, context = [], None  # of the members; of their clients

    def __init__(self, folder):
        self.folder, self.processes = folder, [None] * 3
        self.prepare()
        for _ in range(5):  # a port that was free may be taken when etcd starts
            self.ports = [free_port() for _ in range(6)]
            for i in range(3):
                self.start(i)
            try:
                wait_for("etcd answers, or a member ends", lambda: self.is_up() or self.ended())
                if not self.ended():
                    return
            except BaseException:
                self.close()
                raise
            self.close()
            shutil.rmtree(folder + "/etcd", ignore_errors=True)
        raise AssertionError("etcd does not start: see %s/etcd*.log" % folder)

    def prepare(self):
        pass

    def client_url(self, i):
        return "%s://127.0.0.1:%d" % ("https" if self.scheme == "etcds" else "http", self.ports[2 * i])

    def ask(self, i, path, body=None, patience_s=2):
        """The answer of member `i`."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request("%s/%s" % (self.client_url(i), path), data), timeout=patience_s,
                                    context=self.context) as answer:
            return json.load(answer)

    def start(self, i):
        client, peer = self.client_url(i), "http://127.0.0.1:%d" % self.ports[2 * i + 1]
        with open("%s/etcd%d.log" % (self.folder, i), "ab") as log:
            self.processes[i] = subprocess.Popen(
                ["etcd", "--name", "m%d" % i, "--data-dir", "%s/etcd/m%d" % (self.folder, i),
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--log-level", "error",
                 "--unsafe-no-fsync", "--initial-cluster",
                 ",".join("m%d=http://127.0.0.1:%d" % (j, self.ports[2 * j + 1]) for j in range(3)), *self.arguments],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def ended(self):
        return [i for i in range(3) if self.processes[i].poll() is not None]

    def wait_up(self):
        """A member ends if another program has its port for a while: then it is started again."""
        def is_up():
            for i in self.ended():
                self.start(i)
            return self.is_up()
        wait_for("etcd answers", is_up)

    def is_up(self):
        try:
            return all(self.ask(i, "health")["health"] == "true" for i in range(3))
        except OSError:
            return False

    def client_ports(self):
        return self.ports[::2]

    def close(self):
        for i in range(3):
            self.kill(i)

    def kill(self, i):
        self.processes[i].kill()
        self.processes[i].wait()


def restore(build, backup):
    """Fills an etcd with the data that `ddpctl backup` has written."""
    def fill(etcd):
        watch = Stopwatch()
        url = "etcd://" + ",".join("127.0.0.1:%d" % port for port in etcd.client_ports())
        subprocess.run([build + "/ddpctl/ddpctl", "restore", "--store", url, backup], check=True)
        watch.check("the restore")
    return fill


class Links:
    """The links from one server to all members of etcd, over relays that can be cut. While a relay is cut, sent data stays in flight, and
    new connections are accepted but not served."""

    def __init__(self, scheme, ports):
        self.ports, self.is_cut, self.is_ending, self.resets = ports, False, False, False
        self.listeners = []
        for _ in ports:
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            listener.listen(64)
            self.listeners.append(listener)
        self.url = scheme + "://" + ",".join("127.0.0.1:%d" % one.getsockname()[1] for one in self.listeners)
        self.pairs = {}
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        waiting = []
        while not self.is_ending:  # `resets`: all connections end
            sources = self.listeners + ([] if self.is_cut else list(self.pairs))
            for ready in select.select(sources, [], [], 0.02)[0]:
                if ready in self.listeners:
                    waiting.append((ready.accept()[0], self.ports[self.listeners.index(ready)]))
                elif ready in self.pairs:
                    self.pass_on(ready)
            if self.resets:
                for one in self.pairs:
                    one.close()
                self.pairs, self.resets = {}, False
            if not self.is_cut:
                for accepted, port in waiting:
                    self.join(accepted, port)
                waiting = []

    def join(self, accepted, port):
        try:
            other = socket.create_connection(("127.0.0.1", port), 2)
        except OSError:
            accepted.close()
            return
        self.pairs[accepted], self.pairs[other] = other, accepted

    def pass_on(self, source):
        other = self.pairs[source]
        try:
            data = source.recv(1 << 16)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for one in (source, other):
                del self.pairs[one]
                one.close()

    def close(self):
        self.is_ending = True
        self.thread.join()
        for one in self.listeners + list(self.pairs):
            one.close()

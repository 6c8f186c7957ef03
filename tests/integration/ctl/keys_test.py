#!/usr/bin/env python3
"""Keys as their holders use them: launcherd joins, ddpctl logs in, and what each prints when a key is refused."""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case
from processes.relay import Relay
from processes.runner import equal, run_and_exit
from processes.waiting import PATIENCE_S, wait_for

LAUNCHERD = os.path.join(BUILD, "launcherd", "launcherd")
RENDEZVOUS = os.path.join(BUILD, "rendezvous", "rendezvous")
URL = re.compile(r"ddp://[^/\s']+/[A-Za-z0-9._-]+#[A-Za-z0-9_-]{43}")
OTHER_SECRET = "A" * 43  # 43 characters of the right alphabet: a well-formed secret that belongs to nobody


class Server:
    """A rendezvous that requires a key on its TCP port too. On its unix socket the test's own user is the admin."""

    def __init__(self, case, listen="127.0.0.1:0"):
        self.case = case
        self.socket = f"unix:{case.dir}/server.sock"
        self.nodes = []
        self.start(listen)

    def start(self, listen="127.0.0.1:0"):
        with open(f"{self.case.dir}/server.log", "ab") as log:
            self.process = subprocess.Popen(
                [RENDEZVOUS, "--state-dir", f"{self.case.dir}/server", "--socket", self.socket[5:], "--listen", listen,
                 "--require-key", "--exit-with-parent"], env=self.case.environ(), stdout=subprocess.PIPE, stderr=log,
                stdin=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        assert "ready" in line, f"the server did not get ready: {line}"
        self.address = line.split()[-1]

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        for node in self.nodes:
            node.stop()
        self.stop()

    def admin(self, *args, **more):
        return self.case.ctl("--server", self.socket, *args, **more)

    def key(self, kind, name, *args):
        """A new key's URL."""
        done = self.admin(kind, "add", name, "-q", *args)
        equal(done.returncode, 0, done.stderr)
        assert URL.fullmatch(done.stdout.strip()), "no key"
        return done.stdout.strip()

    def node(self, *args, **more):
        node = Node(self.case, *args, **more)
        self.nodes.append(node)
        return node

    def node_row(self, name):
        rows = json.loads(self.admin("nodes", "-a", "--json").stdout)["nodes"]
        return next((row for row in rows if row["name"] == name), None)


class Node:
    """A launcherd; its log is a file."""

    def __init__(self, case, *args, state="node", stdin=None):
        self.log_path = f"{case.dir}/{state}.log"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [LAUNCHERD, *args, "--state-dir", f"{case.dir}/{state}", "--slots", "2", "--allow-root",
                 "--exit-with-parent"],
                env=case.environ(), stdout=subprocess.PIPE, stderr=log, text=True,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL)
        if stdin:
            self.process.stdin.write(stdin)
            self.process.stdin.close()

    def ready(self):
        line = self.process.stdout.readline()
        assert "ready" in line, f"the node did not get ready: {line}{self.log()}"
        return line

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def proc(self, name):
        try:
            with open(f"/proc/{self.process.pid}/{name}", "rb") as f:
                return f.read().decode(errors="replace")
        except PermissionError:
            return ""  # other processes, even of its own user, may not inspect a process with a key

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


class Proxy(Relay):
    """A TCP address that stays while the server behind it comes and goes. `target` None: connections end at once."""

    def __init__(self):
        self.target = None
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % listener.getsockname()[1]
        super().__init__(listener)

    def connect(self):
        if self.target is None:
            raise ConnectionRefusedError
        host, port = self.target.rsplit(":", 1)
        return socket.create_connection((host, int(port)))


def secret_of(url):
    return url.split("#")[1]


def launch_fails(case, *args, state="failed", stdin=None, code=2):
    """Runs a launcherd that must exit by itself with `code`: 2 says that starting it again does not help. Returns its stderr, without notes such as that this machine has no cgroups."""
    done = subprocess.run([LAUNCHERD, *args, "--state-dir", f"{case.dir}/{state}"], env=case.environ(),
                          capture_output=True, text=True, timeout=PATIENCE_S, input=stdin or "")
    equal(done.returncode, code, done.stderr)
    equal(done.stdout, "")
    return "".join(line for line in done.stderr.splitlines(keepends=True) if not re.match(r"\S+ info ", line))


def a_node_joins_once_and_comes_back_without_a_key():
    with Case() as case, Server(case) as server:
        done = server.admin("node", "add", "gpu01")
        equal(done.returncode, 0, done.stderr)
        url = URL.search(done.stdout)[0]
        equal(done.stdout, f"launcherd --join '{url}'\n")
        assert secret_of(url) not in done.stderr, "the key stands there twice"
        assert f"no other machine reaches the server at {server.address}" in done.stderr, done.stderr
        assert url.startswith(f"ddp://{server.address}/gpu01#"), "another server or name"
        node = server.node("--join", url)
        assert node.ready().startswith("launcherd: ready gpu01, 2 slots"), "another line"
        for name in ("cmdline", "environ"):
            assert secret_of(url) not in node.proc(name), f"the secret is in /proc/PID/{name}"
        assert "ddp://" not in node.proc("cmdline"), "the key is in the command line"
        path = f"{case.dir}/node/key"
        wait_for("the key in the state directory", lambda: os.path.exists(path))
        equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, encoding="ascii") as f:
            equal(f.read().strip() == url, True)
        equal(server.admin("run", "--max-restarts", "0", "--", "sh", "-c", f"! env | grep {secret_of(url)}").returncode, 0)
        node.stop()
        equal(node.process.returncode, 0)
        node = server.node()
        node.ready()
        wait_for("the node", lambda: server.node_row("gpu01")["state"] == "up")
        assert secret_of(url) not in node.log(), "the secret is in the log"
        node.stop()
        os.unlink(path)
        said = launch_fails(case, state="node", code=1)
        assert f"{path}, the key of node gpu01, is gone: put it back" in said, said


def a_node_that_cannot_keep_its_key_has_not_joined():
    with Case() as case, Server(case) as server:
        url, state = server.key("node", "gpu01"), f"{case.dir}/node"
        os.makedirs(f"{state}/key.new/blocks")  # where the new file would be made
        os.chmod(state, 0o700)
        for code, said in ((1, "the key could not be kept"), (0, "gpu01 has joined")):
            done = subprocess.run([LAUNCHERD, "--state-dir", state, "--gpus", "none", "--join", "-", "--join-only"], env=case.environ(),
                                  input=url, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            equal(done.returncode, code, done.stdout + done.stderr)
            assert said in done.stdout + done.stderr and ("has joined" in done.stdout) == (code == 0), (done.stdout, done.stderr)
            equal(os.path.exists(f"{state}/key"), code == 0)
            if code:
                os.rmdir(f"{state}/key.new/blocks")
                os.rmdir(f"{state}/key.new")


def a_key_comes_from_stdin_or_a_file():
    with Case() as case, Server(case) as server:
        url = server.key("node", "n1")
        node = server.node("--join", "-", stdin=url + "\n")
        node.ready()
        node.stop()
        with open(f"{case.dir}/given", "w", encoding="ascii") as f:
            f.write(url + "\n")
        server.node("--join", f"@{case.dir}/given", state="other").ready()


def a_key_that_is_not_taken_ends_the_node_and_keeps_the_good_one():
    with Case() as case, Server(case) as server:
        good = server.key("node", "n1")
        node = server.node("--join", good)
        node.ready()
        wait_for("the key", lambda: os.path.exists(f"{case.dir}/node/key"))
        node.stop()
        wrong = good.split("#")[0] + "#" + OTHER_SECRET
        said = launch_fails(case, "--join", wrong, state="node")
        equal(len(said.splitlines()), 1, said)
        for part in ("does not accept the key of n1", "ddpctl node rotate n1", "--join"):
            assert part in said, said
        assert OTHER_SECRET not in said, said
        with open(f"{case.dir}/node/key", encoding="ascii") as f:
            equal(f.read().strip() == good, True)
        node = server.node()
        node.ready()
        node.stop()
        user = server.key("user", "alice")
        said = launch_fails(case, "--join", user)
        assert "the key of alice is a user's" in said and "ddpctl node add" in said, said
        assert not os.path.exists(f"{case.dir}/failed/key"), "a user's key was kept"
        equal(server.admin("node", "remove", "n1").returncode, 0)
        said = launch_fails(case, state="node")
        assert "does not accept the key of n1" in said, said


def what_a_command_line_can_be_wrong_about_is_said_at_once():
    key = f"ddp://127.0.0.1:1/n1#{OTHER_SECRET}"
    cases = (
        (("--join", "ddp://127.0.0.1:1"), "no /NAME after the server"),
        (("--join", key[:-1]), "was the end of the string cut off?"),
        (("--join", key, "--name", "n2"), "the key is of n1"),
        (("--join", key, "--address", "here"), "numeric"),
        (("--join", key, "--interface", "lo", "--address", "127.0.0.1"), "not both"),
        (("--join", key, "--server", "nonsense"), "expected unix:PATH or HOST:PORT"),
        (("--join", f"ddp://{'x' * 70}.invalid:1/n1#{OTHER_SECRET}"), "has no address"),
        (("--server", "192.0.2.1:7400", "--name", "gpu07"), "ddpctl node add gpu07"),
        (("--server", "head.example.org:7400"), "--join"),
    )
    later = (  # what may come: a device, its address, a file
        (("--join", "@/no/such/file"), "/no/such/file"),
        (("--join", key, "--address", "240.0.0.1"), "240.0.0.1: no interface of this machine"),
        (("--join", key, "--interface", "nosuch0"), "nosuch0 does not exist here"),
        (("--join", key, "--gpus", "63"), "--gpus 63: this machine has"),
    )
    with Case() as case:
        for args, expected in cases + later:
            said = launch_fails(case, *args, code=1 if (args, expected) in later else 2)
            assert expected in said and OTHER_SECRET not in said, f"{args}: {said}"
            equal(len(said.splitlines()), 1, said)
        os.makedirs(f"{case.dir}/open")
        with open(f"{case.dir}/open/key", "w", encoding="ascii") as f:
            f.write(key)
        os.chmod(f"{case.dir}/open/key", 0o644)
        said = launch_fails(case, state="open")
        assert "chmod 600" in said, said


def a_node_whose_key_is_removed_lets_its_jobs_go_on():
    with Case() as case, Server(case) as server:
        node = server.node("--join", server.key("node", "n1"))
        node.ready()
        done = server.admin("submit", "--", "sh", "-c", "echo $$; exec sleep 600")
        equal(done.returncode, 0, done.stderr)
        job = done.stdout.strip()
        equal(server.admin("wait", "--for", "running", job).returncode, 0)
        pid = json.loads(server.admin("status", job, "--json").stdout)["job"]["ranks"][0]["pid"]
        done = server.admin("node", "remove", "n1")
        assert "its connection was cut" in done.stderr, done.stderr
        wait_for("the line about it", lambda: "trying again every 30 s" in node.log())
        equal(node.process.poll(), None)
        os.kill(pid, 0)


def a_node_waits_for_its_server_and_says_so_once():
    with Case() as case, Proxy() as proxy, Server(case) as server:
        node = server.node("--join", server.key("node", "n1"), "--server", proxy.address)
        wait_for("the line about it", lambda: "trying again" in node.log())
        equal(node.process.poll(), None)
        proxy.target = server.address
        node.ready()
        wait_for("the key", lambda: os.path.exists(f"{case.dir}/node/key"))
        with open(f"{case.dir}/node/key", encoding="ascii") as f:
            assert f.read().startswith(f"ddp://{proxy.address}/n1#"), "the kept key names another server"
        equal(node.log().count("trying again"), 1, node.log())
        proxy.target = None
        server.stop()
        wait_for("the second line", lambda: node.log().count("trying again") == 2)
        server.start()
        proxy.target = server.address
        wait_for("the node again", lambda: "connected to" in node.log().split("trying again")[2])
        equal(node.log().count("trying again"), 2, node.log())


def a_server_of_another_cluster_does_not_end_a_node_that_waits_for_its_own():
    with Case() as case, Case() as other, Proxy() as proxy, Server(case) as server, Server(other) as wrong:
        wrong.key("node", "n2")  # so it knows keys
        proxy.target = server.address
        node = server.node("--join", server.key("node", "n1"), "--server", f"{proxy.address},{wrong.address}")
        node.ready()
        proxy.target = None
        server.stop()
        wait_for("the refusal", lambda: "does not accept the key of n1" in node.log())
        wait_for("the end, or the line about it", lambda: node.process.poll() is not None or "trying the other addresses" in node.log())
        equal(node.process.poll(), None, node.log())
        server.start()
        proxy.target = server.address
        wait_for("the node again", lambda: f"connected to {proxy.address}" in node.log())
        equal(node.log().count("trying the other addresses"), 1, node.log())


def own_address():
    """An address of this machine by which others could reach it; None: it has only loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # RFC 5737; nothing is sent
        except OSError:
            return None
        host = one.getsockname()[0]
    return None if host.startswith("127.") else host


def the_address_of_a_node_is_that_on_the_way_to_the_server():
    host = own_address()
    if host is None:
        print("this machine has only loopback addresses: not tested")
        return
    with Case() as case, Server(case, f"{host}:0") as server:
        url = server.key("node", "n1")
        node = server.node("--join", url)
        node.ready()
        equal(server.node_row("n1")["address"], host)
        program = "import os; print(os.environ['MASTER_ADDR'], os.environ['NCCL_SOCKET_IFNAME'])"
        done = server.admin("run", "--raw", "--", "python3", "-c", program)
        equal(done.returncode, 0, done.stderr)
        master, interface = done.stdout.split()
        equal(master, host)
        assert interface.startswith("=") and interface[1:] in os.listdir("/sys/class/net"), interface
        node.stop()
        node = server.node("--interface", "lo")
        node.ready()
        equal(server.node_row("n1")["address"], "127.0.0.1")
        node.stop()
        server.node("--address", host).ready()
        equal(server.node_row("n1")["address"], host)


def a_user_logs_in_and_out():
    with Case() as case, Server(case) as server:
        path = f"{case.dir}/config/ddp/key"
        url = server.key("user", "alice", "--admin")
        for given, stdin in ((url, None), ("-", url)):
            done = subprocess.run([os.path.join(BUILD, "ddpctl", "ddpctl"), "login", given], env=case.environ(),
                                  capture_output=True, text=True, timeout=PATIENCE_S, input=stdin or "")
            equal((done.returncode, done.stdout), (0, ""), done.stderr)
            assert f"logged in to {server.address} as alice" in done.stderr, done.stderr
            assert secret_of(url) not in done.stderr, "the secret is shown"
            equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            equal(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
        equal(case.ctl("ps").returncode, 0)  # the server of the key is the default
        equal(case.ctl("--server", server.address, "ps").returncode, 0)  # when named explicitly it gets the key too
        equal(case.ctl("ps", DDP_SERVER=f"unix:{case.dir}/none.sock").returncode, 5)  # but an explicitly named server wins
        bob = server.key("user", "bob")
        node = server.key("node", "n1")
        for other, expected in ((node, "it cannot be used as a user"),
                                (bob.split("#")[0] + "#" + OTHER_SECRET, "does not accept the key of bob")):
            done = case.ctl("login", other)
            equal(done.returncode, 4, done.stderr)
            assert expected in done.stderr, done.stderr
            with open(path, encoding="ascii") as f:
                equal(f.read().strip() == url, True)  # the valid key is still there
        equal(case.ctl("login", "ddp://nonsense").returncode, 2)
        equal(case.ctl("login").returncode, 2)
        done = case.ctl("logout", "--json")
        equal((done.returncode, json.loads(done.stdout)), (0, {"schema": "ddp.v1", "login": None}))
        assert not os.path.exists(path), "the key is still there"
        equal(case.ctl("logout").returncode, 0)
        done = case.ctl("--server", server.address, "ps")
        equal(done.returncode, 5)
        assert "ddpctl login" in done.stderr, done.stderr
        done = case.ctl("--server", "192.0.2.1:7400", "ps")
        equal(done.returncode, 4)
        assert "you have no key for the server at 192.0.2.1:7400" in done.stderr, done.stderr


def a_login_hides_its_argument_and_ends_when_nobody_answers():
    with Case(gated=True) as case, socket.create_server(("127.0.0.1", 0)) as listener:
        url = "ddp://127.0.0.1:%d/alice#%s" % (listener.getsockname()[1], OTHER_SECRET)
        login = case.start("login", url)
        silent = listener.accept()[0]  # by now it has read its arguments
        with open(f"/proc/{login.pid}/cmdline", "rb") as f:
            assert b"ddp://" not in f.read(), "the key is in the command line"
        said = login.communicate(timeout=PATIENCE_S)[1]
        silent.close()
        equal(login.returncode, 5, said)
        assert "cannot be reached: no answer within 10 s" in said, said


def keys_are_listed_rotated_and_removed():
    with Case() as case, Server(case) as server:
        equal(server.admin("user", "list", "-q").stdout, "")
        server.key("user", "root1", "--admin")
        alice = server.key("user", "alice")
        for name in ("n2", "n1", "n3"):
            server.key("node", name)
        equal(server.admin("node", "list", "-q").stdout.split(), ["n1", "n2", "n3"])
        rows = json.loads(server.admin("user", "list", "--json").stdout)
        equal(rows["schema"], "ddp.v1")
        equal([(row["name"], row["role"], row["connected"], row["keys"], row["seen_at"]) for row in rows["principals"]],
              [("alice", "user", False, 1, None), ("root1", "admin", False, 1, None)])
        table = server.admin("user", "list").stdout.splitlines()
        equal(table[0].split()[:4], ["NAME", "ROLE", "CONNECTED", "KEYS"])
        equal(table[1].split()[:4], ["alice", "user", "no", "1"])

        done = server.admin("user", "rotate", "alice", "--overlap", "10m", "--json")
        equal((done.returncode, done.stderr), (0, ""))
        key = json.loads(done.stdout)["key"]
        equal((key["name"], key["role"], key["old_until"] is not None), ("alice", "user", True))
        for url in (alice, key["url"]):
            equal(case.ctl("login", url).returncode, 0)  # both are valid for ten minutes
        done = case.ctl("user", "list")
        equal(done.returncode, 4)
        assert "only an admin" in done.stderr, done.stderr
        done = server.admin("user", "rotate", "alice", "--overlap", "0")
        assert "the old key is void now" in done.stderr and "ddpctl login 'ddp://" in done.stdout, done.stderr
        equal(case.ctl("ps").returncode, 4)
        equal(case.ctl("login", URL.search(done.stdout)[0]).returncode, 0)

        done = server.admin("user", "remove", "alice", "--json")
        equal((done.returncode, json.loads(done.stdout)["removed"]["name"]), (0, "alice"))
        done = case.ctl("ps")
        equal(done.returncode, 4)
        assert "does not accept the key of alice" in done.stderr, done.stderr
        for words, code in ((("node", "add", "n1"), 4), (("user", "add", "n1"), 4), (("node", "remove", "no"), 3),
                            (("node", "rotate", "root1"), 3), (("user", "rotate", "alice"), 3),
                            (("node", "add", "a b"), 2), (("node", "add", "x" * 64), 2), (("node", "add"), 2),
                            (("node", "add", "n4", "--admin"), 2), (("node", "remove", "n1", "--overlap", "1h"), 2),
                            (("user", "list", "alice"), 2), (("user", "frob", "alice"), 2), (("user",), 2)):
            done = server.admin(*words)
            equal(done.returncode, code, f"{words} {done.stderr}")


def a_job_runs_with_a_users_key_over_tls():
    with Case() as case, Server(case) as server:
        server.node("--join", server.key("node", "n1")).ready()
        account = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        equal(case.ctl("login", server.key("user", account)).returncode, 0)
        done = case.ctl("run", "-n", "2", "--raw", "--max-restarts", "0", "--", "python3", "-c",
                        "print('x' * 3000000, end='')", timeout=4 * PATIENCE_S)
        equal(done.returncode, 0, done.stderr)
        equal(len(done.stdout), 6000000)
        run = case.start("run", "--", "sleep", "600")
        wait_for("the job", lambda: json.loads(case.ctl("status", "@last", "--json").stdout)["job"]["state"] == "running")
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=PATIENCE_S)[1]
        equal(run.returncode != 0, True, said)
        equal(json.loads(case.ctl("status", "@last", "--json").stdout)["job"]["state"], "cancelled")


if __name__ == "__main__":
    run_and_exit([a_node_joins_once_and_comes_back_without_a_key, a_node_that_cannot_keep_its_key_has_not_joined, a_key_comes_from_stdin_or_a_file,
               a_key_that_is_not_taken_ends_the_node_and_keeps_the_good_one,
               what_a_command_line_can_be_wrong_about_is_said_at_once, a_node_whose_key_is_removed_lets_its_jobs_go_on,
               a_node_waits_for_its_server_and_says_so_once,
               a_server_of_another_cluster_does_not_end_a_node_that_waits_for_its_own, the_address_of_a_node_is_that_on_the_way_to_the_server,
               a_user_logs_in_and_out, a_login_hides_its_argument_and_ends_when_nobody_answers,
               keys_are_listed_rotated_and_removed, a_job_runs_with_a_users_key_over_tls])

"""A cluster for tests: a server and nodes, each on a machine of its own (machines.py), that join with keys as in docs/two-machines.md."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import machines
from machines import Machine, Missing, Switch
from processes import proc
from processes.runner import run_tests
from processes.waiting import LONG_S, wait_for
from processes.wire import CLIENT_HELLO, NODE_IDENTITY, PROTOCOL, encode

BUILD = os.path.abspath(os.environ.get("BUILD_ROOT", "build"))
SHARED = os.environ.get("DDP_SHARED", os.path.join(os.path.dirname(machines.HERE), "../../../shared"))
PORT = 7400


class Session:
    """Messages to the server over TLS, by tests/lib/tls_peer.c on a machine. `key`: a key's file; None: plain."""

    def __init__(self, cluster, machine, key, host=None, port=PORT):
        argv = [f"{cluster.build}/tests/tls-peer", f"{host or cluster.bracketed(cluster.head)}:{port}"]
        argv += ["--key-file", key] if key else []
        self.process = subprocess.Popen(machine.command(*argv), env=machine.environ(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.first = self.hear()

    def say(self, type_, **fields):
        self.process.stdin.write(encode(type_, **fields).decode() + "\n")
        self.process.stdin.flush()

    def hear(self):
        """The next message or event of tls-peer; None: it has ended."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, type_, **fields):
        self.say(type_, **fields)
        return self.hear()

    def as_client(self):
        return self.ask("client_hello", **CLIENT_HELLO)

    def as_node(self, name):
        return self.ask("node_hello", protocol=PROTOCOL, version="test", name=name, boot_id="b", instance=1, pid=1,
                        address="192.0.2.1", slots=1, gpus=0, shims=[], closed=[], **NODE_IDENTITY)

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Cluster:
    """The server runs on `head`. The build and ../shared have the same path on every machine, under `self.dir`."""

    def __init__(self, *server_args, has_v4=True, by_name=False, listen=None, advertises=True):
        self.stack = contextlib.ExitStack()
        self.dir = tempfile.mkdtemp(prefix="ddp-cluster-", dir="/tmp")
        self.stack.callback(shutil.rmtree, self.dir, ignore_errors=True)
        self.has_v4, self.nodes, self.daemons = has_v4, {}, []
        self.build = os.path.join(self.dir, "build")
        self.shared = os.path.join(self.dir, "shared")
        os.mkdir(self.build)
        os.mkdir(self.shared)
        self.switch = Switch()
        self.stack.callback(self.switch.close)
        self.head = self.machine("head")
        advertise = ["--advertise", f"{'head' if by_name else self.bracketed(self.head)}:{PORT}"] if advertises else []
        self.server_args = ["--listen", listen or f"{'0.0.0.0' if has_v4 else '[::]'}:{PORT}", *advertise, *server_args]
        self.socket = f"unix:{self.head.dir}/state/rendezvous.sock"
        self.start_server()

    def bracketed(self, machine):
        return machine.address if self.has_v4 else f"[{machine.address}]"

    def program(self, name):
        return f"{self.build}/{name}/{name}"

    def machine(self, name):
        binds = [(BUILD, self.build)]
        if os.path.isdir(SHARED):
            binds.append((SHARED, self.shared))
        machine = Machine(self.switch, os.path.join(self.dir, name), name, self.has_v4, binds)
        self.stack.callback(machine.close)
        for one in self.switch.machines:
            one.write_hosts(self.switch.machines)
        return machine

    def start_server(self):
        self.server = self.head.start("rendezvous", self.program("rendezvous"), "--state-dir", f"{self.head.dir}/state",
                                      *self.server_args)
        line = self.server.line()
        assert line.startswith("rendezvous: ready"), f"{line!r}\n{self.server.log()}"

    def ctl(self, *args, machine=None, given=None, ok=True, timeout=LONG_S):
        """Runs ddpctl as root on the server's machine, or on another machine as the user who is logged in there."""
        server = ["--server", self.socket] if machine is None else []
        done = (machine or self.head).run("sh", "-c", 'cd / && exec "$@"', "sh", f"{self.build}/ddpctl/ddpctl", args[0], *server,
                                          *args[1:], given=given, timeout=timeout)
        assert not ok or done.returncode == 0, f"ddpctl {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def key(self, kind, *args):
        return self.ctl(kind, "add", *args, "-q").stdout.strip()

    def key_file(self, kind, *args):
        """The path of a new file with a new key, readable on all machines."""
        path = os.path.join(self.dir, f"key-{len(os.listdir(self.dir))}")
        with open(path, "w", encoding="ascii") as file:
            file.write(self.key(kind, *args) + "\n")
        return path

    def start_node(self, machine, *args, slots=2, key=None):
        """Starts a machine's launcherd, with the key that it has kept or a new one; returns before the node has joined."""
        path = os.path.join(machine.dir, "key")
        with open(path, "w", encoding="ascii") as file:
            file.write(key or self.key("node", machine.name))
        join = [] if key == "kept" else ["--join", "@" + path]
        allow = ["--allow-root"] if "--allow-root" in self.head.run(self.program("launcherd"), "--help").stdout else []
        return machine.start("launcherd", self.program("launcherd"), *join, "--state-dir", f"{machine.dir}/state", "--slots",
                             str(slots), *allow, *args)

    def node(self, name, *args, slots=2):
        """A machine that has joined."""
        machine = self.machine(name)
        machine.launcherd = self.start_node(machine, *args, slots=slots)
        line = machine.launcherd.line()
        assert line, f"no node {name}\n{machine.launcherd.log()}"
        self.nodes[name] = machine
        self.wait_node(name, "up")
        return machine

    def state_of_nodes(self):
        return json.loads(self.ctl("nodes", "-a", "--json").stdout)["nodes"]

    def node_states(self):
        return {node["name"]: node["state"] for node in self.state_of_nodes()}

    def wait_node(self, name, state):
        wait_for(f"node {name} {state}", lambda: self.node_states().get(name) == state, LONG_S)

    def status(self, job):
        return json.loads(self.ctl("status", str(job), "--json").stdout)["job"]

    def wait_job(self, job, accept, what, timeout_s=LONG_S):
        def look():
            found = self.status(job)
            return found if accept(found) else None
        return wait_for(f"job {job} {what}", look, timeout_s)

    def submit(self, *args):
        return self.ctl("submit", "-q", *args).stdout.strip()

    def state(self):
        """All state that must not change under attack: jobs, nodes, keys, events of jobs."""
        def rows(verb, name, *drop):
            found = json.loads(self.ctl(*verb, "--json").stdout)[name]
            return [{key: value for key, value in row.items() if key not in drop} for row in found]
        seen = ("connected", "seen_at")  # the server records the use of a key
        return {"jobs": rows(("ps", "-a"), "jobs"), "nodes": rows(("nodes", "-a"), "nodes", "seen_s_ago"),
                "node keys": rows(("node", "list"), "principals", *seen),
                "user keys": rows(("user", "list"), "principals", *seen)}

    def rss_kib(self):
        return proc.rss_kib(self.server.pid)

    def logs(self):
        """The ends of all logs, for a failure."""
        text = ""
        for machine in self.switch.machines:
            for program in machine.programs:
                text += f"--- {machine.name} {program.name}\n" + "".join(program.log().splitlines(True)[-25:])
        return text

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is not None:
            print(self.logs(), flush=True)
        self.stack.close()


def main(tests):
    """`tests`: functions; the arguments choose some by name. Prints a line for each."""
    try:
        machines.enter()
    except Missing as reason:
        print(f"skip: {reason}")
        return machines.SKIP
    return run_tests(tests, sys.argv[1:])

"""Machines for tests, made of Linux namespaces: each has its own network, processes, host name, /home, /run and /var/lib.

A Switch is a bridge in a network namespace of its own; a veth pair ("cable") connects a Machine to it. So addresses need not be
unique on this computer, and tests that run side by side do not disturb one another.

Every namespace belongs to a holder process, which is its process 1. Holders die with the test, even if it is killed (PR_SET_PDEATHSIG),
and the kernel then kills all processes of the machine and removes its network and mounts. Nothing has a name in the file system, so nothing is left.

Needs root, or user namespaces: enter() starts the test again inside one. The test's main thread must start machines and their
programs, since PR_SET_PDEATHSIG acts when the parent's thread ends."""
import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from processes.proc import child_pids
from processes.waiting import LONG_S, wait_for

SKIP = 77
CLONE_NEWNET = 0x40000000
HERE = os.path.abspath(__file__)
LIBC = ctypes.CDLL(None, use_errno=True)


class Missing(Exception):
    """This computer lacks something that a test needs, so the test is skipped with this reason."""


def enter():
    """Makes this process root in namespaces of its own, or raises Missing. Call it first."""
    for program in ("ip", "unshare", "nsenter", "setpriv", "mount"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            raise Missing(f"no program {program} (Debian packages iproute2, util-linux)")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    test = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "ip", "link", "add", "br0", "type", "bridge"]
    if os.geteuid() == 0:
        done = subprocess.run(test, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    if os.environ.get("DDP_CLUSTER_INSIDE"):
        raise Missing("not root even in a user namespace")
    done = subprocess.run([test[0], "--user", "--map-root-user", *test[1:]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"neither root nor user namespaces here: {done.stderr.strip()[-200:]}")
    os.environ["DDP_CLUSTER_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--mount", "--", sys.executable, *sys.argv])


def quiet(argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")


class Holder:
    """Process 1 of new namespaces. `pid` is its pid in this process's namespace."""

    def __init__(self, kinds, setup):
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", *kinds, "--fork", "--kill-child", "--",
                sys.executable, HERE, "hold", json.dumps(setup)]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)  # unshare prints a complaint when it is killed
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            self.process.wait()
            raise Missing(f"a machine of namespaces cannot be made: {line.strip()}")
        self.pid = int(line)

    def close(self):
        """Returns when every process in it is gone: process 1 ends last, and unshare after it."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def hold(setup):
    """Runs as process 1 of a machine: mounts, prints its pid outside the namespace, reaps orphaned processes."""
    pid = os.readlink("/proc/self")  # this is still the /proc of the outer namespace
    try:
        for source, target in setup.get("binds", []):
            quiet(["mount", "--rbind", source, target])
        for target in setup.get("tmpfs", []):
            quiet(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", target])
        for target in setup.get("folders", []):
            os.makedirs(target, exist_ok=True)
        if setup.get("proc"):
            quiet(["mount", "-t", "proc", "proc", "/proc"])
        if setup.get("name"):
            socket.sethostname(setup["name"])
        quiet(["ip", "link", "set", "lo", "up"])
    except (OSError, AssertionError) as error:
        print(error, flush=True)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    print(pid, flush=True)
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass


class Switch:
    """A bridge. Machines are numbered from 1: 10.77.0.N and fd00:77::N."""

    def __init__(self):
        self.holder = Holder(["--net", "--mount"], {})
        self.machines = []
        self.relays = []
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("link", "set", "br0", "up")

    def command(self, *argv):
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(self.holder.pid), "--net", "--", *argv]

    def ip(self, *words):
        quiet(self.command("ip", *words))

    def close(self):
        for relay in self.relays:
            relay.kill()
            relay.wait()
            relay.stdout.close()
        self.holder.close()


class Program:
    """A process in a machine. `pid` is its pid in this process's namespace, so signals work."""

    def __init__(self, machine, name, argv, env):
        self.name = name
        self.log_path = os.path.join(machine.dir, name + ".log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(machine.command(*argv), env=env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log, text=True)

    @property
    def pid(self):
        return wait_for(f"process of {self.name}", lambda: child_pids(self.process.pid), LONG_S)[0]

    def line(self):
        """Its next line; "" at its end."""
        assert select.select([self.process.stdout], [], [], LONG_S)[0], f"{self.name} says nothing:\n{self.log()}"
        return self.process.stdout.readline()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)

    def wait(self, timeout_s=LONG_S):
        code = self.process.wait(timeout_s)
        self.process.stdout.close()
        return code


class Machine:
    """`folder`: a folder of its own for the machine's files, which the test can read. `binds`: [(source, target)], bind mounts that only
    this machine sees."""

    def __init__(self, switch, folder, name, has_v4=True, binds=()):
        self.switch, self.name, self.dir, self.number = switch, name, folder, len(switch.machines) + 1
        self.v4, self.v6 = (f"10.77.0.{self.number}" if has_v4 else None), f"fd00:77::{self.number}"
        self.address = self.v4 or self.v6
        os.makedirs(self.dir)
        self.hosts = os.path.join(self.dir, "hosts")
        self.write_hosts([])
        self.holder = Holder(["--net", "--mount", "--pid", "--uts", "--ipc"], {
            "name": name, "proc": True, "binds": [*binds, (self.hosts, "/etc/hosts")],
            "tmpfs": ["/home", "/run", "/var/lib"], "folders": ["/home/tester", "/run/ddp", "/var/lib/ddp"]})
        self.programs = []
        self.plug_in()
        switch.machines.append(self)
        if switch.relays:
            with self.network():
                plain_packets("eth0")

    def plug_in(self):
        port = f"p{self.number}"
        self.switch.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        self.switch.ip("link", "set", port, "master", "br0", "up")
        quiet(self.command("ip", "link", "set", "eth0", "up"))
        if self.v4:
            quiet(self.command("ip", "address", "add", self.v4 + "/24", "dev", "eth0"))
        quiet(self.command("ip", "address", "add", self.v6 + "/64", "dev", "eth0", "nodad"))

    def write_hosts(self, machines):
        """Names that this machine resolves. Written in place: the file is mounted."""
        with open(self.hosts, "w", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n::1 localhost\n")
            for machine in machines:
                file.write(f"{machine.address} {machine.name}\n")

    def environ(self, **more):
        environ = {"PATH": os.environ["PATH"], "HOME": "/home/tester", "LANG": "C.UTF-8", "TMPDIR": "/home/tester",
                   "OMP_NUM_THREADS": "1"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                environ[name] = os.environ[name]
        environ.update(more)
        return environ

    def command(self, *argv):
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(self.holder.pid), "--net", "--mount", "--pid",
                "--uts", "--ipc", "--", *argv]

    def run(self, *argv, timeout=LONG_S, env=None, given=None):
        """Runs a command to its end: .returncode, .stdout, .stderr. `given`: its stdin."""
        return subprocess.run(self.command(*argv), env=self.environ(**(env or {})), capture_output=True, text=True,
                              input=given, stdin=subprocess.DEVNULL if given is None else None, timeout=timeout, check=False)

    def start(self, name, *argv, env=None):
        program = Program(self, name, argv, self.environ(**(env or {})))
        self.programs.append(program)
        return program

    # --- the cable ---

    def cut(self):
        """Pulls the cable."""
        self.switch.ip("link", "set", f"p{self.number}", "down")

    def mend(self):
        self.switch.ip("link", "set", f"p{self.number}", "up")

    def slow(self, delay_ms, loss):
        """Delays each packet to and from this machine by `delay_ms` and drops the fraction `loss`. Uses netem, or, if the kernel has none,
        a relay of ours in the middle of the cable. Returns which."""
        port = f"p{self.number}"
        netem = ["root", "netem", "delay", f"{delay_ms}ms", "loss", f"{100 * loss}%"]
        try:
            quiet(self.switch.command("tc", "qdisc", "replace", "dev", port, *netem))
            quiet(self.command("tc", "qdisc", "replace", "dev", "eth0", *netem))
            return "netem"
        except AssertionError:
            pass
        self.switch.ip("link", "set", port, "nomaster")
        self.switch.ip("link", "add", "q" + port, "type", "veth", "peer", "name", "r" + port)
        self.switch.ip("link", "set", "r" + port, "master", "br0", "up")
        self.switch.ip("link", "set", "q" + port, "up")
        for machine in self.switch.machines:
            with machine.network():
                plain_packets("eth0")
        relay = subprocess.Popen(self.switch.command(sys.executable, HERE, "relay", port, "q" + port, str(delay_ms), str(loss)),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.switch.relays.append(relay)
        assert relay.stdout.readline() == "ready\n", "the relay did not start"
        return "relay"

    # --- sockets of this machine in the test's own process ---

    @contextlib.contextmanager
    def network(self):
        """Sockets that this thread opens within the block belong to the machine's network."""
        with open("/proc/thread-self/ns/net", "rb") as own, open(f"/proc/{self.holder.pid}/ns/net", "rb") as other:
            if LIBC.setns(other.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                yield
            finally:
                if LIBC.setns(own.fileno(), CLONE_NEWNET) != 0:
                    os._exit(1)  # never continue in the wrong network

    def connect(self, host, port, timeout_s=LONG_S):
        with self.network():
            return socket.create_connection((host, port), timeout=timeout_s)

    def processes(self):
        """Command lines of the machine's processes, without the holder: {pid in this process's namespace: words}."""
        space = os.readlink(f"/proc/{self.holder.pid}/ns/pid")
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if int(name) != self.holder.pid and os.readlink(f"/proc/{name}/ns/pid") == space:
                    with open(f"/proc/{name}/cmdline", "rb") as file:
                        words = file.read().decode(errors="replace").split("\0")
                    if words[0]:  # a zombie has none
                        found[int(name)] = words
        return found

    def close(self):
        """Kills all of the machine, like a power cut."""
        self.holder.close()
        for program in self.programs:
            program.process.kill()
            program.process.wait()
            program.process.stdout.close()


# --- a slow cable where the kernel has no netem ---

def plain_packets(device):
    """Turns off offloads of `device` in this thread's network, since a relay copies bytes: complete checksums, and no packets above the MTU."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in (0x17, 0x1f, 0x24, 0x2c):  # tx checksums, TSO, GSO, GRO (linux/ethtool.h)
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP8x", device.encode(), ctypes.addressof(value))
            with contextlib.suppress(OSError):
                fcntl.ioctl(control, 0x8946, request)  # SIOCETHTOOL


def relay(first, second, delay_ms, loss):
    """Copies packets between two devices, both ways, with delay and losses, until it is killed."""
    ETH_P_ALL, PACKET_OUTGOING = 3, 4
    draw = random.Random(1)
    ports = []
    for device in (first, second):
        plain_packets(device)
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        port.bind((device, ETH_P_ALL))
        ports.append(port)
    print("ready", flush=True)
    queue, serial = [], 0
    while True:
        wait_s = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        ready, _, _ = select.select(ports, [], [], wait_s)
        for port in ready:
            try:
                packet, about = port.recvfrom(65536)
            except OSError:  # the cable is cut
                continue
            if about[2] != PACKET_OUTGOING and draw.random() >= loss:
                serial += 1
                heapq.heappush(queue, (time.monotonic() + delay_ms / 1000, serial, ports[port is ports[0]], packet))
        while queue and queue[0][0] <= time.monotonic():
            _, _, port, packet = heapq.heappop(queue)
            with contextlib.suppress(OSError):
                port.send(packet)


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(json.loads(sys.argv[2]))
    elif sys.argv[1] == "relay":
        relay(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))

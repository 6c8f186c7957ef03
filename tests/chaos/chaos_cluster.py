"""The cluster of the chaos test: real daemons, each node behind a relay, the server's state on a small tmpfs of its own."""

import ctypes
import errno
import os
import shutil
import subprocess
import time

import ddpproto
from faults_lib import PATIENCE_S, Cluster, Daemon, digits_env, is_alive, wait_until
from relay import Relay

NODES, SLOTS = 3, 4
STATE_MIB = 64
LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2


class Restarted(Daemon):
    """A daemon that starts without waiting for its ready line. `excuses`: reasons for which it may exit by itself at present, but not die
    of a signal. `is_wanted`: false between kill() and start()."""

    is_wanted = False

    def __init__(self, argv, log, word):
        super().__init__(argv, log, word)
        self.excuses = set()

    def kill(self):
        self.is_wanted = False
        super().kill()

    def start(self):
        self.is_wanted = True
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
                                            env=digits_env())
        return self

    def is_up(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid


class ChaosCluster(Cluster):
    def __init__(self, build):
        super().__init__(build, NODES, SLOTS, ["--suspect", "2s", "--lost", "5s", "--lease", "12s"])
        os.mkdir(f"{self.folder}/server")
        self.has_tmpfs = LIBC.mount(b"tmpfs", f"{self.folder}/server".encode(), b"tmpfs", 0,
                                    f"size={STATE_MIB}m,mode=700".encode()) == 0
        self.server = Restarted(self.server.argv, self.server.log, "")
        self.relays = []
        for i, node in enumerate(self.nodes):
            path = f"{self.folder}/relay{i}.sock"
            argv = [f"unix:{path}" if word == self.address else word for word in node.argv]
            self.nodes[i] = Restarted(argv, node.log, "")
            self.relays.append(Relay(path, f"{self.folder}/rendezvous.sock"))
        os.environ["TMPDIR"] = f"{self.folder}/tmp"
        os.mkdir(os.environ["TMPDIR"])

    def check_rest(self):
        """Checks that nothing is left. Call it once all jobs have ended; the server may still have to tell the nodes to forget them."""
        wait_until(lambda: not self.run_dirs(), "the run directories to go", 60)
        left = os.listdir(f"{self.folder}/tmp")
        assert not left, f"left in the folder of temporary files: {left}"

    def __exit__(self, kind, value, trace):
        for relay in self.relays:
            relay.close()
        try:
            return super().__exit__(kind, value, trace)
        finally:  # without a mount namespace the tmpfs would stay mounted
            if self.has_tmpfs:
                LIBC.umount2(f"{self.folder}/server".encode(), MNT_DETACH)
                shutil.rmtree(self.folder, ignore_errors=True)

    # --- talking to the server ---

    def ask(self, work, timeout_s=0.5):
        """The server's answer; None if it does not answer."""
        try:
            with ddpproto.Client(self.address, timeout_s) as client:
                return work(client)
        except (ddpproto.Closed, OSError, ValueError):
            return None
        except ddpproto.Refused as error:
            if error.code in ("full", "later"):
                return None
            raise

    def insist(self, work):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            self.tend()
            answer = self.ask(work)
            if answer is not None:
                return answer
            time.sleep(0.02)
        raise AssertionError(f"no answer of the server within {PATIENCE_S} s")

    def tend(self):
        """Called while a test waits, so that faults go on; the chaos test replaces this function."""

    # --- processes ---

    def children(self):
        """{node: {shim: [its workers]}} as pids, from /proc."""
        mine = f"{self.folder}/node"
        parents, shims = {}, {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    parents.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "--shim" in words:
                where = next((word for word in words if word.startswith(mine)), "")
                if where:
                    shims[int(name)] = int(where[len(mine):].split("/")[0])
        found = {i: {} for i in range(NODES)}
        for shim, node in sorted(shims.items()):
            found[node][shim] = sorted(pid for pid in parents.get(shim, []) if pid not in shims and is_alive(pid))
        return found

    # --- the server's disk ---

    def fill(self):
        with open(f"{self.folder}/server/filler", "wb", buffering=0) as file:
            step = 1 << 20
            while step >= 512:
                try:
                    file.write(b"\0" * step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2

    def empty(self):
        os.remove(f"{self.folder}/server/filler")

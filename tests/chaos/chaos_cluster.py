"""The cluster of the chaos test: real daemons, each node behind a relay, the server's state on a small tmpfs of its own."""

import ctypes
import errno
import os
import shutil

from processes import proc, wire
from processes.case import Daemon
from processes.own import OwnCluster
from processes.waiting import LONG_S, wait_for
from relay import Relay

NODES, SLOTS = 3, 4
STATE_MIB = 64
LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2


class Restarted(Daemon):
    """A daemon that starts without waiting for its ready line. `excuses`: reasons for which it may exit by itself at present, but not die
    of a signal. `is_wanted`: false between kill() and start()."""

    is_wanted = False

    def __init__(self, daemon):
        super().__init__(daemon.argv, daemon.log_path, daemon.environ)
        self.excuses = set()

    def kill(self):
        self.is_wanted = False
        return super().kill()

    def start(self):
        self.is_wanted = True
        return self.begin()


class ChaosCluster(OwnCluster):
    def __init__(self):
        super().__init__(NODES, SLOTS, ["--suspect", "2s", "--lost", "5s", "--lease", "12s"])
        os.mkdir(f"{self.folder}/server")
        self.has_tmpfs = LIBC.mount(b"tmpfs", f"{self.folder}/server".encode(), b"tmpfs", 0,
                                    f"size={STATE_MIB}m,mode=700".encode()) == 0
        self.server = Restarted(self.server)
        self.relays = []
        for i, node in enumerate(self.nodes):
            path = f"{self.folder}/relay{i}.sock"
            node.argv = [f"unix:{path}" if word == self.address else word for word in node.argv]
            self.nodes[i] = Restarted(node)
            self.relays.append(Relay(path, f"{self.folder}/rendezvous.sock"))
        os.environ["TMPDIR"] = self.case.temp

    def check_rest(self):
        """Checks that nothing is left. Call it once all jobs have ended; the server may still have to tell the nodes to forget them."""
        wait_for("the run directories to go", lambda: not self.run_dirs())
        left = os.listdir(self.case.temp)
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
            with wire.Client(self.address, timeout_s) as client:
                return work(client)
        except (wire.Closed, OSError, ValueError):
            return None
        except wire.Refused as error:
            if error.code in ("full", "later"):
                return None
            raise

    def insist(self, work):
        def look():
            self.tend()
            return self.ask(work)
        return wait_for("an answer of the server", look, LONG_S)

    def tend(self):
        """Called while a test waits, so that faults go on; the chaos test replaces this function."""

    # --- processes ---

    def children(self):
        """{node: {shim: [its workers]}} as pids, from /proc."""
        mine = f"{self.folder}/node"
        parents, shims = {}, {}
        for pid in proc.pids():
            if stat := proc.stat_of(pid):
                parents.setdefault(int(stat[1]), []).append(pid)
            words = proc.command_of(pid)
            if "--shim" in words:
                where = next((word for word in words if word.startswith(mine)), "")
                if where:
                    shims[pid] = int(where[len(mine):].split("/")[0])
        found = {i: {} for i in range(NODES)}
        for shim, node in sorted(shims.items()):
            found[node][shim] = sorted(pid for pid in parents.get(shim, []) if pid not in shims and proc.is_alive(pid))
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

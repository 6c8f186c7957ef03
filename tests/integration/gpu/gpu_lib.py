"""Real daemons on a stand-in libnvidia-ml.so.1 that answers from a file which the test rewrites (tests/standin/nvml/nvml.c)."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ctl"))
from ctl_lib import BUILD, WAIT_S, Case, Cluster, clean_environ, equal, run_tests, wait_until  # noqa: E402,F401

STAND_IN = os.environ.get("STAND_IN_DIR", os.path.join(BUILD, "tests", "standin", "nvml"))
IDLE_MIB = 500


class Gpus:
    """The script of the stand-in: lines with names; each change replaces a whole line."""

    def __init__(self, folder, count):
        self.path = os.path.join(folder, "nvml")
        self.count = count
        self.lines = {}
        self.xid_serial = 0
        self.write()

    def write(self):
        text = f"gpus {self.count}\n" + "".join(line + "\n" for line in self.lines.values())
        text += "".join(f"memory {i} {IDLE_MIB}\n" for i in range(self.count))  # for each GPU the first such line counts
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(text)
        os.rename(self.path + ".new", self.path)

    def set(self, name, line):
        self.lines[name] = line
        self.write()

    def clear(self, *names):
        for name in names:
            del self.lines[name]
        self.write()

    def xid(self, gpu, number):
        self.xid_serial += 1
        self.set(f"xid{self.xid_serial}", f"xid {self.xid_serial} {gpu} {number}")


class GpuCluster(Cluster):
    """rendezvous and one launcherd, node0, which detects its GPUs by itself. `timeout`: its --gpu-timeout; short for tests that wait for it to pass."""

    def __init__(self, case, gpus=2, slots=None, lines=None, timeout="5s", server_options=()):
        self.gpus = Gpus(case.dir, gpus)
        for name, line in (lines or {}).items():
            self.gpus.set(name, line)
        self.options = ["--gpu-timeout", timeout] + ([] if slots is None else ["--slots", str(slots)])
        super().__init__(case, nodes=0, server_options=server_options)
        self.start_node()

    def start_node(self):
        log = open(f"{self.case.dir}/node0.log", "ab")
        environ = clean_environ(LD_LIBRARY_PATH=STAND_IN, STAND_IN_NVML=self.gpus.path)
        daemon = subprocess.Popen([os.path.join(BUILD, "launcherd", "launcherd"), "--server", self.server, "--name",
                                   "node0", *self.options, "--state-dir", f"{self.case.dir}/node0", "--exit-with-parent",
                                   "--allow-root"], env=environ, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        self.ready = daemon.stdout.readline().decode()
        assert self.ready, f"node0 did not get ready:\n{self.log()}"
        self.daemons["node0"] = daemon

    def log(self):
        with open(f"{self.case.dir}/node0.log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def end_node(self, kill=False):
        daemon = self.daemons.pop("node0")
        if kill:
            daemon.kill()
        else:
            daemon.terminate()
        code = daemon.wait(WAIT_S)
        daemon.stdout.close()
        return code

    def node(self):
        """node0 as `ddpctl node show --json` prints it."""
        done = self.ctl("node", "show", "node0", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["node"]

    def wait_node(self):
        """Waits until a restarted server knows the node."""
        wait_until("node0", lambda: '"state":"up"' in self.ctl("nodes", "--json").stdout)

    def slot(self, number):
        return self.node()["slot_list"][number]

    def wait_slot(self, number, state, reason=None):
        """Waits until the slot has that state; returns the slot. After WAIT_S it fails and shows the last state."""
        end = time.monotonic() + WAIT_S
        while True:
            slot = self.slot(number)
            if slot["state"] == state and reason in (None, slot["reason"]):
                return slot
            assert time.monotonic() < end, f"slot {number} is not {state} ({reason}): {slot}\n{self.log()}"
            time.sleep(0.02)

    def wait_job(self, job, state):
        wait_until(f"job {job} {state}", lambda: self.status(job)["state"] == state)
        return self.status(job)

    def wait_reason(self, job, reason):
        end = time.monotonic() + WAIT_S
        while self.status(job)["reason"] != reason:
            assert time.monotonic() < end, f"the reason is {self.status(job)['reason']!r}, not {reason!r}"
            time.sleep(0.02)

    def events(self):
        done = self.ctl("events", "--json")
        assert done.returncode == 0, done.stderr
        return [event["text"] for event in json.loads(done.stdout)["events"]]

    def wait_event(self, text):
        end = time.monotonic() + WAIT_S
        while text not in self.events():
            assert time.monotonic() < end, f"no event {text!r} in {self.events()}"
            time.sleep(0.02)

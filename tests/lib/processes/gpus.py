"""A cluster on a stand-in libnvidia-ml.so.1 that answers from a file which the test rewrites (tests/standin/nvml/nvml.c)."""
import json
import os

from processes.case import BUILD, Cluster
from processes.waiting import wait_for

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

    def start_node(self):  # pylint: disable=arguments-differ
        node = self.launch("node0", "launcherd", "--server", self.address, "--name", "node0", *self.options, "--allow-root",
                           LD_LIBRARY_PATH=STAND_IN, STAND_IN_NVML=self.gpus.path)
        self.ready = node.line

    def log(self):
        return self.daemons["node0"].log()

    def end_node(self, kill=False):
        daemon = self.daemons.pop("node0")
        return daemon.kill() if kill else daemon.end()

    def node(self):
        """node0 as `ddpctl node show --json` prints it."""
        return json.loads(self.do("node", "show", "node0", "--json"))["node"]

    def wait_node(self):
        """Waits until a restarted server knows the node."""
        wait_for("node0", lambda: '"state":"up"' in self.ctl("nodes", "--json").stdout)

    def slot(self, number):
        return self.node()["slot_list"][number]

    def wait_slot(self, number, state, reason=None):
        """Waits until the slot has that state; returns the slot."""
        def look():
            self.seen = self.slot(number)
            return self.seen if self.seen["state"] == state and reason in (None, self.seen["reason"]) else None
        return wait_for(lambda: f"slot {number} {state} ({reason}): {self.seen}\n{self.log()}", look)

    def wait_job(self, job, state):
        return wait_for(f"job {job} {state}", lambda: (seen := self.status(job))["state"] == state and seen)

    def wait_reason(self, job, *reasons):
        """Until the job waits for one of them."""
        wait_for(lambda: f"the reason {reasons}: it is {self.status(job)['reason']!r}", lambda: self.status(job)["reason"] in reasons)

    def events(self):
        return [event["text"] for event in json.loads(self.do("events", "--json"))["events"]]

    def wait_event(self, text):
        wait_for(lambda: f"event {text!r} in {self.events()}", lambda: text in self.events())

"""A scripted launcherd, for tests of rendezvous."""
import base64
import os
import select
import socket
import threading
import time

from processes.waiting import PATIENCE_S
from processes.wire import NODE_IDENTITY, PROTOCOL, Closed, Peer


class Node(threading.Thread):
    """A scripted launcherd: it carries out each order at once; the test ends its ranks (finish).

    `log` of a rank is served from self.logs[(job, generation, rank)]."""

    def __init__(self, address, name, slots=2, instance=None, beat_s=0.1, auto=True,
                 shims=None, logs=None, gpus=0, key=None):
        super().__init__(daemon=True)
        self.key = key
        self.address, self.name_, self.slots, self.beat_s = address, name, slots, beat_s
        self.instance = instance or int.from_bytes(os.urandom(7), "big")
        self.gpus = gpus
        self.closed = []  # slots that the server must not assign
        self.leaving = False  # True: ends once no job is on it
        self.warm = []  # jobs for which processes wait here: job_id, state
        self.auto = auto  # False: reports phases only when the test says so
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.shims, self.logs, self.orders = dict(shims or {}), dict(logs or {}), []
        for shim in self.shims.values():
            shim["acked"] = 0  # a new server gets every report again
        self.welcomed, self.error, self.closing = None, None, False
        self.silent = False  # True: reads, sends nothing
        self.blob = ""
        self.connect()
        self.start()

    def connect(self):
        self.peer = Peer(self.address, key=self.key)
        self.peer.send("node_hello", protocol=PROTOCOL, version="test", name=self.name_,
                       boot_id="boot", instance=self.instance, pid=os.getpid(),
                       address="127.0.0.1", slots=self.slots, gpus=self.gpus, shims=self.listing(),
                       closed=self.closed, **NODE_IDENTITY)

    def listing(self):
        with self.lock:
            return [dict(job_id=s["job_id"], generation=s["generation"], phase=s["phase"],
                         slot_mask=s["slot_mask"], unseen=s.get("unseen", False)) for s in self.shims.values()]

    def run(self):
        next_beat = 0
        try:
            while not self.closing:
                now = time.monotonic()
                if now >= next_beat:
                    next_beat = now + self.beat_s
                    with self.lock:
                        if self.silent:
                            continue
                        self.peer.send("beat", sent_us=int(now * 1e6), shims=self.listing(),
                                       closed=self.closed, leaving=self.leaving, warm=self.warm, silent=[])
                        for shim in self.shims.values():
                            if shim["acked"] < shim["revision"]:
                                self.report(shim)
                if not self.peer.received:
                    ready, _, _ = select.select([self.peer.socket], [], [],
                                                max(0, next_beat - time.monotonic()))
                    if not ready:
                        continue
                message = self.peer.recv()
                with self.lock:
                    self.orders.append(message)
                    self.obey(message)
                    self.changed.notify_all()
        except (Closed, OSError, ValueError) as error:
            if isinstance(error, OSError):
                self.take_last_words()
            with self.lock:
                self.error = self.error or str(error)
                self.changed.notify_all()

    def take_last_words(self):
        """Reads what is left: a beat to a server that has refused us fails before the reason is read."""
        try:
            while self.error is None and not self.closing:
                message = self.peer.recv()
                with self.lock:
                    self.orders.append(message)
                    self.obey(message)
        except (Closed, OSError, ValueError):
            pass

    def obey(self, message):
        kind, key = message["type"], (message.get("job_id"), message.get("generation"))
        shim = self.shims.get(key)
        if kind == "node_welcome":
            self.welcomed = message
        elif kind == "error":
            self.error = message["message"]
        elif kind == "start" and shim is None:
            self.shims[key] = shim = dict(
                job_id=key[0], generation=key[1], slot_mask=message["slot_mask"], phase="preparing",
                revision=0, acked=0, has_world=False, failed_rank=-1, cause="", tail="", error="",
                failed_oom=False, failed_core="", warm_late=False, failed_by_peer=False, notice="",
                ranks=[dict(rank=message["rank_base"] + i, state="waiting", pid=0, exit_code=0,
                            signal=0, joined=False) for i in range(message["local_count"])])
            if self.auto:
                self.change(shim, phase="ready")
        elif kind == "go" and shim and shim["phase"] == "ready":
            for rank in shim["ranks"]:
                rank.update(state="running", pid=1000 + rank["rank"], joined=True)
            self.change(shim, phase="running")
        elif kind == "world" and shim:
            self.change(shim, has_world=True)
        elif kind == "stop":
            if shim and shim["phase"] != "ended":
                for rank in shim["ranks"]:
                    if rank["state"] == "running":
                        rank.update(state="stopped", signal=message["signal"])
                self.change(shim, phase="ended")
        elif kind == "forget":
            self.shims.pop(key, None)
        elif kind == "report_ack" and shim:
            shim["acked"] = max(shim["acked"], message["revision"])
        elif kind == "log_read":
            self.serve_log(message)

    def change(self, shim, **fields):
        shim.update(fields)
        shim["revision"] += 1
        self.report(shim)

    def report(self, shim):
        fields = {k: v for k, v in shim.items() if k not in ("slot_mask", "acked")}
        first = shim["ranks"][0]["rank"] == 0 and shim["ranks"][0]["joined"]
        self.peer.send("shim_report", master_port=40000, blob=self.blob if first else "",
                       failed_age_us=0, failed_errno_exit=0, **{"failed_class": "unsaid", **fields})

    def serve_log(self, message):
        if self.logs.get("silent"):
            return
        key = (message["job_id"], message["generation"], message["rank"])
        data = self.logs.get(key if message["what"] == "output" else (*key, message["what"]), b"")
        part = data[message["offset"]:message["offset"] + message["bytes_max"]]
        self.peer.send("log_data", runs=[], size=len(data), request_id=message["request_id"], offset=message["offset"],
                       bytes=base64.b64encode(part).decode(),
                       is_final=message["offset"] + len(part) == len(data), problem="")

    def progress(self, job_id, generation, **fields):
        wanted = dict(rank=0, epoch=1, epochs=2, step=1, steps=100, loss=0.5, samples_per_s=10.0,
                      checkpoint_step=0, phase="steps", doing="", collectives=0, in_collective=False, again_us=0, timed_steps=0,
                      step_us=0, data_us=0, compute_us=0, update_us=0, wait_us=0)
        wanted.update(fields)
        with self.lock:
            self.peer.send("progress", job_id=job_id, generation=generation, **wanted)

    def wait(self, accept, what="the node's state"):
        with self.lock:
            if not self.changed.wait_for(lambda: accept(self), PATIENCE_S):
                raise AssertionError("%s never came: %s" % (what, self.orders[-5:]))

    def wait_phase(self, job_id, generation, phase):
        self.wait(lambda n: n.shims.get((job_id, generation), {}).get("phase") == phase, phase)

    def finish(self, job_id, generation, exit_code=0, signal_=0):
        """Ends every rank of this node with that exit code or signal; a failure is reported for the first rank."""
        with self.lock:
            shim = self.shims[(job_id, generation)]
            for rank in shim["ranks"]:
                rank.update(state="exited", exit_code=exit_code, signal=signal_)
            if exit_code or signal_:
                shim.update(failed_rank=shim["ranks"][0]["rank"], tail="boom\n",
                            cause="rank %d exited %d" % (shim["ranks"][0]["rank"], exit_code))
            self.change(shim, phase="ended")

    def close(self):
        self.closing = True
        try:
            self.peer.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.join(PATIENCE_S)
        self.peer.close()

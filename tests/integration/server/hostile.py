"""Peers that follow the message format and no other rule: random valid messages, in any order, about random jobs and about jobs that
the server has mentioned."""

import json
import struct

from processes.wire import CLIENT_HELLO, encode, frame, from_wire, NODE_IDENTITY, Peer, PROTOCOL, submission

NAMES = ["n%d" % i for i in range(6)]
PHASES = ["preparing", "ready", "running", "stopping", "ended"]
SLOT_STATES = ["free", "busy", "checking", "quarantined", "unknown", "drained"]
RANK_STATES = ["waiting", "running", "exited", "stopped", "lost"]
YEAR_US = 366 * 86400 * 10**6


class Hostile:
    """A node or a client, at random; `orders`: what the server has sent to any node of this test."""

    def __init__(self, address, rng, orders):
        self.rng, self.orders = rng, orders
        self.is_node = rng.random() < 0.6
        self.peer = Peer(address)
        if self.is_node:
            self.peer.send("node_hello", protocol=PROTOCOL, version="x", name=rng.choice(NAMES), boot_id="b",
                           instance=rng.choice([1, rng.getrandbits(64)]), pid=1, address="127.0.0.1",
                           slots=rng.choice([1, 2, 8, 64]), gpus=rng.choice([0, 1, 64]), shims=self.shims(),
                           closed=self.closed(), **dict(NODE_IDENTITY, drains_on_term=rng.random() < 0.5))
        else:
            self.peer.send("client_hello", **CLIENT_HELLO)

    def text(self, most):
        return "".join(self.rng.choice("a\u00e9\u6f22 ") for _ in range(self.rng.randrange(most)))

    def job(self):
        return self.rng.choice([1, 2, 3, self.rng.randrange(1, 100), 2**53 - 1])

    def key(self):
        """A job and generation that a node was ordered to run, or random ones."""
        known = [o for o in self.orders[-40:] if "generation" in o]
        if known and self.rng.random() < 0.8:
            order = self.rng.choice(known)
            return dict(job_id=order["job_id"], generation=order["generation"])
        return dict(job_id=self.job(), generation=self.rng.choice([1, 1, 2, 1000000]))

    def mask(self):
        return self.rng.choice([0, 1, 2, 3, self.rng.getrandbits(64), 2**64 - 1])

    def shims(self):
        return [dict(self.key(), phase=self.rng.choice(PHASES), slot_mask=self.mask(), unseen=self.rng.random() < 0.1)
                for _ in range(self.rng.choice([0, 1, 3, 128]))]

    def closed(self):
        return [dict(slot=self.rng.randrange(64), state=self.rng.choice(SLOT_STATES),
                     incident=self.rng.choice([0, 1, self.rng.getrandbits(64)]), reason=self.text(60))
                for _ in range(self.rng.choice([0, 0, 1, 64]))]

    def rank(self, number):
        return dict(rank=number, state=self.rng.choice(RANK_STATES), pid=self.rng.randrange(2**31),
                    exit_code=self.rng.randrange(256), signal=self.rng.randrange(65), joined=self.rng.random() < 0.8)

    def warm(self):
        states = ["starting", "ready", "failed", "ending"]
        return [dict(job_id=self.key()["job_id"], state=self.rng.choice(states)) for _ in range(self.rng.choice([0, 0, 1, 64]))]

    def report(self):
        key, rng = self.key(), self.rng
        start = next((o for o in self.orders if o["type"] == "start" and o["job_id"] == key["job_id"]), None)
        first, count = (start["rank_base"], start["local_count"]) if start else (rng.randrange(900), rng.choice([0, 64]))
        return dict(key, revision=rng.randrange(1, 2**32), phase=rng.choice(PHASES), master_port=rng.choice([0, 1, 65535]),
                    blob=rng.choice(["", "AAAA"]), has_world=rng.random() < 0.3,
                    failed_rank=rng.choice([-1, -1, -1, first, 1023]), failed_age_us=rng.choice([0, YEAR_US]),
                    failed_errno_exit=rng.choice([0, 0, 5, 127]),
                    failed_class=rng.choice(["unsaid", "program", "node", "network"]), cause=self.text(85), tail=self.text(600), error=self.text(600),
                    failed_oom=rng.random() < 0.2, failed_core=self.text(85), warm_late=rng.random() < 0.2, failed_by_peer=rng.random() < 0.2,
                    notice=self.text(85),
                    ranks=[self.rank(first + i) for i in range(count)])

    def of_node(self):
        rng = self.rng
        kind = rng.choice(["beat", "beat", "shim_report", "shim_report", "progress", "node_event", "log_data", "node_data"])
        if kind == "beat":
            return kind, dict(sent_us=rng.getrandbits(62), shims=self.shims(), closed=self.closed(),
                              leaving=rng.random() < 0.1, warm=self.warm(), silent=[])
        if kind == "shim_report":
            return kind, self.report()
        if kind == "progress":
            return kind, dict(self.key(), rank=rng.randrange(1024), epoch=rng.getrandbits(32), epochs=1, steps=1,
                              step=rng.getrandbits(53), loss=1e300, samples_per_s=0.0,
                              checkpoint_step=rng.choice([0, 1, rng.getrandbits(50)]))
        if kind == "node_event":
            return kind, dict(slot=rng.randrange(64), text="x" + self.text(80))
        if kind == "node_data":
            return kind, dict(request_id=rng.randrange(1, 100), bytes="", problem=self.text(20), node_ms=rng.getrandbits(62), server_ms=0)
        return kind, dict(request_id=rng.randrange(1, 100), offset=0, bytes="", is_final=True, problem=self.text(20),
                          size=0, runs=[])

    def of_client(self):
        rng, job = self.rng, str(self.rng.choice([self.job(), "@last", "job"]))
        wait_us = rng.choice([0, 1000, 60000000])
        return rng.choice([
            ("submit", submission(rng.choice([None, "%032d" % rng.randrange(20)]), nodes=rng.choice([1, 1, 2, 64]),
                                  nproc_per_node=rng.choice([1, 2, 64]), max_restarts=rng.choice([0, 3, 1000]),
                                  grace_us=rng.choice([0, YEAR_US]), time_limit_us=rng.choice([0, 1, YEAR_US]))),
            ("why_get", dict(job=job, ranks_of=rng.choice([0, 1, 2]))),
            ("job_get", dict(job=job, after_version=rng.choice([0, 1, 2**64 - 1]), wait_us=wait_us, first_rank=rng.choice([0, 1, 32767]))),
            ("job_list", dict(all=rng.random() < 0.5, after_id=rng.choice([0, 2**53 - 1]), limit=rng.choice([1, 500]))),
            ("cancel", dict(job=job, signal=rng.randrange(1, 65), grace_us=rng.choice([-1, 0, YEAR_US]))),
            ("node_list", dict(all=True, node=rng.choice([*NAMES, "", "none"]), after=rng.choice([*NAMES, "", "none"]), limit=rng.choice([1, 2, 256]))),
            ("server_get", dict(request_id=rng.getrandbits(60))),
            ("node_drain", dict(name=rng.choice(NAMES), slot_mask=self.mask(), reason="r" + self.text(60))),
            ("node_resume", dict(name=rng.choice(NAMES), slot_mask=rng.choice([0, 0, self.mask()]))),
            ("event_list", dict(job_id=rng.choice([0, self.job()]), after_id=0, limit=rng.choice([1, 200]), wait_us=wait_us)),
            ("node_read", dict(request_id=rng.getrandbits(60), node=rng.choice([*NAMES, "none"]), what=rng.choice(["clock", "doctor"]),
                               job=rng.choice(["", job]), peers=rng.choices([*NAMES, "none"], k=rng.randrange(64)), args={})),
            ("input", dict(self.key(), request_id=rng.getrandbits(60), rank=rng.choice([0, 1023]), offset=rng.getrandbits(62), bytes=rng.choice(["", "AAAA"]),
                           is_end=rng.random() < 0.5, rows=0, columns=65535)),
            ("log_read", dict(self.key(), what="output", request_id=rng.getrandbits(60), rank=rng.choice([0, 1023]),
                              offset=rng.getrandbits(62), tail_lines=0, bytes_max=1, wait_us=wait_us, submitted_ms=0)),
        ])

    def speak(self, count):
        """Sends that many messages and reads the available answers. False: the connection has ended."""
        data = b""
        for _ in range(count):
            kind, fields = self.of_node() if self.is_node else self.of_client()
            data += frame(encode(kind, **fields))
        sock = self.peer.socket
        try:
            sock.settimeout(60)
            sock.sendall(data)
            sock.setblocking(False)
            while True:
                more = sock.recv(1 << 20)
                if not more:
                    return False
                self.peer.received += more
        except BlockingIOError:
            self.take()
            return True
        except OSError:
            return False

    def take(self):
        received = self.peer.received
        while len(received) >= 4 and len(received) >= 4 + struct.unpack(">I", received[:4])[0]:
            size = struct.unpack(">I", received[:4])[0]
            if self.is_node:
                self.orders.append(from_wire(json.loads(received[4:4 + size])))
            received = received[4 + size:]
        self.peer.received = received
        del self.orders[:-100]

"""kill -9 of the server at random moments during concurrent submits; clients repeat a submit with the same request id.

No acknowledged submit may be lost or doubled: the same request id always leads to the same job, and at the end of
each round the store has exactly one job for each request id that was ever sent."""

import os
import random
import sqlite3
import subprocess
import tempfile
import threading

from processes import wire
from processes.waiting import let_pass, PATIENCE_S, read_line, Stopwatch

CLIENTS = 4
ROUND_KILLS = 250  # after this many, the state is compared, and the next round begins with an empty one


class Round:
    """One state directory, a server that is killed again and again, and clients that submit."""

    def __init__(self, build, folder, seed):
        self.program = os.path.join(build, "rendezvous", "rendezvous")
        self.folder, self.address = folder, f"unix:{folder}/socket"
        self.chance = random.Random(seed)
        self.lock = threading.Condition()
        self.jobs = {}  # {request id: job id} of acknowledged submits
        self.sent = set()
        self.answers = self.retries = 0
        self.problem, self.is_over = None, False
        self.process = None

    # --- the server ---

    def spawn(self):
        with open(f"{self.folder}/server.log", "ab") as log:
            self.process = subprocess.Popen([self.program, "--state-dir", f"{self.folder}/state", "--socket",
                                             f"{self.folder}/socket", "--max-queued-per-user", "100000"], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log)

    def wait_ready(self):
        line = read_line(self.process, "the ready line of the server")
        if "ready" not in line:
            raise AssertionError(f"the server said {line!r}, not ready; see {self.folder}/server.log")

    def kill(self):
        self.process.kill()
        code = self.process.wait()
        self.process.stdout.close()
        if code != -9:
            raise AssertionError(f"the server ended with {code} before it was killed; see {self.folder}/server.log")

    def life(self):
        """One life of the server: from its start, during which it may be killed, until it has answered some clients."""
        self.spawn()
        if self.chance.random() < 0.3:
            let_pass(self.chance.uniform(0, 0.03))  # during its start, or soon after
        else:
            self.wait_ready()
            with self.lock:
                wanted = self.answers + self.chance.randrange(12)
                if not self.lock.wait_for(lambda: self.answers >= wanted or self.problem, PATIENCE_S):
                    raise AssertionError("the server answers nothing any more")
            let_pass(self.chance.uniform(0, 0.003))
        self.kill()

    # --- the clients ---

    def take(self, request, answer):
        with self.lock:
            job = self.jobs.setdefault(request, answer["job_id"])
            self.answers += 1
            if job != answer["job_id"] and self.problem is None:
                self.problem = f"request {request} was job {job} and is now job {answer['job_id']}"
            self.lock.notify_all()

    def client(self, chance):
        peer, request = None, None
        while self.problem is None:
            if request is None:
                if self.is_over:
                    break
                known = list(self.jobs) if chance.random() < 0.05 else []
                request = chance.choice(known) if known else "%032x" % chance.getrandbits(128)
                self.sent.add(request)
            try:
                peer = peer or wire.Client(self.address)
                self.take(request, peer.submit(request, wait_for_nodes=True))
                request = None
            except (wire.Closed, OSError, ValueError):
                self.retries += 1
                if peer is not None:
                    peer.close()
                peer = None
                let_pass(0.001)
            except wire.Refused as error:
                self.problem = f"a submit was refused: {error}"
        if peer is not None:
            peer.close()

    # --- the whole ---

    def run(self, kills):
        threads = [threading.Thread(target=self.client, args=(random.Random(self.chance.random()),), daemon=True)
                   for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                self.life()
                if self.problem:
                    break
        except BaseException as error:
            self.problem = self.problem or f"{type(error).__name__}: {error}"
            raise
        self.spawn()
        self.wait_ready()
        self.is_over = True
        for thread in threads:
            thread.join(PATIENCE_S)
        try:
            if not self.problem:
                self.compare()
        finally:
            self.process.terminate()
            self.process.wait()
            self.process.stdout.close()
        if self.problem:
            raise AssertionError(self.problem)

    def compare(self):
        with wire.Client(self.address) as client:
            for request, job in self.jobs.items():
                answer = client.submit(request, wait_for_nodes=True)
                if answer["job_id"] != job or answer["is_new"]:
                    self.problem = f"request {request} was acknowledged as job {job}, now: {answer}"
                    return
        with sqlite3.connect(f"file:{self.folder}/state/state.db?mode=ro", uri=True) as store:
            stored = dict(store.execute("SELECT request_id, count(*) FROM jobs GROUP BY request_id"))
        store.close()
        twice = [request for request, count in stored.items() if count != 1]
        if twice or set(stored) != self.sent or set(self.jobs) != self.sent:
            self.problem = (f"{len(stored)} requests stored, {len(self.jobs)} acknowledged, {len(self.sent)} sent; "
                            f"twice: {twice[:3]}")


def run(build, seed, kills):
    done = submits = retries = 0
    watch = Stopwatch()
    while done < kills:
        count = min(ROUND_KILLS, kills - done)
        with tempfile.TemporaryDirectory(prefix="ddp-chaos-") as folder:
            this = Round(build, folder, f"{seed}-{done}")
            try:
                this.run(count)
            except AssertionError:
                with open(f"{folder}/server.log", encoding="utf-8", errors="replace") as log:
                    print("".join(log.readlines()[-20:]))
                print(f"seed {seed}, after kill {done} of {kills}", flush=True)
                raise
            done, submits, retries = done + count, submits + len(this.jobs), retries + this.retries
        print(f"{done} kills in {watch.passed_s:.0f} s: {submits} submits acknowledged, none lost, none doubled; "
              f"{retries} tries cut off", flush=True)

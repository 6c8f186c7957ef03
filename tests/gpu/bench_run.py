"""Programs under a time limit for bench.py: one at a time, or several that take turns."""
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import threading
import time


class Failed(Exception):
    """Ours failed; the text is for the report."""


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def start(argv, env=None, **more):
    try:
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
                                env={**os.environ, **(env or {})}, **more)
    except OSError as error:
        raise Failed(f"{argv[0]}: {error.strerror}") from error


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[-200:] if lines else "it said nothing"


def run(argv, limit_s, env=None):
    """What it printed. Failed: it cannot start, ends with another code than 0, or takes longer."""
    if limit_s <= 0:
        raise Failed(f"no time left to start {os.path.basename(argv[0])}")
    process = start(argv, env, stderr=subprocess.STDOUT)
    try:
        text = process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired as late:
        kill(process)
        raise Failed(f"{os.path.basename(argv[0])} took more than {limit_s:.0f} s and was killed") from late
    finally:
        if process.poll() is None:
            kill(process)
    sys.stderr.write(text)
    if process.returncode != 0:
        raise Failed(f"{os.path.basename(argv[0])} ended with {process.returncode}: {last_line(text)}")
    return text


class Turns:
    """A program that does one round for every line that it reads, and prints "round MILLISECONDS"."""

    def __init__(self, name, argv, env=None):
        self.name, self.times, self.error, self.peak_mb = name, [], None, None
        self.lines = queue.Queue()
        self.process = None
        try:
            self.process = start(argv, env, stdin=subprocess.PIPE)
        except Failed as failure:
            self.error = str(failure)
            return
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def line(self, deadline):
        """None: it ended, or the time is over."""
        try:
            return self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self.error = "did not answer in time"
            return None

    def give_up(self, what):
        code = self.process.poll()
        self.error = self.error or (f"{what}: exit code {code}" if code is not None else what)
        kill(self.process)

    def wait_ready(self, deadline):
        if self.error is None and self.line(deadline) != "ready":
            self.process_ended()
            self.give_up("does not run here")

    def process_ended(self):
        """For its exit code, where it is on its way out."""
        if self.error is not None:
            return
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass

    def round(self, deadline, counts=True):
        if self.error is not None:
            return
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except OSError:
            self.process_ended()
            self.give_up("ended in the middle")
            return
        answer = self.line(deadline)
        found = re.fullmatch(r"round ([0-9.]+)", answer or "")
        if not found:
            self.process_ended()
            self.give_up("ended in the middle" if answer is None else f"said {answer[:80]}")
        elif counts:
            self.times.append(float(found.group(1)))

    def close(self, deadline):
        if self.process is None:
            return
        if self.error is None:
            self.process.stdin.close()
            answer = self.line(deadline)
            while answer is not None:
                if answer.startswith("bytes "):
                    self.peak_mb = round(int(answer.split()[1]) / 2**20)
                answer = self.line(deadline)
        kill(self.process)

    def ms(self):
        return statistics.median(self.times) if self.times and self.error is None else None


def take_turns(ours, peers, rounds, deadline):
    """All have settled before the first round, one after the other, so that none is tuned beside another's work. A peer that
    takes too long, with settling or with a round, does not take the others' time."""
    everybody = []

    def share(part):
        now = time.monotonic()
        return now + part * (deadline - now)

    try:
        for turns, is_ours in [(ours, True), *[(make, False) for make in peers]]:
            one = turns()
            everybody.append(one)
            if is_ours:
                one.round(deadline, counts=False)
            else:
                one.wait_ready(share(0.75))
        for _ in range(rounds):
            for one in everybody:
                one.round(deadline if one is everybody[0] else share(0.5))
        for one in everybody:
            one.close(deadline)
    finally:
        for one in everybody:
            if one.process is not None and one.process.poll() is None:
                kill(one.process)
    return everybody

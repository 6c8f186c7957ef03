"""Programs under a time limit for bench.py: one that runs alone, or several that take turns."""
import os
import queue
import re
import statistics
import subprocess
import sys
import threading
import time

import marking


class Failed(Exception):
    """Ours failed; the text is for the report."""


class NotMeasured(Exception):
    """A peer, or what this machine lacks; the text is for the report. Ours is not to blame."""


def start(argv, env=None, **more):
    """(process, its mark)"""
    environ, mark = marking.marked({**os.environ, **(env or {})})
    try:
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True, env=environ,
                                **more), mark
    except OSError as error:
        raise Failed(f"{argv[0]}: {error.strerror}") from error


def end(process, mark):
    """With all that it started. Returns words for the report where something stays."""
    left = marking.end(mark)
    try:
        process.wait(marking.GONE_WITHIN_S)
    except subprocess.TimeoutExpired:
        left = left or {process.pid: "the program"}
    return marking.words_of(left)


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[-200:] if lines else "it said nothing"


def run(argv, limit_s, env=None):
    """What it printed. Failed: it cannot start, ends with another code than 0, or takes longer."""
    if limit_s <= 0:
        raise Failed(f"no time left to start {os.path.basename(argv[0])}")
    process, mark = start(argv, env, stderr=subprocess.STDOUT)
    late, text, stayed = False, "", ""
    try:
        text = process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired as error:
        late, text = True, error.stdout or b""
    finally:
        stayed = end(process, mark)
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    sys.stderr.write("".join(f"   | {line}\n" for line in text.splitlines()))  # no figure of its own for the log's reader
    name = os.path.basename(argv[0])
    if late:
        raise Failed(f"{name} took more than its {limit_s:.0f} s and was killed; its last line: {last_line(text)}{stayed}")
    if process.returncode != 0:
        raise Failed(f"{name} ended with {process.returncode}: {last_line(text)}{stayed}")
    return text


class Turns:
    """A program that does one round for every line that it reads, and prints "round MILLISECONDS". What is said of it after it
    ended or was late is in `error`."""

    def __init__(self, name, argv, env=None):
        self.name, self.times, self.error, self.peak_mb = name, [], None, None
        self.begun = time.monotonic()
        self.settled_s = None  # until it was ready for the first round
        self.lines = queue.Queue()
        self.process = self.mark = None
        try:
            self.process, self.mark = start(argv, env, stdin=subprocess.PIPE)
        except Failed as failure:
            self.error = str(failure)
            return
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def line(self, deadline, doing):
        """None: it ended, or the time is over."""
        begun = time.monotonic()
        try:
            return self.lines.get(timeout=max(0.0, deadline - begun))
        except queue.Empty:
            self.error = f"{doing} took more than {max(0.0, deadline - begun):.0f} s"
            return None

    def give_up(self, what):
        """Ends it, whatever it does."""
        code = self.process.poll()
        self.error = self.error or (f"{what}: exit code {code}" if code is not None else what)
        self.error += end(self.process, self.mark)

    def wait_ready(self, deadline):
        if self.error is None and self.line(deadline, "its start (imports, compilation, warming up)") != "ready":
            self.process_ended()
            self.give_up("does not run here")
        self.settled_s = time.monotonic() - self.begun

    def process_ended(self):
        """For its exit code, where it is on its way out."""
        if self.error is not None:
            return
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass

    def round(self, deadline, counts=True):
        """Its milliseconds; None: there are none, and no more will come."""
        if self.error is not None:
            return None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except OSError:
            self.process_ended()
            self.give_up("ended in the middle")
            return None
        answer = self.line(deadline, "a round" if self.times or counts else "its start and first round")
        found = re.fullmatch(r"round ([0-9.]+)", answer or "")
        if not found:
            self.process_ended()
            self.give_up("ended in the middle" if answer is None else f"said {answer[:80]}")
            return None
        if counts:
            self.times.append(float(found.group(1)))
        return float(found.group(1))

    def close(self, deadline):
        if self.process is None or self.process.returncode is not None:
            return
        if self.error is None:
            try:
                self.process.stdin.close()
            except OSError:
                pass
            answer = self.line(deadline, "its end")
            while answer is not None:
                if answer.startswith("bytes "):
                    self.peak_mb = round(int(answer.split()[1]) / 2**20)
                answer = self.line(deadline, "its end")
            if self.times:
                self.error = None  # its rounds are there, however long it takes to end
        stayed = end(self.process, self.mark)
        if stayed:
            self.error = (self.error or "it was measured") + stayed

    def ms(self):
        return statistics.median(self.times) if self.times else None

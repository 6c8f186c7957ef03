"""Holds a training back, so that a fast machine does not end it before a test has disturbed it."""

import contextlib
import os
import signal
import threading
import time

LOOKS_S = 0.005
MOST_CREDIT_S = 0.1  # a training that was slow for a while may not make up for it at once


class Steps:
    """Counts the lines that are added to a log of a training, one line a step."""

    def __init__(self, log):
        self.log, self.count, self.offset = log, 0, None

    def look(self):
        """The number of steps since the first look."""
        try:
            with open(self.log, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if self.offset is None or size < self.offset:  # a new generation may begin the log anew
                    self.offset = 0 if self.offset is not None else size
                file.seek(self.offset)
                new = file.read()
        except FileNotFoundError:
            self.offset = 0
            return self.count
        self.offset += len(new)
        self.count += new.count(b"\n")
        return self.count


def workers(mark):
    """Descriptors of all processes of ddp-worker with this text in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            handle = os.pidfd_open(int(name))
        except OSError:
            continue
        try:
            with open(f"/proc/{name}/comm", "rb") as file:
                is_ours = file.read() == b"ddp-worker\n"
            if is_ours:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    is_ours = mark.encode() in file.read()
        except OSError:
            is_ours = False
        if is_ours:
            found.append(handle)
        else:
            os.close(handle)
    return found


def send(handles, number):
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)


def hold_back(steps, mark, most_steps_per_s, is_over):
    begun = time.monotonic() - steps.look() / most_steps_per_s
    while not is_over.wait(LOOKS_S):
        now = time.monotonic()
        ahead_s = steps.look() / most_steps_per_s - (now - begun)
        if ahead_s < -MOST_CREDIT_S:
            begun += -MOST_CREDIT_S - ahead_s
        elif ahead_s > 0:
            handles = workers(mark)
            try:
                send(handles, signal.SIGSTOP)
                is_over.wait(ahead_s)
            finally:
                send(handles, signal.SIGCONT)
                for handle in handles:
                    os.close(handle)


@contextlib.contextmanager
def paced(log, mark, most_steps_per_s=100):
    """Within this block the training makes at most so many steps in a second: its processes are stopped (SIGSTOP) while it is ahead.
    `log`: a file to which one of its ranks writes a line at each step. `mark`: text in the command line of its ddp-workers alone.
    A machine that makes fewer steps in a second is not held back."""
    is_over = threading.Event()
    thread = threading.Thread(target=hold_back, args=(Steps(log), mark, most_steps_per_s, is_over))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()

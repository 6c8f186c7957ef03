"""Waiting. Events come from pipes, process descriptors and long polls; what has no event is polled here, and nowhere else."""
import contextlib
import fcntl
import math
import os
import select
import time

PATIENCE_S = 60  # generous: for slow machines, never for synchronisation
LONG_S = 120  # where a limit of the product comes first
LOOKS_S = (0.001, 0.05)  # between two looks: a quarter of the time that has passed, within these


def wait_for(what, condition, patience_s=PATIENCE_S):
    """Waits until `condition` returns a true value, and returns it. `what`: what did not come; a function that tells it is called when it did not."""
    begun = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - begun
        if waited_s > patience_s:
            raise AssertionError(f"not within {patience_s} s: {what() if callable(what) else what}")
        time.sleep(min(max(waited_s / 4, LOOKS_S[0]), LOOKS_S[1]))
    return found


def wait_gone(what, *pids, patience_s=PATIENCE_S):
    """Waits until these processes have ended, whoever's children they are."""
    end = time.monotonic() + patience_s
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([handle], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"not within {patience_s} s: {what}: the end of process {pid}")
        finally:
            os.close(handle)


def read_line(process, what, patience_s=PATIENCE_S):
    """The next line of a process that was started with a pipe for its output, as text; empty at its end. Nothing else may read the pipe, nor may
    more than one line wait in it."""
    if not select.select([process.stdout], [], [], patience_s)[0]:
        raise AssertionError(f"not within {patience_s} s: {what}")
    line = process.stdout.readline()
    return line if isinstance(line, str) else line.decode()


def read_answer(fd, what, patience_s=PATIENCE_S):
    """A short line of a pipe, whose writer writes it at once."""
    if not select.select([fd], [], [], patience_s)[0]:
        raise AssertionError(f"not within {patience_s} s: {what}")
    return os.read(fd, 4096).decode()


class Stopwatch:
    """Time since it was made. `now`: the gated clock, where it is that of the processes."""

    def __init__(self, now=time.monotonic):
        self.now, self.begun = now, now()

    @property
    def passed_s(self):
        """To the nanosecond, or an hour by the gated clock could be less than 3600 s by the rounding of two numbers."""
        return round(self.now() - self.begun, 9)

    def check(self, what, at_least=0.0, at_most=math.inf):
        """Holds the time against a limit of the product. Returns it."""
        took = self.passed_s
        print(f"{what}: {took:.2f} s", flush=True)
        assert at_least <= took <= at_most, f"{what} took {took:.2f} s, not {at_least} to {at_most} s"
        return took

    def let_pass(self, seconds):
        """Until that much time has passed on its clock."""
        wait_for(f"{seconds} s to pass", lambda: self.passed_s > seconds, LONG_S)


@contextlib.contextmanager
def lasting(what, at_least=0.0, at_most=math.inf):
    """Holds a block against limits of the product in real time. The upper one must tell a right end from a time-out, not a fast machine from a
    slow one."""
    watch = Stopwatch()
    yield watch
    watch.check(what, at_least, at_most)


def let_pass(seconds):
    """For tests whose subject is that much time: how long a machine is cut off, or that nothing happens meanwhile."""
    time.sleep(seconds)


class Gate:
    """What runs `gate.wait`, as words of a shell, waits until the gate is opened."""

    def __init__(self, path):
        self.path, self.wait = path, f"flock -s {path} true"
        self.close()

    def close(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def open(self):
        os.close(self.fd)


def idle_words(path):
    """Words of a shell that runs its traps and waits for ever, without a child that it would leave behind. `path`: of a pipe, which is made."""
    os.mkfifo(path)
    return f"exec 9<>{path}; while :; do read _ <&9; done"

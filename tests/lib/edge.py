"""The controlled edge: stop points and faults in real processes, at system calls that a test names.

    with Edge(LIBRARY) as edge:
        moment = edge.stop("rename", "*/shim.json", program="launcherd --shim")
        process = subprocess.Popen(..., env={**os.environ, **edge.env})
        moment.wait()  # it is about to make that call; moment.pid, moment.tid and moment.path say who and what
        moment.kill()  # or moment.release()

The library (tests/lib/edge/edge.c) is preloaded. A rule counts the calls of one kind that have its path, of all processes whose program has
its name, together; it acts on the `nth`, or from the `nth` to the `last`. In patterns * is any text, also with slashes, and ? any character.
- Kinds: open (also openat, openat2, creat), rename, link (their path is the new name), unlink, mkdir, fsync, fdatasync, read, write (also
  pread, readv, ...), connect (path of a Unix socket as given, or HOST:PORT), exec, fork (also clone; its path is empty). Of calls with a descriptor,
  the path is what /proc/self/fd says: "/a/file", "pipe:[123]".
- `program`: the name of the program's file ("python3.11", "dash"), or that with the first argument ("launcherd --shim").
Not seen is what the C library does by itself (fopen, printf, posix_spawn), and what is called by no function of it."""
import ctypes
import errno
import mmap
import os
import platform
import select
import shutil
import signal
import subprocess
import tempfile
import time

KINDS = ("open", "rename", "link", "unlink", "mkdir", "fsync", "fdatasync", "read", "write", "connect", "exec", "fork")
ACTIONS = ("stop", "fail", "short", "note")
PATIENCE_S = 60  # of real time
MAGIC, RULES, NOTES, NO_END = 0x45444745, 64, 16384, 0xFFFFFFFF
FUTEX_WAIT, FUTEX_WAKE = 0, 1
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]
LIBC = ctypes.CDLL(None, use_errno=True)


class RuleData(ctypes.Structure):
    """struct edge_rule of edge.h"""
    _fields_ = [(name, ctypes.c_uint32) for name in ("is_on", "kind", "action")] + [("code", ctypes.c_int32)] + \
               [(name, ctypes.c_uint32) for name in ("first", "last", "calls", "reached", "released")] + \
               [("pid", ctypes.c_int32), ("tid", ctypes.c_int32), ("unused", ctypes.c_uint32),
                ("program", ctypes.c_char * 80), ("path", ctypes.c_char * 384), ("seen", ctypes.c_char * 512), ("fill", ctypes.c_char * 32)]


class NoteData(ctypes.Structure):
    """struct edge_note of edge.h"""
    _fields_ = [("kind", ctypes.c_uint32), ("pid", ctypes.c_int32), ("program", ctypes.c_char * 80), ("path", ctypes.c_char * 424)]


class FileData(ctypes.Structure):
    """struct edge_file of edge.h"""
    _fields_ = [("magic", ctypes.c_uint32), ("note_count", ctypes.c_uint32), ("unused", ctypes.c_uint32 * 14), ("rules", RuleData * RULES),
                ("notes", NoteData * NOTES)]


class WaiterData(ctypes.Structure):
    """struct edge_waiter of clock.h"""
    _fields_ = [("deadline_ns", ctypes.c_int64), ("owner", ctypes.c_uint64)]


class ClockData(ctypes.Structure):
    """struct edge_clock of clock.h"""
    _fields_ = [("now_ns", ctypes.c_int64), ("realtime_ns", ctypes.c_int64), ("moves", ctypes.c_uint64), ("changes", ctypes.c_uint64), ("waiters", WaiterData * 1024),
                ("pids", ctypes.c_int32 * 1024)]


class ControlData(ctypes.Structure):
    _fields_ = [("rules", FileData), ("clock", ClockData)]


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def futex_wait(data, field, value, timeout_s):
    """Returns when the word is not `value`, when it is woken, or after the time; often without a reason."""
    word = ctypes.addressof(data) + getattr(type(data), field).offset
    timeout = Timespec(int(timeout_s), int(timeout_s % 1 * 1e9))
    LIBC.syscall(ctypes.c_long(SYS_FUTEX), ctypes.c_void_p(word), ctypes.c_long(FUTEX_WAIT), ctypes.c_long(value), ctypes.byref(timeout), None,
                 ctypes.c_long(0))


def futex_wake(data, field):
    word = ctypes.addressof(data) + getattr(type(data), field).offset
    LIBC.syscall(ctypes.c_long(SYS_FUTEX), ctypes.c_void_p(word), ctypes.c_long(FUTEX_WAKE), ctypes.c_long(0x7FFFFFFF), None, None, ctypes.c_long(0))


class Rule:
    """A stop point or a fault."""

    def __init__(self, data, text):
        self._data, self._text = data, text
        self.hangs = text.startswith("stop")

    def __repr__(self):
        return f"{self._text}: {self.calls} calls, {self.reached} in the range, the last by process {self.pid}"

    def wait(self, times=1):
        """Waits until that many calls have been stopped here, or have got the fault."""
        end = time.monotonic() + PATIENCE_S
        while (reached := self._data.reached) < times:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not within {PATIENCE_S} s: {self._text}; {self._data.calls} calls matched, {reached} of {times} in the range")
            futex_wait(self._data, "reached", reached, left)
        return self

    def release(self):
        """Those that wait here go on, as do all that come later."""
        self._data.released = 1
        futex_wake(self._data, "released")

    def kill(self):
        """Kills the process that came here last, and waits for its end."""
        pidfd = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            assert select.select([pidfd], [], [], PATIENCE_S)[0], f"process {self.pid} does not end"
        finally:
            os.close(pidfd)

    def drop(self):
        """It counts no more calls; those that wait go on."""
        self._data.is_on = 0
        self.release()

    @property
    def pid(self):
        return self._data.pid

    @property
    def tid(self):
        return self._data.tid

    @property
    def path(self):
        return os.fsdecode(self._data.seen)

    @property
    def calls(self):
        """How many calls had its kind, path and program."""
        return self._data.calls

    @property
    def reached(self):
        """How many of them were in its range."""
        return self._data.reached


class Edge:
    """At its end all stop points are released, and processes that still run see no more rules."""

    def __init__(self, library=None):
        self.library = os.path.abspath(library or os.environ["EDGE_LIBRARY"])
        self.rules = []
        self.driver = None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="ddp-edge-")
        os.chmod(self.folder, 0o755)  # workers of other users read it, too
        path = f"{self.folder}/control"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.fchmod(fd, 0o666)
            os.ftruncate(fd, ctypes.sizeof(ControlData))
            control = ControlData.from_buffer(mmap.mmap(fd, ctypes.sizeof(ControlData)))
            self._data, self._clock = control.rules, control.clock
        finally:
            os.close(fd)
        self._data.magic = MAGIC
        before = os.environ.get("LD_PRELOAD", "")
        self.env = {"LD_PRELOAD": f"{self.library} {before}".strip(), "EDGE_FILE": path}
        return self

    def __exit__(self, *unused):
        for rule in self.rules:
            rule.drop()
        if self.driver is not None:
            self.driver.kill()
            self.driver.wait()
        shutil.rmtree(self.folder)

    def stop(self, kind, path="*", nth=1, program="*"):
        """A stop point: the nth such call waits, before it does anything, until it is released."""
        return self._add("stop", kind, path, program, nth, nth)

    def hang(self, kind, path="*", nth=1, last=None, program="*"):
        """These calls wait until the rule is released or the edge ends; without a `last`, from the nth on."""
        return self._add("stop", kind, path, program, nth, NO_END if last is None else last)

    def fail(self, kind, path="*", code=errno.EIO, nth=1, last=None, program="*"):
        """These calls fail with that errno and do nothing; without a `last`, from the nth on."""
        return self._add("fail", kind, path, program, nth, NO_END if last is None else last, code)

    def short(self, kind, path="*", nth=1, last=None, program="*"):
        """These reads or writes do half of their bytes, at least one; without a `last`, from the nth on."""
        assert kind in ("read", "write"), kind
        return self._add("short", kind, path, program, nth, NO_END if last is None else last)

    def note(self, kind, path="*", program="*"):
        """These calls are noted: see `notes`."""
        return self._add("note", kind, path, program, 1, NO_END)

    def notes(self):
        """The noted calls so far, in their order: (kind, program with its first argument, path, pid)."""
        count = self._data.note_count
        assert count <= NOTES, f"{count} calls, and room for {NOTES} notes"
        return [(KINDS[each.kind - 1], os.fsdecode(each.program), os.fsdecode(each.path), each.pid)
                for each in self._data.notes[:count] if each.kind > 0]

    def forget_notes(self):
        """Call while nothing that has a rule of notes runs."""
        ctypes.memset(self._data.notes, 0, ctypes.sizeof(NoteData) * min(self._data.note_count, NOTES))
        self._data.note_count = 0

    def clear(self):
        """Drops all rules, and has their places for others. Call while nobody is at one of them."""
        for rule in self.rules:
            rule.drop()
            ctypes.memset(ctypes.addressof(rule._data), 0, ctypes.sizeof(RuleData))  # pylint: disable=protected-access
        self.rules = []

    def clock(self):
        """Begins the gated clock, for processes that are started from now on; changes `env`. It stands while any thread of theirs, or of
        the test with all its other children, runs. When all sleep it goes to the next time that one of theirs waits for. So what waits
        a long time ends soon, and a slow machine does not let time pass. The test itself has the real clock."""
        assert self.driver is None
        folder = os.path.dirname(self.library)
        self._clock.now_ns = time.monotonic_ns()
        self._clock.realtime_ns = time.time_ns() - self._clock.now_ns
        self.env["LD_PRELOAD"] = f"{folder}/libedge_clock.so {self.env['LD_PRELOAD']}"
        self.driver = subprocess.Popen([f"{folder}/edge-driver", self.env["EDGE_FILE"], str(os.getpid())], stdin=subprocess.DEVNULL)

    def now(self):
        """The gated monotonic clock, in seconds."""
        return self._clock.now_ns / 1e9

    def sleep(self, seconds):
        """Until that much of its time has passed, also if nobody else waits for any."""
        subprocess.run(["sleep", str(seconds)], env={**os.environ, **self.env}, check=True)

    def _add(self, action, kind, path, program, first, last, code=0):
        assert 1 <= first <= last, (first, last)
        assert len(self.rules) < RULES, "no more rules"
        data = self._data.rules[len(self.rules)]
        data.kind, data.action, data.code, data.first, data.last = KINDS.index(kind), ACTIONS.index(action), code, first, last
        data.program, data.path = os.fsencode(program), os.fsencode(path)
        futex_wake(data, "reached")  # a barrier: nobody waits yet
        data.is_on = 1
        self.rules.append(Rule(data, f"{action} {kind} {path} {first}..{last} of {program}"))
        return self.rules[-1]

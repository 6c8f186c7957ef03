"""The end of a program with everything that it started, also in sessions of its own or under another parent.

Whatever is started here carries a mark in its environment, below the mark of who starts it. What has the mark, or descends from a
process that has it, is ended together: a peer's compilers hold the GPU and its memory as long as they live."""
import itertools
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from processes.waiting import wait_for  # noqa: E402

MARK = "GPU_TEST_RUN"
GONE_WITHIN_S = 15.0  # a driver takes its time to give memory back

_number = itertools.count(1)


def marked(environ):
    """(environment for a program, its mark)"""
    mark = f"{os.environ.get(MARK, '')}/{os.getpid()}.{next(_number)}"
    return {**environ, MARK: mark}, mark


def _read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it is gone, or somebody else's
        return b""


def _has(pid, mark):
    for entry in _read(pid, "environ").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == MARK.encode():
            return value == mark.encode() or value.startswith(mark.encode() + b"/")
    return False


def alive(mark):
    """{pid: name} of what has the mark and of its descendants; zombies are not alive."""
    parents, names = {}, {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        head, _, rest = _read(pid, "stat").rpartition(b")")
        fields = rest.split()
        if fields and fields[0] not in (b"Z", b"X"):
            parents[pid], names[pid] = int(fields[1]), head.partition(b"(")[2].decode(errors="replace")
    found = {pid for pid in parents if pid != os.getpid() and _has(pid, mark)}
    more = found
    while more:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= more
    return {pid: names[pid] for pid in found}


def end(mark, limit_s=GONE_WITHIN_S):
    """Kills all of them until none is left. Returns those that do not go: {pid: name}."""
    left = {}

    def are_gone():
        nonlocal left
        left = alive(mark)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        return not left

    try:
        wait_for("all of them to go", are_gone, limit_s)
    except AssertionError:
        pass
    return left


def words_of(left):
    """For a report; empty where all are gone."""
    return "; still there after SIGKILL: " + ", ".join(f"{name} ({pid})" for pid, name in sorted(left.items())) if left else ""

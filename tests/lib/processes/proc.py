"""What /proc says of processes. A process that has ended says nothing."""
import os
import signal


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(pid, name):
    """The bytes of /proc/PID/NAME; none if the process has ended or is somebody else's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def stat_of(pid):
    """The fields of its stat from the state on; none if it has ended."""
    return read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def state_of(pid):
    """R, S, D, T, Z, ...; X: it is gone."""
    return (stat_of(pid) or "X")[0]


def is_alive(pid):
    return state_of(pid) not in "ZX"


def child_pids(parent):
    return [pid for pid in pids() if (stat_of(pid) or ["X", "0"])[1] == str(parent)]


def command_of(pid):
    """The words of its command line; none if it has ended."""
    text = read(pid, "cmdline").decode(errors="replace")
    return text.split("\0") if text else []


def environ_of(pid):
    return read(pid, "environ").split(b"\0")


def descriptors_of(pid):
    """What each of its descriptors is: a path, or such as "anon_inode:[pidfd]"."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def rss_kib(pid):
    return next(int(line.split()[1]) for line in read(pid, "status").decode().splitlines() if line.startswith("VmRSS:"))


def with_text(text):
    """Processes that have this text in their command line or environment, except this one."""
    mark = os.fsencode(text)
    return [pid for pid in pids() if pid != os.getpid() and mark in read(pid, "cmdline") + read(pid, "environ")]


def kill_if_there(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended meanwhile
        pass


def ptrace_scope():
    """Yama's setting; above 0, only root may inspect processes that are not its children."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as scope:
            return int(scope.read())
    except FileNotFoundError:  # a kernel without Yama
        return 0

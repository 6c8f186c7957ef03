#!/usr/bin/env python3
"""The controlled edge itself, with small victims: EDGE_LIBRARY=LIBRARY edge_test.py [NAME...]"""
import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from processes.runner import run_tests
from processes.waiting import Stopwatch
from edge import PATIENCE_S, Edge

# What a victim has: the C library's own results, which Python would hide (it repeats calls that got EINTR).
HEAD = """import ctypes, errno, json, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
for each in ("read", "write", "pread", "pwrite", "writev", "readv"):
    getattr(libc, each).restype = ctypes.c_ssize_t
def call(name, *args):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*args)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else result
def say(*words):
    os.write(1, (json.dumps(words) + chr(10)).encode())
"""


class Victim:
    """A Python program in a folder of its own, preloaded; its output is lines of JSON."""

    def __init__(self, edge, folder, code, argument=""):
        self.process = subprocess.Popen([sys.executable, "-c", HEAD + code, *([argument] if argument else [])], cwd=folder, env={**os.environ, **edge.env},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)

    def heard(self):
        """Its next line."""
        assert select.select([self.process.stdout], [], [], PATIENCE_S)[0], "it says nothing"
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def end(self):
        """Its exit code, and the rest of what it has said."""
        try:
            text, _ = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, [json.loads(line) for line in text.splitlines()]


class Place:
    """A folder and an edge. At the end no victim is left."""

    def __init__(self):
        self.edge = Edge()
        self.victims = []

    def __enter__(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="ddp-edge-test-"))
        self.edge.__enter__()
        return self

    def __exit__(self, *error):
        self.edge.__exit__(*error)
        for victim in self.victims:
            if victim.process.poll() is None:
                victim.process.kill()
                victim.process.wait()
            victim.process.stdout.close()
        shutil.rmtree(self.folder)

    def victim(self, code, argument=""):
        self.victims.append(Victim(self.edge, self.folder, code, argument))
        return self.victims[-1]

    def text(self, name):
        with open(f"{self.folder}/{name}", encoding="ascii") as file:
            return file.read()


RENAMES = """for i in "123":
    with open("new", "w") as file:
        file.write(i)
    os.rename("new", "target")
"""


def test_the_nth_call():
    """It stops before the second rename; the first is done, the third comes after it. Other names and programs are not counted."""
    with Place() as place:
        moment = place.edge.stop("rename", "*/target", nth=2, program="python*")
        another = place.edge.stop("rename", "*/targe", nth=1)
        other_program = place.edge.stop("rename", "*/target", program="mv*")
        victim = place.victim(RENAMES)
        began = time.monotonic()
        moment.wait()
        assert time.monotonic() - began < PATIENCE_S / 2  # it is told of it
        assert (moment.pid, moment.tid, moment.path) == (victim.process.pid, victim.process.pid, f"{place.folder}/target"), (moment.pid, moment.path)
        assert (place.text("target"), place.text("new")) == ("1", "2")
        assert victim.process.poll() is None
        moment.release()
        assert victim.end() == (0, [])
        assert place.text("target") == "3" and not os.path.exists(f"{place.folder}/new")
        assert (moment.calls, moment.reached, another.calls, other_program.calls) == (3, 1, 0, 0), (moment.calls, moment.reached)


def test_a_program_is_known_by_its_first_argument():
    with Place() as place:
        moment = place.edge.stop("mkdir", "*/made", program="mkdir --verbose")
        command = "mkdir made && rmdir made && mkdir --verbose made >said"
        process = subprocess.Popen(["sh", "-c", command], cwd=place.folder, env={**os.environ, **place.edge.env})
        moment.wait()
        assert moment.pid != process.pid and not os.path.exists(f"{place.folder}/made")
        assert moment.calls == 1, moment.calls
        moment.release()
        assert process.wait(PATIENCE_S) == 0 and os.path.isdir(f"{place.folder}/made")


def test_stop_points_of_one_call_and_of_two_processes():
    with Place() as place:
        outer, inner = place.edge.stop("rename", "*/target"), place.edge.stop("rename", f"{place.folder}/*")
        beside = place.edge.stop("mkdir", "*/beside")
        victim = place.victim(RENAMES)
        outer.wait()
        assert inner.calls == 0  # one after the other
        other = place.victim("os.mkdir('beside')\nsay('made')")
        beside.wait()
        assert beside.pid == other.process.pid != outer.pid
        outer.release()
        inner.wait()
        assert inner.pid == outer.pid and not os.path.exists(f"{place.folder}/target")
        assert other.process.poll() is None and not os.path.exists(f"{place.folder}/beside")
        beside.release()
        assert other.end() == (0, [["made"]])
        inner.release()
        assert victim.end() == (0, []) and place.text("target") == "3"


def test_a_thread_stops_alone():
    with Place() as place:
        moment = place.edge.stop("mkdir", "*/made")
        victim = place.victim("""import threading
thread = threading.Thread(target=lambda: os.mkdir("made"))
thread.start()
say(thread.native_id)
thread.join()
say(os.path.isdir("made"))
""")
        (tid,) = victim.heard()
        moment.wait()
        assert (moment.pid, moment.tid) == (victim.process.pid, tid) and tid != moment.pid
        moment.release()
        assert victim.end() == (0, [[True]])


def test_a_fork_inside():
    """The child of a fork stops; its parent goes on. Both count."""
    with Place() as place:
        moment = place.edge.stop("mkdir", "*/made", nth=2)
        victim = place.victim("""os.mkdir("made")
os.rmdir("made")
pid = os.fork()
if pid == 0:
    os.mkdir("made")
    os._exit(7)
say(pid)
say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
        (pid,) = victim.heard()
        moment.wait()
        assert moment.pid == pid and not os.path.exists(f"{place.folder}/made")
        moment.release()
        assert victim.end() == (0, [[7]])


def test_a_victim_is_killed_at_a_stop_point():
    """What it was about to do is not done. The next process goes by: the call was counted."""
    with Place() as place:
        moment = place.edge.stop("rename", "*/target", nth=2)
        victim = place.victim(RENAMES)
        moment.wait().kill()
        assert victim.end() == (-signal.SIGKILL, [])
        assert (place.text("target"), place.text("new")) == ("1", "2")
        assert place.victim(RENAMES).end() == (0, [])
        assert place.text("target") == "3" and moment.reached == 1


def test_a_signal_at_a_stop_point():
    """A handler runs, and the call still waits. Without one the signal ends the process."""
    with Place() as place:
        moment = place.edge.stop("mkdir", "*/made")
        victim = place.victim("""libc.signal.restype = ctypes.c_void_p
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: say(number))
libc.signal(int(signal.SIGUSR1), handler)
libc.siginterrupt(int(signal.SIGUSR1), 1)  # else the kernel begins its wait again
os.mkdir("made")
say("made")
""")
        moment.wait()
        for _ in range(5):  # after the first it would go on
            os.kill(moment.pid, signal.SIGUSR1)
            assert victim.heard() == [signal.SIGUSR1]
        assert not os.path.exists(f"{place.folder}/made")
        moment.release()
        assert victim.end() == (0, [["made"]])
        again = place.edge.stop("mkdir", "*/again")
        victim = place.victim("os.mkdir('again')")
        again.wait()
        os.kill(again.pid, signal.SIGTERM)
        assert victim.end() == (-signal.SIGTERM, []) and not os.path.exists(f"{place.folder}/again")


# A call of each kind on the file or folder "it": (kind, code that makes its result, path).
CALLS = [
    ("open", "call('open', b'it', os.O_RDONLY)", "{folder}/it"),
    ("open", "call('openat', parent, b'it', os.O_RDONLY)", "{folder}/it"),
    ("open", "call('creat', b'it', 0o600)", "{folder}/it"),
    ("open", "call('syscall', *map(ctypes.c_long, (437, parent)), b'it', how, ctypes.c_long(24))", "{folder}/it"),
    ("rename", "call('rename', b'source', b'it')", "{folder}/it"),
    ("rename", "call('renameat', -100, b'source', parent, b'it')", "{folder}/it"),
    ("rename", "call('renameat2', -100, b'source', parent, b'it', 0)", "{folder}/it"),
    ("link", "call('link', b'source', b'linked')", "{folder}/linked"),
    ("link", "call('linkat', -100, b'source', parent, b'linked', 0)", "{folder}/linked"),
    ("unlink", "call('unlink', b'it')", "{folder}/it"),
    ("unlink", "call('unlinkat', parent, b'it', 0)", "{folder}/it"),
    ("mkdir", "call('mkdir', b'made', 0o700)", "{folder}/made"),
    ("mkdir", "call('mkdirat', parent, b'made', 0o700)", "{folder}/made"),
    ("fsync", "call('fsync', fd)", "{folder}/it"),
    ("fdatasync", "call('fdatasync', fd)", "{folder}/it"),
    ("read", "call('read', fd, buffer, 4)", "{folder}/it"),
    ("read", "call('pread', fd, buffer, 4, ctypes.c_long(0))", "{folder}/it"),
    ("read", "call('pread64', fd, buffer, 4, ctypes.c_long(0))", "{folder}/it"),
    ("read", "call('readv', fd, parts, 2)", "{folder}/it"),
    ("write", "call('write', fd, buffer, 4)", "{folder}/it"),
    ("write", "call('pwrite', fd, buffer, 4, ctypes.c_long(0))", "{folder}/it"),
    ("write", "call('pwrite64', fd, buffer, 4, ctypes.c_long(0))", "{folder}/it"),
    ("write", "call('writev', fd, parts, 2)", "{folder}/it"),
    ("connect", "try_connect(socket.AF_UNIX, 'sock')", "sock"),
    ("connect", "try_connect(socket.AF_UNIX, chr(0) + 'name')", "@name"),
    ("connect", "try_connect(socket.AF_INET, ('127.0.0.1', 9))", "127.0.0.1:9"),
    ("connect", "try_connect(socket.AF_INET6, ('::1', 9))", "[::1]:9"),
    ("exec", "call('execve', b'./it', nothing, nothing)", "{folder}/./it"),
    ("exec", "call('execv', b'./it', nothing)", "{folder}/./it"),
    ("exec", "call('execvp', b'it', nothing)", "it"),
    ("exec", "call('execvpe', b'it', nothing, nothing)", "it"),
    ("fork", "call('fork')", ""),
    ("fork", "call('clone', run, stack_end, int(signal.SIGCHLD), None)", ""),
]
SETTING = """fd = os.open("it", os.O_RDWR)
parent = os.open(".", os.O_RDONLY)
buffer = ctypes.create_string_buffer(b"text", 8)
how, nothing = (ctypes.c_uint64 * 3)(), (ctypes.c_char_p * 1)()
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
parts = (Part * 2)((ctypes.addressof(buffer), 3), (ctypes.addressof(buffer), 1))
run, stack = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda at: 0), ctypes.create_string_buffer(65536)
stack_end = ctypes.c_void_p(ctypes.addressof(stack) + 65536)
def try_connect(family, address):
    with socket.socket(family) as each:
        try:
            each.connect(address)
        except OSError as error:
            return errno.errorcode[error.errno]
"""


def test_each_call_fails_as_told():
    """Each with an error that it has not otherwise, and with the path that a rule has to name."""
    with Place() as place:
        for kind, code, path in CALLS:
            for name in ("it", "source"):
                with open(f"{place.folder}/{name}", "w", encoding="ascii") as file:
                    file.write("text")
            path = path.format(folder=place.folder)
            nth = 2 if kind == "open" else 1  # the victim's first is its descriptor for the others
            rule = place.edge.fail(kind, path, errno.EDOM, nth=nth, last=nth)
            told = place.victim(f"{SETTING}\nsay({code})").end()
            assert told == (0, [["EDOM"]]), (kind, code, told)
            assert (rule.reached, rule.path) == (1, path), (code, rule.reached, rule.path)
            assert not os.path.exists(f"{place.folder}/made") and not os.path.exists(f"{place.folder}/linked")
            assert place.text("it") == place.text("source") == "text", code
            rule.drop()


def test_the_nth_to_the_mth():
    """EINTR, and then as if nothing had been. Python repeats such a call; the C library does not."""
    with Place() as place:
        rule = place.edge.fail("write", "*/it", errno.EINTR, nth=2, last=3)
        told = place.victim("fd = os.open('it', os.O_WRONLY | os.O_CREAT)\nsay(*[call('write', fd, b'text', 4) for _ in range(5)])").end()
        assert told == (0, [[4, "EINTR", "EINTR", 4, 4]]), told
        assert (rule.calls, rule.reached, place.text("it")) == (5, 2, "text" * 3), rule.calls
        rule = place.edge.fail("open", "*/other", errno.EMFILE, nth=3)
        told = place.victim("say(*[call('open', b'other', os.O_RDONLY) for _ in range(5)])").end()
        assert told == (0, [["ENOENT", "ENOENT", "EMFILE", "EMFILE", "EMFILE"]]), told


def test_short_reads_and_writes():
    with Place() as place:
        place.edge.short("write", "*/it", nth=1, last=4)
        place.edge.short("read", "*/it", nth=2, last=4)
        told = place.victim("""fd = os.open("it", os.O_RDWR | os.O_CREAT)
buffer = ctypes.create_string_buffer(b"0123456789")
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
parts = (Part * 3)((None, 0), (ctypes.addressof(buffer), 3), (ctypes.addressof(buffer) + 3, 7))
say(call("write", fd, buffer, 9), call("write", fd, buffer, 1), call("pwrite", fd, buffer, 10, ctypes.c_long(0)), call("writev", fd, parts, 3),
    call("writev", fd, parts, 3))
os.lseek(fd, 0, 0)
say(call("read", fd, buffer, 4), call("read", fd, buffer, 4), call("pread", fd, buffer, 4, ctypes.c_long(0)), call("readv", fd, parts, 3),
    call("read", fd, buffer, 100))
""").end()
        assert told == (0, [[4, 1, 5, 3, 10], [4, 2, 2, 3, 9]]), told
        assert place.text("it") == "01234" + "012" + "0123456789", place.text("it")


def test_calls_are_noted():
    """Those of the kind, in their order; and again after the rules were cleared."""
    with Place() as place:
        for _ in range(2):
            place.edge.note("rename", f"{place.folder}/*")
            place.edge.note("mkdir", "*/made", program="python3* -c")
            victim = place.victim(RENAMES + "os.mkdir('made'); os.rmdir('made'); os.mkdir('other'); os.rmdir('other')")
            assert victim.end() == (0, [])
            program, pid = f"{os.path.basename(os.path.realpath(sys.executable))} -c", victim.process.pid
            wanted = [("rename", program, f"{place.folder}/target", pid)] * 3 + [("mkdir", program, f"{place.folder}/made", pid)]
            assert place.edge.notes() == wanted, place.edge.notes()
            place.edge.clear()
            place.edge.forget_notes()


def test_sockets_and_pipes_have_paths():
    with Place() as place:
        rule = place.edge.fail("write", "pipe:*", errno.EAGAIN, last=1)
        told = place.victim("say(call('write', os.pipe()[1], b'x', 1))").end()
        assert told == (0, [["EAGAIN"]]) and rule.path.startswith("pipe:["), (told, rule.path)


def test_a_program_that_a_child_begins():
    """Python's subprocess begins a child that shares its memory until it runs its program; so does launcherd."""
    with Place() as place:
        moment = place.edge.stop("exec", "*/true")
        failing = place.edge.fail("exec", "*/false", errno.EACCES)
        victim = place.victim("""import subprocess
child = subprocess.Popen(["true"])
say(child.pid, child.wait())
try:
    subprocess.Popen(["/bin/false"])
except OSError as error:
    say(errno.errorcode[error.errno])
""")
        moment.wait()
        assert moment.pid != victim.process.pid
        with open(f"/proc/{moment.pid}/stat", encoding="ascii") as file:
            assert int(file.read().rsplit(")", 1)[1].split()[1]) == victim.process.pid
        stopped = moment.pid
        for _ in range(20):  # it may try other folders of PATH before
            moment.release()
        assert victim.heard() == [stopped, 0]
        assert victim.end() == (0, [["EACCES"]]) and failing.reached == 1


def test_a_hang_ends_with_the_edge():
    with Place() as place:
        with Edge() as edge:
            hang = edge.hang("mkdir", "*/made", nth=2)
            victim = Victim(edge, place.folder, "for i in range(3):\n    os.mkdir(['first', 'made', 'last'][i])\nfor i in range(2):\n    os.rmdir('made'); os.mkdir('made')")
            hang.wait()
            assert victim.process.poll() is None and hang.reached == 1 and hang.calls == 2
        assert victim.end()[0] == 0
        assert not os.path.exists(edge.folder)


def test_waiting_says_what_has_not_come():
    import edge as module
    with Place() as place:
        place.victim("os.mkdir('other')").end()
        rule = place.edge.stop("mkdir", "*", nth=3)
        place.victim("os.mkdir('made')").end()
        module.PATIENCE_S = 0.05
        try:
            rule.wait()
        except AssertionError as error:
            assert str(error) == "not within 0.05 s: stop mkdir * 3..3 of *; 1 calls matched, 0 of 1 in the range", error
        else:
            raise AssertionError("it has come")
        finally:
            module.PATIENCE_S = PATIENCE_S


def test_without_a_control_file_nothing_happens():
    with Place() as place:
        place.edge.fail("mkdir")
        rest = {"LD_PRELOAD": place.edge.library}
        for env in (rest, {**rest, "EDGE_FILE": f"{place.folder}/none"}, {**rest, "EDGE_FILE": "/dev/null"}):
            subprocess.run([sys.executable, "-c", "import os; os.mkdir('made'); os.rmdir('made')"], cwd=place.folder, env={**os.environ, **env}, check=True)


# -- the gated clock ----------------------------------------------------------------------------

CLOCK_HEAD = """import select, threading, time
class Timespec_(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("ns", ctypes.c_long)]
def Timespec(seconds, ns):
    return ctypes.byref(Timespec_(seconds, ns))
def at(seconds, real=False):
    ns = (time.time_ns() if real else time.monotonic_ns()) + round(seconds * 1e9)
    return Timespec(ns // 10**9, ns % 10**9)
began = time.monotonic_ns()
def now():
    return (time.monotonic_ns() - began) / 1e9
"""


class ClockPlace(Place):
    def __enter__(self):
        super().__enter__()
        self.edge.clock()
        return self

    def victim(self, code, argument=""):
        return super().victim(CLOCK_HEAD + code, argument)


def test_each_wait_takes_no_time():
    """It ends at its deadline exactly, by every clock, and the real time is that of the program's start."""
    waits = [(3600, "time.sleep(3600)"), (7, "libc.sleep(7)"), (0.25, "libc.usleep(250000)"), (1.5, "libc.nanosleep(Timespec(1, 500000000), None)"),
             (8, "libc.clock_nanosleep(1, 1, at(8), None)"), (9, "libc.clock_nanosleep(0, 1, at(9, real=True), None)"),
             (1000, "select.select([], [], [], 1000)"), (30, "select.poll().poll(30000)"), (20, "libc.ppoll(None, 0, Timespec(20, 0), None)"),
             (60, "select.epoll().poll(60)"), (900, "threading.Event().wait(900)"), (15, "receive(15)"),
             (80, "libc.pthread_cond_clockwait(cond, mutex, 1, at(80))"), (90, "libc.pthread_cond_timedwait(cond, mutex, at(90, real=True))")]
    with ClockPlace() as place:
        code = """cond, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
def receive(seconds):
    ends = socket.socketpair()
    ends[0].settimeout(seconds)
    try:
        ends[0].recv(1)
    except TimeoutError:
        pass
libc.pthread_mutex_lock(mutex)
clocks = (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_REALTIME, time.CLOCK_MONOTONIC_RAW)
for wait in sys.argv[1].split(chr(10)):
    before = [time.clock_gettime_ns(each) for each in clocks]
    eval(wait)
    say(*[(time.clock_gettime_ns(each) - a) / 1e9 for a, each in zip(before, clocks)])
"""
        began = time.monotonic()
        first = place.edge.now()
        told = place.victim(code, "\n".join(wait for _, wait in waits)).end()
        assert told == (0, [[seconds] * 4 for seconds, _ in waits]), told
        assert time.monotonic() - began < 2 * len(waits)
        assert abs(place.edge.now() - first - sum(seconds for seconds, _ in waits)) < 1e-6


def test_timers_that_are_descriptors():
    """They fire exactly, once, in each kind of wait; one that is set again or taken back does not, and one of long ago does at once."""
    with ClockPlace() as place:
        victim = place.victim("""def timer(clock=7, flags=0):
    return libc.timerfd_create(clock, flags)
def arm(fd, seconds, absolute=0):
    spec = (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9))
    return call("timerfd_settime", fd, absolute, spec, None)
def fired(fd):
    return call("poll", (ctypes.c_int * 2)(fd, 1), 1, 0) == 1 and int.from_bytes(os.read(fd, 8), "little")
one, other, real = timer(), timer(1), timer(0)
for wait in (lambda: select.select([one], [], [], 5), lambda: select.select([one], [], []), lambda: select.poll().poll(2000)):
    arm(one, 3)
    say(wait() == ([one], [], []), fired(one), now())
poll = select.epoll()
poll.register(one); poll.register(other)
arm(one, 20); arm(other, 10); arm(one, 5)
say(poll.poll(100) == [(one, 1)], fired(one), now())
left = (ctypes.c_long * 4)()
libc.timerfd_gettime(other, left)
say(*left)
say(poll.poll(100) == [(other, 1)], fired(other), now(), poll.poll(50), now())
arm(one, 7); arm(one, 0)
say(poll.poll(60), now())
arm(real, time.time() + 30, 1)
say(select.select([real], [], [])[0] == [real], round(now(), 6))
arm(one, 1, 1)
say(fired(one), call("timerfd_settime", one, 0, (ctypes.c_long * 4)(1, 0, 1, 0), None), call("timerfd_settime", 0, 0, (ctypes.c_long * 4)(), None))
""")
        told = victim.end()
        assert told == (0, [[True, 1, 3.0], [True, 1, 6.0], [False, False, 8.0], [True, 1, 13.0], [0, 0, 5, 0], [True, 1, 18.0, [], 68.0], [[], 128.0],
                            [True, 158.0], [1, "ENOSYS", "EINVAL"]]), told


def test_an_hour_beside_a_busy_thread():
    """Time stands while a thread computes, of the same process or another; then the hour takes less than 2 s."""
    with ClockPlace() as place:
        watch = Stopwatch(place.edge.now)
        sleeper = place.victim("say('ready')\ntime.sleep(3600)\nsay(now())")
        busy = place.victim("""def work():
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
threading.Thread(target=time.sleep, args=(5,)).start()
before = now()
work()
say(now() - before)
""")
        told = busy.end()[1]
        assert told == [[0.0]], told
        began = time.monotonic()
        assert sleeper.end() == (0, [["ready"], [3600.0]])
        assert time.monotonic() - began < 2, time.monotonic() - began
        watch.check("the hour", at_least=3600)


def test_a_computing_program_holds_the_clock():
    with ClockPlace() as place:
        busy = place.victim("say('begun')\nwhile True: pass")
        busy.heard()
        first = place.edge.now()
        sleeper = place.victim("say('ready')\ntime.sleep(0.001)\nsay('over')")
        sleeper.heard()
        assert not select.select([sleeper.process.stdout], [], [], 0.5)[0], "its sleep is over"
        assert place.edge.now() == first
        busy.process.kill()
        assert sleeper.end() == (0, [["over"]])


def test_two_processes_talk_with_timeouts():
    """One says something every 3 s, five times; the other waits for 5 s each time. The times are exact."""
    with ClockPlace() as place:
        victim = place.victim("""ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    for i in range(5):
        time.sleep(3)
        theirs.send(b"x")
    time.sleep(1000)
    os._exit(0)
ours.settimeout(5)
try:
    while ours.recv(1):
        say(now())
except TimeoutError:
    say("late", now())
os.wait()
say(now())
""")
        assert victim.end() == (0, [[3.0], [6.0], [9.0], [12.0], [15.0], ["late", 20.0], [1015.0]])


def test_a_signal_ends_a_sleep():
    with ClockPlace() as place:
        victim = place.victim("""signal.signal(signal.SIGUSR1, lambda *_: None)
pid = os.getpid()
if os.fork() == 0:
    time.sleep(10)
    os.kill(pid, signal.SIGUSR1)
    os._exit(0)
left = Timespec_(0, 0)
say(call("nanosleep", Timespec(100, 0), ctypes.byref(left)), left.seconds, now())
say(call("poll", None, 0, 1000), now())
""")
        told = victim.end()
        assert told == (0, [["EINTR", 90, 10.0], [0, 11.0]]), told


def test_a_program_that_ignores_all_signals_is_woken():
    with ClockPlace() as place:
        victim = place.victim("""for number in range(1, 65):
    libc.signal(number, 1)
    libc.sigaction(number, (ctypes.c_long * 32)(1), None)
time.sleep(100)
say(now())
""")
        assert victim.end() == (0, [[100.0]])


def test_those_that_are_stopped_or_killed_are_skipped():
    """They hold no time back. One that goes on later finds its sleep over."""
    for number, rest in (("SIGSTOP", [[101.0], ["woken", 101.0]]), ("SIGKILL", [[101.0]])):
        with ClockPlace() as place:
            victim = place.victim(f"""pid = os.fork()
if pid == 0:
    time.sleep(5)
    say("woken", now())
    os._exit(0)
time.sleep(1)
os.kill(pid, signal.{number})
time.sleep(100)
say(now())
os.kill(pid, signal.SIGCONT)
os.wait()
""")
            told = victim.end()
            assert told == (0, rest), told


def test_a_stop_point_is_no_work():
    """Time goes on without a thread that stands at one."""
    with ClockPlace() as place:
        moment = place.edge.stop("mkdir", "*/made")
        stopped = place.victim("os.mkdir('made')\nsay(now())")
        moment.wait()
        assert place.victim("time.sleep(50)\nsay(now())").end() == (0, [[50.0]])
        moment.release()
        assert stopped.end()[0] == 0


def test_a_process_that_has_not_begun_its_program_is_no_work():
    """Nor is its parent, which waits for that in the kernel: it begins here behind a stop point."""
    with ClockPlace() as place:
        moment = place.edge.stop("unlink", "*/gate")
        victim = place.victim("""at = ctypes.cast(libc.unlink, ctypes.c_void_p).value
stack = ctypes.create_string_buffer(1 << 20)
top = (ctypes.addressof(stack) + (1 << 20)) & ~15
say("ready")
threading.Thread(target=lambda: (time.sleep(50), say(now()))).start()
libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
libc.clone(at, top, 0x4100 | 17, os.path.abspath("gate").encode())  # CLONE_VM and CLONE_VFORK
""")
        assert victim.heard() == ["ready"]
        moment.wait()
        assert victim.heard() == [50.0]
        moment.release()
        assert victim.end()[0] == 0


def test_condition_variables():
    """A signal wakes one thread, a broadcast all; a wait that is over in time does not time out. 200 times, two threads hand over a turn."""
    with ClockPlace() as place:
        victim = place.victim("""import queue
libc = ctypes.CDLL(None)
cond, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
turn, woken = [0], []
def run(own):
    for _ in range(200):
        libc.pthread_mutex_lock(mutex)
        while turn[0] != own:
            assert libc.pthread_cond_wait(cond, mutex) == 0
        turn[0] = 1 - own
        libc.pthread_cond_signal(cond)
        libc.pthread_mutex_unlock(mutex)
threads = [threading.Thread(target=run, args=(i,)) for i in (0, 1)]
for each in threads: each.start()
for each in threads: each.join()
def late(seconds):
    libc.pthread_mutex_lock(mutex)
    woken.append((libc.pthread_cond_clockwait(cond, mutex, 1, at(seconds)), now()))
    libc.pthread_mutex_unlock(mutex)
began = time.monotonic_ns()
threads = [threading.Thread(target=late, args=(seconds,)) for seconds in (10, 30, 40)]
for each in threads: each.start()
time.sleep(20)
libc.pthread_cond_broadcast(cond)
for each in threads: each.join()
say(*sorted(woken, key=lambda each: each[1]))
""")
        told = victim.end()
        assert told == (0, [[[errno.ETIMEDOUT, 10.0], [0, 20.0], [0, 20.0]]]), told


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))

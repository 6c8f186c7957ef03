"""One job under faults of single system calls: which calls there are, a cluster that runs a job with one of them, and what is wrong after it."""
import collections
import contextlib
import errno
import os
import re
import select
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../lib"), os.path.join(HERE, "../faults")]
from edge import KINDS, Edge  # noqa: E402  pylint: disable=wrong-import-position
from faults_lib import Cluster, wait_until  # noqa: E402  pylint: disable=wrong-import-position
from processes.waiting import Stopwatch  # noqa: E402

PATIENCE_S = 25  # real time; what waits in the programs waits on the gated clock
PROGRAMS = ("rendezvous", "launcherd --server", "launcherd --shim")

# A worker: no two at a time, since each holds the lock of the file of marks. It says something on both streams.
WORKER = """exec 9>>"$1"
flock -n 9 || echo twice >>"$1"
echo begin >>"$1"
echo output of a worker
echo its second stream >&2
echo end >>"$1"
exit $2"""

NO_FILE = ("socket:", "pipe:", "anon_inode:")
# What a call of a kind may get. A name without E is that action of the edge.
ERRORS = {"open": ("EIO", "EMFILE", "EINTR"), "rename": ("EIO", "ENOSPC"), "link": ("EIO", "ENOSPC"), "unlink": ("EIO",), "mkdir": ("EIO", "ENOSPC"),
          "fsync": ("EIO", "ENOSPC"), "fdatasync": ("EIO", "ENOSPC"), "read": ("EIO", "EINTR", "short"), "write": ("ENOSPC", "EIO", "EINTR", "short"),
          "exec": ("EIO", "EMFILE", "ENOMEM"), "fork": ("EAGAIN", "ENOMEM")}
SOCKET_ERRORS = {"read": ("EINTR", "EAGAIN", "ECONNRESET", "short"), "write": ("EINTR", "EAGAIN", "EPIPE", "short")}
# libuv's own pipes are never full, and their messages are never cut.
PIPE_ERRORS = {"read": ("EINTR", "short"), "write": ("EINTR",)}
LEFT_S = 5  # of real time, for what waits for nothing but the gated clock
HANGS = ("open", "rename", "link", "unlink", "mkdir", "fsync", "fdatasync", "read", "write")
HANG_S = 40  # of the gated clock: longer than a disk is waited for, and than a node may be silent
LASTING = ("EIO", "ENOSPC", "EMFILE", "ENOMEM")  # the others pass by their nature
# How programs and libraries say an error. SQLite keeps no errno of a sync: the server says what is free.
WORDS = {"EIO": ("input/output error", "i/o error"), "ENOSPC": ("no space left on device", "disk is full", "has not reached the disk"), "EMFILE": ("too many open files",),
         "ENOMEM": ("cannot allocate memory", "not enough memory", "out of memory"), "EAGAIN": ("temporarily unavailable",), "EINTR": ("interrupted system call",),
         "ECONNRESET": ("connection reset", "its connection"), "EPIPE": ("broken pipe", "its connection"), "ECONNREFUSED": ("connection refused",), "short": ("became shorter",),
         "hang": ("does not answer", "do not answer", "hangs", "silent", "its connection", "takes nothing", "taken nothing")}


class Case(collections.namedtuple("Case", "program kind path error nth is_lasting")):
    """The nth call of that kind with that path fails; lasting: and all after it, until the job has ended."""
    __slots__ = ()

    def __str__(self):
        return " ".join([self.program, self.kind, self.path or "-", self.error, str(self.nth), *(["lasting"] if self.is_lasting else [])])

    def errors(self):
        return WORDS[self.error]


def pattern(path, folder):
    """The path of a call as a rule has it, so that it is that of any other job, too."""
    path = path.replace(folder, "*")
    path = re.sub(r"^(pipe|socket):\[\d+\]", r"\1:*", path)
    path = re.sub(r"[0-9a-f]{32}-\d+-\d{13}", "*-*", path)
    path = re.sub(r"[0-9a-f]{32}-\d+-g\d+(-[0-9a-f]{8})?", "*-g?" + ("*" if path.startswith("/sys/") else ""), path)
    return re.sub(r"/proc/\d+", "/proc/*", path)


def errors_of(kind, path):
    if path.startswith("socket:"):
        return SOCKET_ERRORS[kind]
    if path.startswith("pipe:"):
        return PIPE_ERRORS[kind]
    if path.startswith("anon_inode:"):
        return ("EINTR",)
    return (*ERRORS[kind], "hang") if kind in HANGS else ERRORS[kind]


class Outcome:
    """How a job with a fault has ended, and what the daemons did meanwhile."""

    def __init__(self):
        self.code, self.output, self.said = None, "", ""
        self.marks, self.status, self.why = [], None, ""
        self.ends = []  # daemons that ended: (name, status)
        self.logs = {}  # what each daemon, and the shims, have logged meanwhile
        self.reached = 0
        self.wrong = []

    def all_text(self):
        return "\n".join([self.said, self.output, self.why, str(self.status), *self.logs.values()])


class Sweep:
    """A cluster on the gated clock, for one case after the other."""

    def __init__(self, build):
        self.build = build

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        self.edge = self.stack.enter_context(Edge())
        self.edge.clock()
        os.environ.update(self.edge.env)
        self.stack.callback(lambda: [os.environ.pop(name) for name in self.edge.env])
        self.cluster = Cluster(self.build, nodes=1, slots=1)
        self.stack.push(self.cluster)
        self.cluster.__enter__()
        self.daemons = {"rendezvous": self.cluster.server, "launcherd": self.cluster.nodes[0]}
        self.node = f"{self.cluster.folder}/node0"
        self.marks = f"{self.cluster.folder}/marks"
        return self

    def __exit__(self, *error):
        self.edge.clear()
        if error[0] is None:
            return self.stack.__exit__(*error)
        with open(os.devnull, "w", encoding="ascii") as nowhere, contextlib.redirect_stdout(nowhere):  # the outcome has the logs
            return self.stack.__exit__(*error)

    # -- a job

    def run(self, exit_code, rule=None):
        """Runs the job, and starts daemons again that end. The rule ends with the job, or with a daemon."""
        outcome = Outcome()
        self.sizes = {name: os.path.getsize(daemon.log_path) for name, daemon in self.daemons.items()}
        shims = self.shim_logs()
        with open(self.marks, "w", encoding="ascii"), open(f"{self.cluster.folder}/out", "w+b") as out, open(f"{self.cluster.folder}/said", "w+b") as said:
            argv = [f"{self.build}/ddpctl/ddpctl", "--server", self.cluster.address, "run", "-e", "LD_PRELOAD=", "-e", "EDGE_FILE=", "--max-restarts", "1", "--",
                    "sh", "-c", WORKER, "sh", self.marks, str(exit_code)]
            client = subprocess.Popen(argv, stdout=out, stderr=said, stdin=subprocess.DEVNULL, cwd=self.cluster.folder)
            self.watch(client, rule, outcome)
            outcome.code = client.returncode
            for file, name in ((out, "output"), (said, "said")):
                file.seek(0)
                setattr(outcome, name, file.read().decode(errors="replace"))
        with open(self.marks, encoding="ascii") as file:
            outcome.marks = file.read().split()
        job = re.search(r" logs -f (\d+)", outcome.said)
        if job is not None:
            outcome.status = self.cluster.status(job[1])
            outcome.why = self.cluster.ctl("why", job[1], check=False).stdout
        outcome.logs["shim"] = "".join(text for path, text in self.shim_logs().items() if path not in shims)
        return outcome

    def new_log(self, name):
        """What the daemon has logged since the job began."""
        with open(self.daemons[name].log_path, "rb") as file:
            file.seek(self.sizes[name])
            return file.read().decode(errors="replace")

    def shim_logs(self):
        found = {}
        for where, _, names in os.walk(f"{self.node}/logs"):
            for name in names:
                if name.startswith("shim-"):
                    with open(f"{where}/{name}", encoding="utf-8", errors="replace") as file:
                        found[f"{where}/{name}"] = file.read()
        return found

    def watch(self, client, rule, outcome):
        watch = Stopwatch()
        while client.poll() is None:
            if watch.passed_s > PATIENCE_S:
                outcome.wrong.append("the job hangs")
                client.kill()
                client.wait()
                return
            fds = {os.pidfd_open(client.pid): None}
            for name, daemon in self.daemons.items():
                fds[os.pidfd_open(daemon.process.pid)] = name
            ready, _, _ = select.select(list(fds), [], [], 0.01 if rule is not None and rule.hangs else max(0, PATIENCE_S - watch.passed_s))
            self.release_late(rule)
            for fd in fds:
                os.close(fd)
            for name in [fds[fd] for fd in ready if fds[fd] is not None]:
                self.start_again(name, rule, outcome)

    def release_late(self, rule):
        """A hang ends when it has lasted."""
        if rule is None or not rule.hangs or rule.reached == 0:
            return
        if self.hangs_since is None:
            self.hangs_since = self.edge.now()
        if self.edge.now() >= self.hangs_since + HANG_S:
            rule.release()

    def forgotten(self, case, rule):
        """The job has ended. Its files are removed now, by calls that may fail, too; no longer than until one did, if they all would."""
        def is_over():
            self.release_late(rule)
            return not self.left() or (rule.reached > 0 and (case.is_lasting or self.is_told(case.errors())))
        with contextlib.suppress(AssertionError):
            wait_until(is_over, "what is left to go", LEFT_S)

    def start_again(self, name, rule, outcome):
        daemon = self.daemons[name]
        outcome.ends.append((name, daemon.process.wait()))
        daemon.process.stdout.close()
        if rule is not None:
            rule.drop()
        daemon.start()

    # -- what is left

    def descriptors(self):
        return {name: sorted(os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{daemon.process.pid}/fd")
                             if os.path.lexists(f"/proc/{daemon.process.pid}/fd/{fd}"))
                for name, daemon in self.daemons.items()}

    def left(self):
        """What of a job is still there: files, processes."""
        found = [f"run/{name}" for name in os.listdir(f"{self.node}/run")]
        found += [f"parts/{name}" for name in os.listdir(f"{self.node}/parts") if name != "id.json"]
        for where, _, names in os.walk(self.cluster.folder):
            found += [f"{where}/{name}" for name in names if name.endswith((".new", ".tmp")) or ".damaged" in name]
        ours = {daemon.process.pid for daemon in self.daemons.values()}
        found += [f"process {pid}: {command}" for pid, command in self.cluster.processes() if pid not in ours]
        return found

    def is_told(self, words):
        """Whether launcherd has said of a folder that it stays, and why."""
        return any(word in line for line in self.new_log("launcherd").lower().splitlines() for word in words if "cannot be removed" in line or "is left" in line)

    def is_clean(self, words=()):
        """Waits until nothing of the job is left, or launcherd has said that it stays."""
        is_clean = False

        def is_settled():
            nonlocal is_clean
            is_clean = not self.left()  # once: launcherd has processes that last a moment
            return is_clean or self.is_told(words)

        with contextlib.suppress(AssertionError):
            wait_until(is_settled, "nothing to be left", LEFT_S)
        return is_clean

    def settle(self, outcome, words=()):
        """What is left is wrong, unless launcherd has said it: then its next start removes it."""
        if self.is_clean(words):
            return
        left = self.left()
        if self.is_told(words):
            self.daemons["launcherd"].end()
            self.daemons["launcherd"].start()
            if self.is_clean():
                return
            left.append("also after the next start")
        outcome.wrong.append(f"left: {left}")

    # -- a case

    def find_calls(self, exit_code):
        """All calls during a job: {(program, kind, pattern): how many}."""
        self.settle(self.run(exit_code))
        for kind in KINDS:
            for program in PROGRAMS:
                self.edge.note(kind, program=f"{program}*")
        self.settle(self.run(exit_code))
        self.edge.clear()
        calls = collections.Counter()
        for kind, program, path, _ in self.edge.notes():
            calls[next(each for each in PROGRAMS if program.startswith(each)), kind, pattern(path, self.cluster.folder)] += 1
        self.edge.forget_notes()
        return calls

    def try_case(self, case, exit_code):
        last = None if case.is_lasting else case.nth
        if case.error == "hang":
            rule = self.edge.hang(case.kind, case.path, nth=case.nth, last=last, program=f"{case.program}*")
        elif case.error == "short":
            rule = self.edge.short(case.kind, case.path, nth=case.nth, last=last, program=f"{case.program}*")
        else:
            rule = self.edge.fail(case.kind, case.path, getattr(errno, case.error), nth=case.nth, last=last, program=f"{case.program}*")
        self.hangs_since = None
        outcome = self.run(exit_code, rule)
        self.forgotten(case, rule)
        rule.drop()
        outcome.reached = rule.reached
        for name, daemon in self.daemons.items():
            if daemon.process.poll() is not None:
                self.start_again(name, rule, outcome)
        self.settle(outcome, case.errors())
        self.edge.clear()
        for name in self.daemons:
            outcome.logs[name] = self.new_log(name)
        judge(case, exit_code, outcome)
        return outcome


def judge(case, exit_code, outcome):
    """Adds what is wrong."""
    wrong, marks, status = outcome.wrong, outcome.marks, outcome.status
    wrong += [f"{name} ended with {code}" for name, code in outcome.ends if code <= 0]
    named = any(word in outcome.all_text().lower() for word in case.errors())
    if outcome.ends and not named:
        wrong.append(f"{outcome.ends} ended without a word of the error")
    if "twice" in marks:
        wrong.append("two workers at a time")
    if status is None:
        if outcome.code == 0 or not named:
            wrong.append(f"no job, exit code {outcome.code}, said {outcome.said!r}")
        return
    state = status["state"]
    if state not in ("succeeded", "failed"):
        wrong.append(f"the job is {state}")
    if outcome.code != (status["exit"]["code"] if state == "failed" and status["exit"]["code"] else 0 if state == "succeeded" else outcome.code) or \
            (outcome.code == 0) != (state == "succeeded"):
        wrong.append(f"exit code {outcome.code} of a job that is {state}: {status['exit']}")
    begins, ends = marks.count("begin"), marks.count("end")
    usual = 1 if exit_code == 0 else 2
    if state == "succeeded" and (exit_code != 0 or ends == 0):
        wrong.append(f"succeeded with {marks}")
    is_usual = (begins, ends) == (usual, usual) and state == ("succeeded" if exit_code == 0 else "failed")
    if not is_usual and not named:
        wrong.append(f"{state}, workers {marks}, and nobody says the error")
    if exit_code != 0 and begins and state == "failed" and is_usual and outcome.code != exit_code:
        wrong.append(f"exit code {outcome.code}")
    shown = outcome.output + outcome.said
    if shown.count("output of a worker") < ends or shown.count("its second stream") < ends:
        if not any(word in outcome.all_text().lower() for word in ("bytes lost", "is lost:", "cannot be read", *case.errors())):
            wrong.append(f"output is missing: {outcome.output!r} {outcome.said!r}")



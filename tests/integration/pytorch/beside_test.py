#!/usr/bin/env python3
"""torchrun beside ddpctl run, with the same programs: beside_test.py; skips (77) without PyTorch.

What docs/from-torchrun.md says is the same must be; each difference that is intended has its reason beside it. The
programs import no torch, so that this takes seconds. The environment's names are compared in pytorch_test.py.
"""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import zipapp

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), os.path.join(HERE, "..", "..", "pytorch")]
import pytorch  # noqa: E402
from processes.case import Case, program  # noqa: E402
from processes.runner import equal, run_and_exit  # noqa: E402
from processes.waiting import Stopwatch, wait_for  # noqa: E402

PYTHON = pytorch.python_or_skip()
TORCHRUN = os.path.join(os.path.dirname(PYTHON), "torchrun")
LIMIT_S = 120
MESSAGE = "ValueError: no such shard"

# Each start of a rank adds a line to its file; then it does what its argument says. `recorded` is the file that
# torch.distributed.elastic's @record writes.
PROGRAM = r'''
import json, os, signal, sys, threading
folder, act = sys.argv[1:]
rank, restart = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
ours = ("RANK", "LOCAL_", "WORLD_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMP_")

def note(**more):
    with open(os.path.join(folder, rank), "a", encoding="utf-8") as file:
        file.write(json.dumps({**{name: value for name, value in os.environ.items() if name.startswith(ours)}, **more}) + "\n")

def on_term(number, frame):
    note(got=number)
    sys.exit(0)

if act == "waits":
    signal.signal(signal.SIGTERM, on_term)
for number, name in ((1, "out"), (2, "err")):
    os.write(number, f"{name} of rank {rank}\n".encode())  # at once: parts of lines may mix
note()
open(folder + ".fifo", "w" if rank == "0" else "r").close()  # each waits here for the other: a failure stops the other rank
if act == "exits" and rank == "1":
    sys.exit(3)
if act == "recovers" and rank == "1" and restart < 2:
    sys.exit(3)
if act == "killed" and rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
if act == "recorded" and rank == "1":
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as file:
        json.dump({"message": {"message": "ValueError: no such shard", "extraInfo": {"py_callstack": "Traceback\\nValueError: no such shard", "timestamp": "1700000000"}}}, file)
    sys.exit(1)
if act in ("exits", "killed", "recorded", "waits"):
    threading.Event().wait(60)
'''


def notes(folder):
    """For each rank, its lines: the starts, and what it got."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found[name] = [json.loads(line) for line in file]
    return found


class Run:
    """One launcher with one act; its output, and what its ranks have noted."""

    def __init__(self, case, launcher, act, *options):
        self.folder = os.path.join(case.dir, launcher + "-" + act)
        os.mkdir(self.folder)
        os.mkfifo(self.folder + ".fifo")
        script = os.path.join(case.dir, "program.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        words = {"torchrun": [TORCHRUN, "--no-python"], "ours": [program("ddpctl"), "run"]}[launcher]
        words[len(words):] = ["--standalone", "--nproc-per-node", "2", *options] + ["--"] * (launcher == "ours")
        temp = {"TMPDIR": case.dir} if launcher == "torchrun" else {}  # torchrun leaves its folder of logs
        self.out, self.err = (open(f"{self.folder}.{name}", "a+", encoding="utf-8") for name in ("out", "err"))
        self.process = subprocess.Popen([*words, PYTHON, script, self.folder, act], env=case.environ(**temp), stdin=subprocess.DEVNULL,
                                        stdout=self.out, stderr=self.err)

    def end(self):
        self.code = self.process.wait(timeout=LIMIT_S)
        for name in ("out", "err"):
            file = getattr(self, name)
            file.seek(0)
            setattr(self, name, file.read())
            file.close()
        self.notes = notes(self.folder)
        return self

    def starts(self):
        """How often each rank was started, and that it was told the right number of restarts."""
        counts = [[line["TORCHELASTIC_RESTART_COUNT"] for line in self.notes[rank] if "got" not in line] for rank in ("0", "1")]
        equal(counts, [[str(n) for n in range(len(counts[0]))]] * 2)
        return len(counts[0])

    def said(self):
        """What the ranks have written to stdout and stderr."""
        # Our last line, "-- t (1) failed: rank 1 exited with code 4: ... --", quotes the rank.
        return tuple(sorted(re.findall(rf"(?m)^(?!-- ).*({name} of rank \d)", getattr(self, name))) for name in ("out", "err"))

    def term(self, name):
        """SIGTERM to the launcher, which every rank gets long before the grace of 30 s."""
        wait_for("both ranks", lambda: len(os.listdir(self.folder)) == 2 and all(notes(self.folder).values()))
        watch = Stopwatch()
        self.process.send_signal(signal.SIGTERM)
        wait_for("the signal", lambda: all(len(lines) == 2 for lines in notes(self.folder).values()))
        watch.check(f"{name}: SIGTERM to the launcher reaches every rank", at_most=10)


SAME = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
        "ROLE_WORLD_SIZE", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "OMP_NUM_THREADS")
RESTARTS = ("--max-restarts", "0")  # torchrun's default; ours is 3
# The exit code of an act under torchrun and here. torchrun ends with 1 whatever failed; ours is the failed rank's, or 128 and the signal.
CODES = {"ends": (0, 0), "exits": (1, 3), "killed": (1, 128 + signal.SIGKILL), "recorded": (1, 1), "recovers": (0, 0)}
STARTS = {"recovers": 3}


def check_environment(theirs, ours):
    for rank in ("0", "1"):
        a, b = theirs.notes[rank][0], ours.notes[rank][0]
        equal({name: b.get(name) for name in SAME}, {name: a.get(name) for name in SAME}, rank)
        # Its store listens on the machine's name or address, ours on the loopback; each has a port, and a run has one id.
        for run in (theirs, ours):
            assert 0 < int(run.notes[rank][0]["MASTER_PORT"]) < 65536 and run.notes[rank][0]["MASTER_ADDR"], run.notes
            assert os.path.isabs(run.notes[rank][0]["TORCHELASTIC_ERROR_FILE"]), run.notes
            equal(run.notes[rank][0]["TORCHELASTIC_RUN_ID"], run.notes["0"][0]["TORCHELASTIC_RUN_ID"])


def check_said(act, theirs, ours):
    """torchrun reads a killed peer's streams to the end, and so do we: all that ranks wrote is there, on its own stream."""
    every = [f"{name} of rank {rank}" for _ in range(STARTS.get(act, 1)) for name in ("out", "err") for rank in "01"]
    for run in (theirs, ours):
        equal(run.said(), tuple(sorted(line for line in every if line.startswith(name)) for name in ("out", "err")), f"{act} {run.folder}: {run.out} {run.err}")


def test_the_same_ends():
    with Case() as case:
        options = {act: ("--max-restarts", "2") if act == "recovers" else RESTARTS for act in CODES}
        theirs = {act: Run(case, "torchrun", act, *options[act]) for act in CODES}  # side by side: torch's import takes seconds
        ours = {act: Run(case, "ours", act, *options[act]).end() for act in CODES}
        for act, codes in CODES.items():
            equal((theirs[act].end().code, ours[act].code), codes, act + theirs[act].err + ours[act].err)
            equal((theirs[act].starts(), ours[act].starts()), (STARTS.get(act, 1),) * 2, act)
            check_environment(theirs[act], ours[act])
            check_said(act, theirs[act], ours[act])
        # Both show what the error file says: torchrun its traceback, ours its message.
        for run in (theirs["recorded"], ours["recorded"]):
            assert MESSAGE in run.err, run.err
        # Both name the signal of a rank that was killed.
        for run in (theirs["killed"], ours["killed"]):
            assert "SIGKILL" in run.err or "signal 9" in run.err, run.err


SCRIPT = """import os, sys
print("rank", os.environ["RANK"], *sys.argv[1:], flush=True)
print("a pear of", os.environ["LOCAL_RANK"], file=sys.stderr, flush=True)
"""


def write(path, text, mode=0o644):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.chmod(path, mode)


def test_the_same_scripts():
    """What torchrun runs with its Python, whatever its name, its first line and its bits; and what it puts before lines."""
    with Case() as case:
        write(f"{case.dir}/train", "#!/opt/gone/python\n" + SCRIPT, 0o755)
        write(f"{case.dir}/windows.py", "#!/usr/bin/env python3\r\n" + SCRIPT.replace("\n", "\r\n"), 0o755)
        os.mkdir(f"{case.dir}/package")
        write(f"{case.dir}/package/__main__.py", SCRIPT)
        zipapp.create_archive(f"{case.dir}/package", f"{case.dir}/app.pyz")
        lines = {"train": ("--log_dir", "LOGS", "-t", "3", "--duplicate-stderr-filters", "apple,of 1"),
                 "app.pyz": ("--tee=1", "--log-line-prefix-template", "$role_name ${rank}: ", "--role", "r")}

        def begin(launcher, script, options):
            options = [f"{case.dir}/logs-{len(launcher)}" if word == "LOGS" else word for word in options]
            return subprocess.Popen([*launcher, "--standalone", "--nproc-per-node", "2", *options, script, "--lr", "1"], cwd=case.dir, text=True,
                                    env=case.environ(TMPDIR=case.dir, PYTHONWARNINGS="ignore"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def said(process):
            out, err = process.communicate(timeout=LIMIT_S)
            equal(process.returncode, 0, err)
            return sorted(out.splitlines()), sorted(line for line in err.splitlines() if "a pear of" in line)

        theirs = {script: begin([TORCHRUN], script, options) for script, options in lines.items()}
        for script in ("windows.py", "./package"):  # as its neighbours, which are compared
            equal(said(begin([program("ddpctl"), "run"], script, ())), (["rank 0 --lr 1", "rank 1 --lr 1"], ["a pear of 0", "a pear of 1"]), script)
        ours = {script: begin([program("ddpctl"), "run"], script, options) for script, options in lines.items()}
        shown = {script: said(process) for script, process in ours.items()}
        for script, process in theirs.items():
            equal(shown[script], said(process), script)
        equal(shown["train"], (["[default0]:rank 0 --lr 1", "[default1]:rank 1 --lr 1"], ["[default0]:a pear of 0", "[default1]:a pear of 1"]))
        filtered = []
        for pattern in (f"{case.dir}/logs-1/*/attempt_0/filtered_stderr.log", f"{case.dir}/logs-2/1/filtered_stderr.log"):
            (path,) = glob.glob(pattern)
            with open(path, encoding="utf-8") as file:
                filtered.append(file.read())
        equal(filtered, ["[default1]:a pear of 1\n"] * 2)


def test_sigterm_reaches_every_rank():
    with Case() as case:
        runs = {launcher: Run(case, launcher, "waits", *RESTARTS) for launcher in ("torchrun", "ours")}
        for launcher, run in runs.items():
            run.term(launcher)
        for launcher, run in runs.items():
            run.end()
            equal({rank: [line.get("got") for line in lines] for rank, lines in run.notes.items()},
                  {rank: [None, signal.SIGTERM] for rank in "01"}, launcher)
        # torchrun's is that of an exception in Python, ours that of a program which SIGTERM ended.
        equal({launcher: run.code for launcher, run in runs.items()}, {"torchrun": 1, "ours": 128 + signal.SIGTERM})


run_and_exit([test_the_same_ends, test_the_same_scripts, test_sigterm_reaches_every_rank])

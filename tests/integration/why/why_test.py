#!/usr/bin/env python3
"""Checks docs/why.md against what `ddpctl why` really prints: runs each section and compares its output with the page's.

why_test.py [TITLE ...]; numbers, durations and the carets of Python's tracebacks are left out of the comparison. With
DDP_UPDATE_WHY=1 the page gets the new outputs. Sections that need PyTorch or py-spy are skipped, with a line,
where there is none."""

import getpass
import json
import os
import re
import shlex
import shutil
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), os.path.join(HERE, "..", "..", "pytorch")]
import pytorch  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.proc import ptrace_scope
from processes.waiting import Stopwatch, wait_for

PAGE = os.path.join(ROOT, "docs", "why.md")
GOLDEN = os.path.join(ROOT, "tests", "unit", "ddpctl", "golden")
BLOCK = re.compile(r"```(\w+)(.*)\n((?:.*\n)*?)```\n")
PATIENCE_S = 240  # PyTorch takes long to import on a machine that is busy
REST_S = 30
STACKS = re.compile(r"^  rank \d+ on \S+, process \d+: .*", re.M | re.S)
LOST = "A node is lost"
HANGS = "A collective hangs"
# For jobs that do not end by themselves: what to do while they run, and which output line to wait for.
LIVE = {"Somebody kills a rank", LOST, "A rank never comes to init_process_group", HANGS, "No room"}


def wait_until(what, condition):
    return wait_for(what, condition, PATIENCE_S)


class Section:
    def __init__(self, text):
        self.title = text.split("\n", 1)[0]
        self.blocks = {m[1]: m for m in BLOCK.finditer(text)}
        self.text = text

    def body(self, kind):
        return self.blocks[kind][3] if kind in self.blocks else ""

    def lacks(self):
        """What the section needs and this machine lacks; otherwise empty."""
        bin_ = os.path.join(pytorch.folder(), "bin")
        if "torch" in self.body("python") and not os.access(os.path.join(bin_, "python"), os.X_OK):
            return f"no PyTorch in {pytorch.folder()}"
        if self.title == HANGS and not shutil.which("py-spy", path=f"{bin_}:{os.environ['PATH']}"):
            return "no py-spy"
        if self.title == HANGS and os.geteuid() != 0 and ptrace_scope() > 0:
            return "kernel.yama.ptrace_scope lets only root look into processes"
        return ""


def read_page():
    with open(PAGE, encoding="utf-8") as page:
        head, *texts = re.split(r"(?m)^## ", page.read())
    return head, [Section(text) for text in texts]


def normal(text):
    """Removes what differs between runs and between versions of Python."""
    lines = [line for line in text.splitlines() if line.strip(" ~^") or not line.strip()]
    text = "\n".join(line for line in lines if not line.startswith("    kernel: "))  # only root sees these, and they differ between kernels
    text = re.sub(r"process \d+: state \w(, in [\w.]+)?", "process N: state S", text)
    text = re.sub(r"Connection (closed|reset) by peer", "Connection closed by peer", text)
    text = re.sub(r"\b\d+(\.\d+)? ?s\b|\b\d+[mh]\d*[ms]?\b", "TIME", text)
    return re.sub(r"\d+(\.\d+)?", "N", text)


def tidy(text, case):
    """As the page shows it: in the folder of a user's program."""
    for folder, shown in ((case.dir, "/home/ada"), (pytorch.folder(), "/opt/pytorch")):
        text = text.replace(os.path.realpath(folder), shown).replace(folder, shown)
    return text.replace(f"(of {getpass.getuser()})", "(of ada)")


class Nodes(Cluster):
    """Two nodes with two slots each; with `is_hasty` a node that is silent for four seconds is lost."""

    def __init__(self, case, is_hasty):
        super().__init__(case, nodes=2, slots=2, server_options=("--suspect", "2s", "--lost", "4s", "--lease", "60s") if is_hasty else ())


class Run:
    """One section on a cluster of its own."""

    def __init__(self, section, case):
        self.section, self.case = section, case
        self.folder = os.path.join(case.dir, "train")
        os.mkdir(self.folder)
        with open(os.path.join(self.folder, "train.py"), "w", encoding="utf-8") as program:
            program.write(section.body("python"))

    def why(self, *args):
        done = self.cluster.ctl("why", *args, self.job)
        assert done.returncode == 0, done.stderr
        self.look_json()
        return tidy(done.stdout, self.case)

    def look_json(self):
        done = self.cluster.ctl("why", "--json", self.job)
        why = json.loads(done.stdout)["why"]
        assert str(why["job"]["id"]) == self.job and isinstance(why["failures"], list), why

    def ranks(self):
        return self.cluster.status(self.job)["ranks"]

    def wait_for(self, state):
        wait_until(f"the job is {state}", lambda: self.cluster.status(self.job)["state"] == state)

    def until(self, words, *args):
        """Asks until all of `words` are in the answer, since the program needs a while to reach that place, and then until the answer is the
        page's, for REST_S at most: it may not be at rest there yet."""
        rest = None

        def look():
            nonlocal rest
            told = self.why(*args)
            if "--stacks" not in args:  # after 30 s, which a busy machine may take to import PyTorch, `why` shows them by itself
                told = STACKS.sub("", told)
            is_there = all(word in told for word in words)
            if is_there and rest is None:
                rest = Stopwatch()
            return told if is_there and (normal(told) == normal(self.section.body("text")) or rest.passed_s > REST_S) else None
        return wait_until(lambda: f"{words}: {self.why(*args)}", look)

    def tell(self):
        title = self.section.title
        if title == "No room":
            return self.until(["it wants"])
        if title not in LIVE:
            self.wait_for("failed")
            return self.why()
        self.wait_for("running")
        if title == "Somebody kills a rank":
            wait_until("its line", lambda: "waiting" in self.cluster.ctl("logs", "--rank", "1", self.job).stdout)
            os.kill(self.ranks()[1]["pid"], signal.SIGKILL)
            self.wait_for("failed")
            return self.why()
        if title == LOST:
            return self.lose_node()
        if title == HANGS:
            return self.until(["2 of 2 ranks connected", "load_data", "all_reduce"], "--stacks")
        return self.until(["the others wait for", "(Gloo)"])

    def lose_node(self):
        self.cluster.kill_machine("node1")
        self.wait_for("restarting")
        return self.why()

    def go(self):
        args = shlex.split(self.section.body("sh"))
        with Nodes(self.case, self.section.title == LOST) as self.cluster:
            path = f"{pytorch.folder()}/bin:{os.environ['PATH']}" if "torch" in self.section.body("python") else os.environ["PATH"]
            done = self.cluster.ctl("submit", "--cwd", self.folder, *args[2:], PATH=path)
            assert done.returncode == 0, done.stderr
            self.job = done.stdout.strip()
            told = self.tell()
            self.cluster.ctl("cancel", "--now", self.job)
            wait_until("the end of the job", lambda: self.cluster.status(self.job)["exit"] is not None)
        return told


def told_by(section):
    golden = re.fullmatch(r" golden (\S+)", section.blocks["text"][2])
    if golden:
        with open(f"{GOLDEN}/{golden[1]}.ok", encoding="utf-8") as file:
            return file.read()
    with Case() as case:
        return Run(section, case).go()


def put(section, told):
    """Writes the output into the page, which another section may have changed meanwhile."""
    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    old = section.blocks["text"]
    new = section.text.replace(old[0], f"```text{old[2]}\n{told}```\n")
    with open(PAGE, "w", encoding="utf-8") as page:
        page.write(text.replace("## " + section.text, "## " + new))


def check(section):
    told = told_by(section)
    if os.environ.get("DDP_UPDATE_WHY"):
        put(section, told)
        return True
    if normal(told) == normal(section.body("text")):
        return True
    print(f"{section.title}: docs/why.md shows another text; the real one is\n{told}", flush=True)
    return False


def main():
    _, sections = read_page()
    wanted, failed, skipped = sys.argv[1:], 0, 0
    for section in sections:
        if wanted and section.title not in wanted:
            continue
        if section.lacks():
            print(f"skipped {section.title}: {section.lacks()}", flush=True)
            skipped += 1
            continue
        watch = Stopwatch()
        is_good = check(section)
        failed += not is_good
        print(f"{'ok' if is_good else 'not ok'} {section.title} ({watch.passed_s:.1f} s)", flush=True)
    print(f"{len(sections)} sections, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

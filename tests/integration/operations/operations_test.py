#!/usr/bin/env python3
"""Checks docs/operations.md: causes its incidents, runs its commands in its order, and compares their output with the page's. Numbers,
durations and spaces may differ. With DDP_UPDATE_OPERATIONS=1 the page gets the new outputs.

In the page a comment <!-- test: WORDS --> causes an incident (the functions do_* below), and in blocks of ```console the lines after a
`$ ` are run; the lines after those are the output. A block whose comment says `skip` is not for this machine."""
import contextlib
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib")]
from processes.case import BUILD, Case, clean_environ, Cluster
from processes.waiting import wait_for

PAGE = os.path.join(HERE, "..", "..", "..", "docs", "operations.md")
PATIENCE_S = 120
PART = re.compile(r"<!-- test: (.*?) -->|^```console\n(.*?)^```\n", re.M | re.S)


def wait_until(what, condition):
    return wait_for(what, condition, PATIENCE_S)


def normal(text):
    text = re.sub(r"#([\w-]{20,}|\.\.\.)", "#KEY", text)
    text = re.sub(r"\b\d+(\.\d+)? ?(ms|s|MiB|KiB)\b|\b\d+[mhd]\d*[ms]?\b", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?", "TIME", text)
    text = re.sub(r"\d+(\.\d+)*", "N", text)
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines() if line.strip()]


class Machines(Cluster):
    """The server on `head`, gpu01 and gpu02 with two slots each; a node that is silent for 4 s is lost."""

    def __init__(self, case):
        super().__init__(case, nodes=0, server_options=["--suspect", "2s", "--lost", "4s", "--lease", "60s", "--listen", "127.0.0.1:0",
                                                        "--require-key", "--advertise", "head:7400"])


class Page:
    def __init__(self, case):
        self.case, self.job = case, None
        self.cluster = Machines(case)
        self.bin = os.path.join(case.dir, "bin")
        os.mkdir(self.bin)
        for program in ("ddpctl", "rendezvous", "launcherd"):
            os.symlink(os.path.join(BUILD, program, program), os.path.join(self.bin, program))

    # -- incidents --

    def do_start(self):
        for name in ("gpu01", "gpu02"):
            self.cluster.start_node(name, 2)
        self.job = self.cluster.submit("--name", "train", "--nodes", "2", "--nproc-per-node", "1", "--grace", "1s", "--cwd", "/", "--",
                                       "sh", "-c", "echo step; exec sleep 100000")
        self.wait_for("running")

    def wait_for(self, state):
        wait_until(f"the job is {state}", lambda: self.cluster.status(self.job)["state"] == state)

    def is_up(self, name):
        return re.search(rf"^{name} +up ", self.cluster.ctl("nodes", "-a").stdout, re.M) is not None

    def do_lose(self, name):
        """A power failure of a node: kills launcherd, its shim and its workers."""
        self.cluster.kill_machine(name)
        wait_until("the loss", lambda: f"node {name} was lost" in self.cluster.ctl("events").stdout)

    def do_return(self, name):
        self.cluster.start_node(name, 2)
        wait_until("the node", lambda: self.is_up(name))

    def do_running(self):
        self.wait_for("running")

    def do_kill_server(self):
        self.cluster.kill_server()

    def do_start_server(self):
        self.cluster.start_server()
        wait_until("the nodes", lambda: self.is_up("gpu01") and self.is_up("gpu02"))

    def do_restart(self, name):
        assert self.cluster.daemons.pop(name).end() == 0
        self.do_return(name)

    def do_move_state(self):
        """Moves the state to another folder, as if to another machine, and starts the server there."""
        source, copy = f"{self.case.dir}/rendezvous", f"{self.case.dir}/copy"
        assert self.cluster.daemons.pop("rendezvous").end() == 0
        shutil.copytree(source, copy, ignore=lambda folder, names: [n for n in names if n.endswith(".sock")])
        shutil.rmtree(source)
        os.rename(copy, source)
        self.do_start_server()

    def do_cancel(self):
        self.cluster.ctl("cancel", "--now", self.job)
        wait_until("its end", lambda: self.cluster.status(self.job)["exit"] is not None)

    # -- the page --

    def run(self, command):
        """Runs a command as if typed on `head`, with this cluster's server."""
        text = command.replace("ddpctl ", f"ddpctl --server {self.cluster.address} ", 1) if command.startswith("ddpctl ") else command
        done = subprocess.run(["sh", "-c", text], env=clean_environ(PATH=f"{self.bin}:{os.environ['PATH']}", TMPDIR=self.case.temp,
                              XDG_CONFIG_HOME=f"{self.case.dir}/config"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        return done.stdout.replace(self.cluster.address, "unix:/run/ddp/rendezvous.sock").replace(self.case.dir, "/var/lib/ddp")

    def check(self, block):
        """The block with the real outputs, and whether the page's were right."""
        told, is_right = "", True
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
            out = self.run(command)

            def is_shown():  # a state that has not been reached yet
                nonlocal out
                if normal(out) != normal(shown):
                    out = self.run(command)
                return normal(out) == normal(shown)
            with contextlib.suppress(AssertionError):
                if not re.search("add|rotate|remove", command):
                    wait_for("what the page shows", is_shown, 3 if os.environ.get("DDP_UPDATE_OPERATIONS") else 60)
            if normal(out) != normal(shown):
                is_right = False
                print(f"$ {command}\nsays\n{out}\nand the page\n{shown}", flush=True)
            told += f"$ {command}\n" + re.sub(r"#[\w-]{20,}", "#...", out)
        return told, is_right


def main():
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    update, wrong, blocks, out, at = os.environ.get("DDP_UPDATE_OPERATIONS"), 0, 0, "", 0
    with Case() as case:
        page = Page(case)
        with page.cluster:
            skip = False
            for part in PART.finditer(text):
                out += text[at:part.start()]
                at = part.end()
                piece = part[0]
                if part[1] is not None:
                    words = part[1].split()
                    skip = words[0] == "skip"
                    if not skip:
                        getattr(page, "do_" + words[0].replace("-", "_"))(*words[1:])
                elif skip:
                    skip = False
                else:
                    blocks += 1
                    told, is_right = page.check(part[2])
                    wrong += not is_right
                    piece = f"```console\n{told}```\n"
                out += piece
    if update:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(out + text[at:])
    assert blocks > 0
    print(f"{blocks} blocks, {wrong} differ")
    return 1 if wrong and not update else 0


if __name__ == "__main__":
    sys.exit(main())

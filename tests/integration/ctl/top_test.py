"""ddpctl top in a terminal of its own: what it shows, its keys, and that every way to end it restores the terminal."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster, DDPCTL
from processes.gpus import GpuCluster
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for

BEGIN, END = b"\x1b[?1049h\x1b[?25l\x1b[?7l", b"\x1b[?7h\x1b[?25h\x1b[?1049l"


class Top:
    """`ddpctl top` in a terminal; `lines` is the last complete screen."""

    def __init__(self, case, server, *args, rows=24, columns=100):
        self.near, far = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(far)
        self.process = subprocess.Popen([DDPCTL, "--server", server, "top", "--interval", "300ms", *args], stdin=far, stdout=far, stderr=far,
                                        start_new_session=True, env=case.environ(TERM="xterm"), preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.far = far
        self.data = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, timeout_s):
        if not select.select([self.near], [], [], timeout_s)[0]:
            return False
        try:
            more = os.read(self.near, 65536)
        except OSError:
            return False
        self.data += more
        return bool(more)

    def lines(self):
        pictures = self.data.split(b"\x1b[H")
        done = [p for p in pictures[1:] if b"\x1b[J" in p]
        text = re.sub(rb"\x1b\[[?0-9;]*[a-zA-Z]", b"", done[-1].split(b"\x1b[J")[0] if done else b"")
        return text.decode().replace("\r", "").split("\n")

    def wait(self, what, condition):
        wait_for(lambda: f"{what}: {self.lines()}", lambda: condition(self.lines()) or self.read(0.1) and False)

    def shows(self, text):
        self.wait(repr(text), lambda lines: any(text in line for line in lines))

    def key(self, text):
        os.write(self.near, text.encode())

    def ended(self, code):
        """Waits for its end and checks that the terminal is restored."""
        wait_for("its end", lambda: self.process.poll() is not None or self.read(0.05) and False)
        while self.read(0):
            pass
        equal(self.process.returncode, code)
        equal((self.data.count(BEGIN), self.data.count(END)), (1, 1))
        equal(termios.tcgetattr(self.far), self.before)
        return self.data.split(END)[-1].decode()

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.near)
        os.close(self.far)


def it_shows_the_cluster_and_takes_keys():
    with Case() as case, GpuCluster(case, gpus=2, lines={"g0": "gauges 0 87 64 412500 700000"}) as cluster:
        job = cluster.submit("-n", "2", "--name", "r50", "--", "sleep", "600")
        waits = cluster.submit("-n", "2", "--name", "behind", "--", "true")
        with Top(case, cluster.address) as top:
            top.shows("1 running, 1 waiting  1 of 1 nodes up  0 of 2 slots free")
            top.wait("the gauges", lambda lines: any(line.startswith("node0") and " 87 " in line for line in lines))
            lines = top.lines()
            equal(len(lines), 24)
            assert any(line.split()[:2] == [job, "r50"] for line in lines) and any(line.split()[:2] == [waits, "behind"] for line in lines), lines
            top.key("\t\r")
            top.wait("the slots", lambda lines: any(line.split()[:5] == ["0", "busy", job, "0", "87%"] for line in lines))
            top.key("\x1b[D\t\r")
            top.wait("the ranks", lambda lines: any(line.split()[:3] == ["1", "node0", "1"] for line in lines))
            top.shows("r50 (")
            top.key("?")
            top.shows("Ctrl-C")
            top.resize(10, 60)
            top.key("x")
            top.wait("the new size", lambda lines: len(lines) == 10 and all(len(line) <= 60 for line in lines))
            top.key("kq")  # the first key closes the help
            equal(top.ended(0), "")
        with Top(case, cluster.address, "r50") as top:
            top.wait("the ranks", lambda lines: any(line.split()[:3] == ["1", "node0", "1"] for line in lines))
            top.key("q")
            equal(top.ended(0), "")
        done = cluster.ctl("top", "--once")
        assert done.returncode == 0 and "\x1b" not in done.stdout, done
        assert re.search(r"^node0 +up +0/2 .* 87 ", done.stdout, re.MULTILINE), done.stdout
        seen = json.loads(cluster.ctl("top", "--once", "--json").stdout)
        equal((seen["schema"], seen["type"], [j["id"] for j in seen["jobs"]], seen["nodes"][0]["slot_list"][0]["utilization_percent"],
               seen["nodes"][0]["slot_list"][1]["job_id"]), ("ddp.v1", "top", [int(job), int(waits)], 87, int(job)))
        equal(cluster.ctl("cancel", "--now", "--wait", waits, job).returncode, 0)


def it_ends_when_it_should():
    with Case() as case, Cluster(case) as cluster:
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with Top(case, cluster.address) as top:
                top.shows("no jobs wait or run")
                top.process.send_signal(number)
                equal(top.ended(code), "")
        with Top(case, cluster.address) as top:
            top.shows("no jobs wait or run")
            top.key("\x03")  # Ctrl-C: in raw mode a key, not a signal
            equal(top.ended(130), "")
        with Top(case, cluster.address) as top:  # a crash: the terminal is restored all the same
            top.shows("no jobs wait or run")
            top.process.send_signal(signal.SIGABRT)
            equal(top.ended(-signal.SIGABRT), "")
        with Top(case, cluster.address) as top:
            top.shows("no jobs wait or run")
            top.process.send_signal(signal.SIGTSTP)
            wait_for("the stop", lambda: os.waitid(os.P_PID, top.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None)
            while top.read(0):
                pass
            equal((top.data.count(END), termios.tcgetattr(top.far)), (1, top.before))
            top.data = BEGIN  # restart the count that ended() checks
            top.process.send_signal(signal.SIGCONT)
            top.wait("the picture again", lambda lines: any("no jobs wait or run" in line for line in lines))
            top.data = top.data.replace(BEGIN, b"", 1)
            top.key("q")
            equal(top.ended(0), "")


def a_server_that_is_gone_is_said():
    with Case() as case, Cluster(case) as cluster:
        with Top(case, cluster.address) as top:
            top.shows("no jobs wait or run")
            cluster.kill_server()
            top.shows("the server does not answer:")
            cluster.start_server()
            top.shows("1 of 1 nodes up")
            top.key("q")
            equal(top.ended(0), "")
        cluster.kill_server()
        with Top(case, cluster.address, "--patience", "0") as top:
            text = top.ended(5)
            assert "cannot be reached" in text, text


def wrong_uses_are_refused():
    with Case() as case, Cluster(case) as cluster:
        done = cluster.ctl("top")
        equal(done.returncode, 2)
        assert "--once" in done.stderr, done.stderr
        equal(cluster.ctl("top", "--once", "a", "b").returncode, 2)
        equal(cluster.ctl("top", "--interval", "1ms").returncode, 2)
        done = cluster.ctl("top", "--once", "no-such-job")
        equal((done.returncode, done.stdout), (3, ""))
        assert "no-such-job" in done.stderr, done.stderr


if __name__ == "__main__":
    run_and_exit([it_shows_the_cluster_and_takes_keys, it_ends_when_it_should, a_server_that_is_gone_is_said, wrong_uses_are_refused], side_by_side=2)

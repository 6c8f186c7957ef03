#!/usr/bin/env python3
"""ddpctl's stdin for one rank (--stdin), and terminals for ranks (--tty). stdin_test.py [BUILD]"""
import fcntl
import hashlib
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import PATIENCE_S, wait_for
from processes.wire import Client

RUN = ("run", "--standalone", "--max-restarts", "0", "-q")


def feed(case, data, *args):
    done = subprocess.run([DDPCTL, *args], env=case.environ(), input=data, capture_output=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout, done.stderr


def nobody_gets_any_unless_asked():
    with Case() as case:
        equal(feed(case, b"x", *RUN, "-n", "2", "--", "wc", "-c"), (0, b"0\n0\n", b""))
        equal(feed(case, b"hello", *RUN, "-n", "2", "--stdin", "1", "--", "sh", "-c", "echo $RANK $(cat)")[1].splitlines().count(b"1 hello"), 1)
        code, _, errors = feed(case, b"x", *RUN, "--stdin", "1", "--", "cat")
        assert code == 125 and b"--stdin 1: there is no such rank" in errors, (code, errors)


def every_byte_arrives_once():
    data = random.Random(14).randbytes(3_000_000)
    wanted = hashlib.sha256(data).hexdigest()
    with Case() as case:
        slow = "sleep 0.5; head -c 100000 > /dev/null; sleep 1.2; cat > /dev/null; echo end"
        equal(feed(case, data, *RUN, "--stdin", "0", "--", "sha256sum")[1].split()[0].decode(), wanted)
        equal(feed(case, data, *RUN, "--stdin", "0", "--", "sh", "-c", slow)[1], b"end\n")
        with open(f"{case.dir}/data", "wb") as file:
            file.write(data)
        with open(f"{case.dir}/data", "rb") as file:
            done = subprocess.run([DDPCTL, *RUN, "--stdin", "0", "--", "sha256sum"], env=case.environ(), stdin=file,
                                  capture_output=True, timeout=PATIENCE_S, check=False)
        equal((done.returncode, done.stdout.split()[0].decode()), (0, wanted))


def a_file_is_read_from_where_the_caller_is():
    with Case() as case:
        with open(f"{case.dir}/lines", "w", encoding="ascii") as file:
            file.write("one\ntwo\nthree\n")
        script = '( read x; echo "got $x"; "$0" "$@"; echo "left: $(cat)" ) < "$LINES_FILE"'
        done = subprocess.run(["sh", "-c", script, DDPCTL, *RUN, "--stdin", "0", "--", "cat"], env=case.environ(LINES_FILE=f"{case.dir}/lines"),
                              capture_output=True, timeout=PATIENCE_S, check=False)
        equal(done.stdout, b"got one\ntwo\nthree\nleft: \n", done.stderr)


def lost_connections_lose_nothing():
    data = random.Random(15).randbytes(2_000_000)
    with Case() as case, Cluster(case) as cluster:
        reader = ("import hashlib, sys, time\nh = hashlib.sha256()\n"
                  "while b := sys.stdin.buffer.read(50000): h.update(b); time.sleep(0.03)\nprint(h.hexdigest())")
        process = subprocess.Popen([DDPCTL, "--server", cluster.address, "run", "-q", "--stdin", "0", "--", "python3", "-c", reader],
                                   env=case.environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(data[:700_000])
        process.stdin.flush()
        cluster.kill_server()
        cluster.start_server()
        process.stdin.write(data[700_000:])
        process.stdin.close()
        equal(process.stdout.read().decode().strip(), hashlib.sha256(data).hexdigest(), process.stderr.read())
        equal(process.wait(PATIENCE_S), 0)
        process.stdout.close()
        process.stderr.close()


def who_writes_to_a_rank_that_has_enough_hears_of_it():
    with Case() as case:
        done = subprocess.run(["sh", "-c", 'yes | "$0" "$@"; true', DDPCTL, *RUN, "--stdin", "0", "--", "sh", "-c",
                               "head -2; exec 0<&-; sleep 0.3; echo end"], env=case.environ(), capture_output=True, timeout=PATIENCE_S, check=False)
        equal(done.stdout, b"y\ny\nend\n", done.stderr)


def a_restart_begins_at_the_end():
    with Case() as case:
        program = "echo $TORCHELASTIC_RESTART_COUNT $(cat); test $TORCHELASTIC_RESTART_COUNT = 1"
        code, out, errors = feed(case, b"hello", "run", "--standalone", "--max-restarts", "1", "--stdin", "0", "--", "sh", "-c", program)
        equal((code, out), (0, b"0 hello\n1\n"), errors)
        assert b"-- generation 2: the stdin of rank 0 is at its end, because generation 1 had some of it --" in errors, errors


class Terminal:
    """ddpctl on a terminal of its own."""

    def __init__(self, case, *args, size=(30, 100)):
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, size)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.text = b""
        self.process = subprocess.Popen([DDPCTL, *args], env=case.environ(TERM="xterm"), stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def wait_for(self, text, count=1):
        def has_come():
            if self.text.count(text) < count and select.select([self.master], [], [], 0.2)[0]:
                self.text += os.read(self.master, 65536)
            return self.text.count(text) >= count
        wait_for(lambda: f"{text!r}: {self.text!r}", has_come)

    def type(self, keys):
        os.write(self.master, keys)

    def end(self):
        code = self.process.wait(PATIENCE_S)
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536)
        equal(termios.tcgetattr(self.slave)[:4], self.before[:4], "the terminal is as it was")
        os.close(self.slave)
        os.close(self.master)
        return code


def a_rank_has_our_terminal():
    with Case() as case:
        program = ("import os, select, signal, sys, time\n"
                   "woken, wakes = os.pipe()  # a signal just before a sleep would be handled after it\n"
                   "os.set_blocking(wakes, False)\nsignal.set_wakeup_fd(wakes)\nprint([os.isatty(i) for i in range(3)], *os.get_terminal_size(), flush=True)\n"
                   "def on(*_): os.write(1, b'size %d %d\\n' % os.get_terminal_size())  # print may be at work\nsignal.signal(signal.SIGWINCH, on)\n"
                   "print('typed', repr(input('? ')), flush=True)\n"
                   "try:\n    print('ready', flush=True)\n    while select.select([woken], [], []): os.read(woken, 99)\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
                   "time.sleep(0.2)\nprint('\\x1b[1mend\\x1b[0m')")
        one = Terminal(case, *RUN[:-1], "--tty", "--stdin", "0", "--", "python3", "-c", program)
        one.wait_for(b"[True, True, True] 100 30\r\n")
        one.wait_for(b"? ")
        one.type(b"abc\r")
        one.wait_for(b"abc\r\ntyped 'abc'\r\n")
        one.wait_for(b"ready\r\n")
        termios.tcsetwinsize(one.slave, (41, 77))
        one.process.send_signal(signal.SIGWINCH)
        one.wait_for(b"size 77 41\r\n")
        one.type(b"\x03")  # to the program
        one.wait_for(b"interrupted\r\n")
        equal(one.end(), 0, one.text)
        assert b"\x1b[1mend\x1b[0m" in one.text, one.text


def keys_let_go_of_a_job():
    with Case() as case, Cluster(case) as cluster:
        one = Terminal(case, "--server", cluster.address, "run", "--tty", "--stdin", "0", "--", "sh", "-c", "stty -echo; echo up; exec cat > /dev/null")
        one.wait_for(b"up\r\n")
        wait_for("the job", lambda: cluster.status("1")["state"] == "running")
        one.type(b"\x1d\x1d\x1d")
        one.wait_for(b"detached, the job goes on; its output: ddpctl logs -f 1")
        equal(one.end(), 0, one.text)
        equal(cluster.status("1")["state"], "running")
        equal(cluster.ctl("cancel", "1", "--now", "--wait").returncode, 0)


def several_ranks_share_our_terminal():
    with Case() as case:
        program = ("if [ $RANK = 0 ]; then printf '\\033[34mblue\\033[0m\\nname? '; read -r name; echo \"hello $name $TERM\"; "
                   "else exec sleep 600; fi")
        one = Terminal(case, *RUN[:-1], "-n", "2", "--tty", "--stdin", "0", "--", "sh", "-c", program)
        one.wait_for(b"|\x1b[0m \x1b[34mblue\x1b[0m\r\n")
        one.wait_for(b"|\x1b[0m name? ")  # behind its prefix, although its line has no end
        one.type(b"bob\r")
        one.wait_for(b"name? bob\r\n")
        one.wait_for(b"hello bob xterm\r\n")
        wait_for("Ctrl-C is ours when rank 0 has ended", lambda: termios.tcgetattr(one.slave)[3] & termios.ISIG)
        one.type(b"\x03")
        one.wait_for(b"-- SIGINT to every rank")
        equal(one.end(), 130, one.text)
        equal(re.findall(rb"[^\r]\n", one.text), [], one.text)  # no staircase


def both_streams_of_a_rank_keep_their_order():
    with Case() as case:
        program = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo out$i; echo err$i >&2; done"
        one = Terminal(case, *RUN, "--", "sh", "-c", program)
        equal(one.end(), 0, one.text)
        equal(one.text.split(), [f"{stream}{i}".encode() for i in range(1, 101) for stream in ("out", "err")])
        one = Terminal(case, *RUN, "--stream", "err", "--", "sh", "-c", "echo out; echo err >&2")  # who wants one of them gets it
        one.wait_for(b"err\r\n")
        equal((one.end(), one.text), (0, b"err\r\n"))


def width_is_that_of_our_terminal():
    with Case() as case:
        one = Terminal(case, *RUN, "--", "sh", "-c", "echo $COLUMNS $LINES $TERM", size=(33, 120))
        one.wait_for(b"120 33 xterm\r\n")
        equal(one.end(), 0, one.text)
        one = Terminal(case, *RUN, "-n", "2", "--env", "LINES=7", "--", "sh", "-c", "printf '%0*d\\n' $COLUMNS $LINES", size=(33, 120))
        one.wait_for(b"7\r\n", 2)
        equal(one.end(), 0, one.text)
        equal([len(re.sub(rb"\x1b\[[0-9]*m", b"", line)) for line in one.text.split(b"\r\n")[:2]], [120] * 2, one.text)  # a prefix before it
        equal(feed(case, b"", *RUN, "--", "sh", "-c", "echo ${COLUMNS-none}")[1], b"none\n")  # no terminal


def terminals_without_a_keyboard():
    with Case() as case:
        code, out, errors = feed(case, b"", *RUN, "-n", "2", "--tty", "--", "sh", "-c", "test -t 0; echo $? $(stty size < /dev/tty)")
        equal((code, out), (0, b"1 24 80\r\n" * 2), errors)  # stdin is none, stdout a terminal
        code, out, errors = feed(case, b"line\n", *RUN, "--tty", "--stdin", "0", "--", "cat")
        equal((code, re.sub(rb"\r", b"", out)), (0, b"line\nline\n"), errors)  # echoed, and printed
        code, out, errors = feed(case, b"line\npart", *RUN, "--tty", "--stdin", "0", "--", "sh", "-c", "stty -echo; exec cat")
        assert code == 0 and re.sub(rb"\r", b"", out).endswith(b"line\npart"), (code, out, errors)  # the end comes within a line


def only_the_owner_types():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--", "sleep", "600")
        wait_for("the job", lambda: cluster.status(job)["state"] == "running")
        with Client(cluster.address) as client:
            wanted = dict(request_id=5, job_id=int(job), generation=1, rank=0, offset=0, bytes="", is_end=False, rows=0, columns=0)
            equal([client.ask("input", **wanted)[key] for key in ("request_id", "is_closed", "problem")],
                  [5, True, "this rank has no stdin; run --stdin gives it one"])
            equal(client.ask("input", **{**wanted, "job_id": 77})["problem"], "there is no such job")
            equal(client.ask("input", **{**wanted, "generation": 2})["problem"], "the rank does not run now")
        equal(cluster.ctl("cancel", job, "--now", "--wait").returncode, 0)


if __name__ == "__main__":
    run_and_exit([nobody_gets_any_unless_asked, every_byte_arrives_once, a_file_is_read_from_where_the_caller_is, lost_connections_lose_nothing,
               who_writes_to_a_rank_that_has_enough_hears_of_it, a_restart_begins_at_the_end, a_rank_has_our_terminal,
               keys_let_go_of_a_job, several_ranks_share_our_terminal, width_is_that_of_our_terminal, both_streams_of_a_rank_keep_their_order, terminals_without_a_keyboard, only_the_owner_types], side_by_side=4)

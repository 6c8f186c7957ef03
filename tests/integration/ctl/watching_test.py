"""What users look at: metrics and the report of a job, and the progress bar of run."""
import csv
import fcntl
import html.parser
import io
import json
import os
import pty
import re
import select
import stat
import struct
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402
from processes.case import BUILD, Case, Cluster, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import PATIENCE_S, Stopwatch, wait_for

# Rank 0 writes a line for each step. Generation 1 fails after step 150, and generation 2 resumes after step 100.
PROGRAM = r'''
import json, os, sys
rank, generation = int(os.environ["RANK"]), int(os.environ["DDP_GENERATION"])
if rank == 0:
    with open(os.environ["DDP_METRICS"], "a", buffering=1) as file:
        for step in range(1 if generation == 1 else 101, 301):
            file.write(json.dumps(dict(kind="step", step=step, loss=3 / step, images_per_s=100 + generation)) + "\n")
            if generation == 1 and step == 150:
                file.write('{"kind":"step","st')
                file.close()
                sys.exit(3)
        file.write("no json\n")
'''

# Reports progress as ddp-worker does, each time the test writes a line into the pipe.
TELLS = r'''
import json, os, struct, sys
shim = int(os.environ["DDP_SHIM_FD"])
def send(**message):
    data = json.dumps(message, separators=(",", ":")).encode()
    os.write(shim, struct.pack(">I", len(data)) + data)
for line in open(sys.argv[1]):
    if not line.strip().isdigit():
        print(line.rstrip("\n").replace("/", "\n"), end="", flush=True)
        continue
    step = int(line)
    print("step", step, "is done", flush=True)
    send(type="progress", job_id=os.environ["DDP_JOB_ID"], generation=1, rank=0, epoch=1, epochs=2, step=str(step), steps="1000",
         loss=0.5, samples_per_s=1000.0, checkpoint_step="0")
'''


def run_failing_job(cluster):
    job = cluster.submit("-n", "2", "--max-restarts", "1", "--name", "r50", "--", sys.executable, "-c", PROGRAM)
    equal(cluster.ctl("wait", job).returncode, 0)
    return job


def metrics_of_all_generations_are_printed():
    with Case() as case, Cluster(case) as cluster:
        job = run_failing_job(cluster)
        done = cluster.ctl("metrics", "--format", "csv", "--field", "loss,samples_per_s", "r50")
        equal((done.returncode, done.stderr), (0, "-- 2 lines are no flat JSON objects; they are left out --\n"))
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        equal([(int(r["generation"]), int(r["step"]), float(r["loss"]), float(r["samples_per_s"])) for r in rows],
              [(1, s, 3 / s, 101) for s in range(1, 151)] + [(2, s, 3 / s, 102) for s in range(101, 301)])
        lines = [json.loads(line) for line in cluster.ctl("metrics", "--json", job).stdout.splitlines()]
        equal((len(lines), lines[-1]), (350, {"schema": "ddp.v1", "type": "metrics", "job_id": int(job), "generation": 2, "rank": 0,
                                              "kind": "step", "step": 300, "loss": 0.01, "images_per_s": 102}))
        table = cluster.ctl("metrics", "--generation", "2", job).stdout.splitlines()
        equal((len(table), table[0].split()[:6]), (201, ["gen", "time", "kind", "epoch", "step", "loss"]))
        equal(cluster.ctl("metrics", "--json", "--rank", "1", job).returncode, 2)  # there is no such option
        none = cluster.submit("--", "true")
        equal(cluster.ctl("wait", none).returncode, 0)
        done = cluster.ctl("metrics", none)
        equal((done.returncode, done.stdout), (0, ""))
        assert done.stderr.startswith("no metrics: rank 0 has written none."), done.stderr
        for words, code, text in ((("no-such",), 3, "no-such"), ((), 2, "which job?"), (("--format", "xml", job), 2, "table, csv or json"),
                                  (("--field", ",", job), 2, "--field"), (("--generation", "3", job), 3, "no generation 3")):
            done = cluster.ctl("metrics", *words)
            equal(done.returncode, code, words)
            assert text in done.stderr, done.stderr


def metrics_are_followed_to_the_end_of_the_job():
    with Case() as case, Cluster(case) as cluster:
        pipe = os.path.join(case.dir, "pipe")
        os.mkfifo(pipe)
        job = cluster.submit("--", "sh", "-c", f"cat {pipe} >> $DDP_METRICS")
        follow = subprocess.Popen([DDPCTL, "--server", cluster.address, "metrics", "-f", "--json", job], stdout=subprocess.PIPE,
                                  text=True, env=case.environ())
        with open(pipe, "w", encoding="ascii") as file:
            for step in range(1, 4):
                file.write(json.dumps({"step": step}) + "\n")
                file.flush()
                equal(json.loads(follow.stdout.readline())["step"], step)
        equal((follow.stdout.read(), follow.wait(PATIENCE_S)), ("", 0))
        follow.stdout.close()


class Elements(html.parser.HTMLParser):
    """Collects the names of a page's elements, and attributes that could load something."""

    def __init__(self, text):
        super().__init__()
        self.names, self.loads = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.loads += [(tag, name) for name, _ in attrs if name in ("src", "href", "srcset", "action") or name.startswith("on")]


def a_report_is_one_page():
    with Case() as case, Cluster(case) as cluster:
        run_failing_job(cluster)
        path = os.path.join(case.dir, "r.html")
        equal(cluster.ctl("report", "r50", "-o", path).returncode, 0)
        equal(json.loads(cluster.ctl("report", "r50", "-o", path, "--json").stdout), {"schema": "ddp.v1", "type": "report", "file": path})
        with open(path, encoding="utf-8") as file:
            text = file.read()
        page = Elements(text)
        equal((page.loads, page.names.count("script"), page.names.count("figure")), ([], 0, 2))  # loss, images/s
        for part in ("r50 (1) succeeded after", "rank 0 exited with code 3", ">g2</text>", "2 of 352 lines", "Generation 2", "node0"):
            assert part in text, part
        equal(cluster.ctl("report", "1", "-o", "-").stdout.count("</html>"), 1)
        subprocess.run([DDPCTL, "--server", cluster.address, "report", "1", "-q"], env=case.environ(), cwd=case.temp, check=True)
        equal(os.listdir(case.temp), ["report-r50-1.html"])
        os.unlink(os.path.join(case.temp, "report-r50-1.html"))
        job = cluster.submit("--name", "evil", "--max-restarts", "0", "--", "sh", "-c",
                             "echo '</pre><script>alert(1)</script>' >&2; sleep 0; exit 3", "<script>")
        equal(cluster.ctl("wait", job).returncode, 3)
        text = cluster.ctl("report", job, "-o", "-").stdout
        equal((Elements(text).names.count("script"), text.count("&lt;script&gt;alert(1)")), (0, 5))  # command, last lines, and the cause, where it is told
        assert "This job has no metrics" in text
        running = cluster.submit("--name", "runs", "--", "sleep", "600")
        wait_for("its start", lambda: cluster.status(running)["state"] == "running")
        assert "as of " in cluster.ctl("report", running, "-o", "-").stdout
        cluster.ctl("cancel", "--now", running)
        for words, code, said in ((("no-such",), 3, "no-such"), ((), 2, "which job?"), (("1", "-o", f"{case.dir}/none/x"), 1, "cannot write"),
                                  (("1", "-o", case.temp), 1, "cannot write")):
            done = cluster.ctl("report", *words)
            equal(done.returncode, code, words)
            assert said in done.stderr, done.stderr


def each_job_has_a_report_of_its_own():
    """Also of one name, and of one array. The files have the mode that the umask leaves them."""
    with Case() as case, Cluster(case) as cluster:
        first, second = (cluster.submit("--name", "r50", "--", "true") for _ in range(2))
        array = cluster.submit("--name", "r50", "--array", "0,3", "--", "true")
        equal(cluster.ctl("wait", first, second, array).returncode, 0)
        folder = os.path.join(case.dir, "reports")
        os.mkdir(folder)
        modes = {}
        for job, mask in ((first, "022"), (second, "027"), (f"{array}_0", "077"), (f"{array}_3", "000")):
            subprocess.run(["sh", "-c", 'umask $1; shift; exec "$@"', "sh", mask, DDPCTL, "--server", cluster.address, "report", "-q", job],
                           env=case.environ(), cwd=folder, check=True)
            modes[f"report-r50-{job}.html"] = 0o666 & ~int(mask, 8)
        equal({name: stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in os.listdir(folder)}, modes)
        done = cluster.ctl("report", first, "--json", "-o", os.fsencode(case.dir) + b"/\xff", raw=True)
        equal((done.returncode, json.loads(done.stdout.decode())["file"]), (0, f"{case.dir}/\ufffd"))


def ddp_worker_writes_what_is_shown():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("-n", "2", "--name", "dummy", "--", os.path.join(os.path.abspath(BUILD), "worker", "ddp-worker"),
                             "--device", "cpu", "--epochs", "2", "-b", "16", "-p", "1", "--checkpoint-dir", os.path.join(case.dir, "ckpt"),
                             small_data.write_data(os.path.join(case.dir, "data"), 640))
        equal(cluster.ctl("wait", job, timeout=4 * PATIENCE_S).returncode, 0)
        lines = [json.loads(line) for line in cluster.ctl("metrics", "--json", job).stdout.splitlines()]
        steps = [line for line in lines if line["kind"] == "step"]
        equal([line["step"] for line in steps], list(range(1, 41)))
        assert all(line["images_per_s"] > 0 and line["lr"] > 0 and line["rank"] == 0 for line in steps), steps[0]
        assert {"checkpoint", "epoch", "validation"} <= {line["kind"] for line in lines}, {line["kind"] for line in lines}
        text = cluster.ctl("report", job, "-o", "-").stdout
        for part in ("<h3>Loss</h3>", "<h3>Learning rate</h3>", "<h3>Accuracy, %</h3>", "<h3>Time of a step, ms</h3>", "2 epochs", "checkpoint at step 40"):
            assert part in text, part


def a_report_that_does_not_fit_leaves_the_old_one():
    """Acts like a full disk: a file may be at most 4 KiB long."""
    with Case() as case, Cluster(case) as cluster:
        equal(cluster.ctl("run", "--name", "short", "--", "true").returncode, 0)
        path = os.path.join(case.dir, "r.html")
        with open(path, "w", encoding="ascii") as file:
            file.write("old")
        done = subprocess.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 8; exec "$@"', "sh", DDPCTL, "--server", cluster.address,
                               "report", "short", "-o", path], env=case.environ(), capture_output=True, text=True, check=False)
        equal(done.returncode, 1, done.stderr)
        assert "cannot write" in done.stderr, done.stderr
        with open(path, encoding="ascii") as file:
            equal(file.read(), "old")
        equal([name for name in os.listdir(case.dir) if name.startswith("r.html")], ["r.html"])


def a_report_replaces_no_pipe():
    with Case() as case, Cluster(case) as cluster:
        equal(cluster.ctl("run", "--name", "piped", "--", "true").returncode, 0)
        path = os.path.join(case.dir, "pipe")
        os.mkfifo(path)
        done = cluster.ctl("report", "piped", "-o", path)
        equal(done.returncode, 1, done.stderr)
        assert f"{path} is no ordinary file" in done.stderr, done.stderr
        assert stat.S_ISFIFO(os.stat(path).st_mode), "the pipe was replaced"


class Terminal:
    """A program on a terminal of its own; `text` is what it wrote there."""

    def __init__(self, argv, columns, environ, **more):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        ends = {"stdin": slave, "stdout": slave, "stderr": slave, **more}
        self.process = subprocess.Popen(argv, env=environ, start_new_session=True, **ends)
        os.close(slave)
        self.text = ""

    def read(self, until, seconds=PATIENCE_S):
        """Reads until `until(text)` is true; None: to the end."""
        watch = Stopwatch()
        while until is None or not until(self.text):
            if not select.select([self.master], [], [], max(0, seconds - watch.passed_s))[0]:
                raise AssertionError(f"not within {seconds} s: {self.text!r}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data and until is None:
                return
            assert data, f"the end: {self.text!r}"
            self.text += data.decode()

    def close(self):
        code = self.process.wait(PATIENCE_S)
        os.close(self.master)
        return code


def lines_on_screen(text):
    """What a terminal shows of `text`, line by line: \\r goes back, ESC [ K wipes the rest."""
    lines = []
    for raw in text.split("\n"):
        shown, at = "", 0
        for part in re.split(r"(\r|\x1b\[K|\x1b\[[0-9;]*m)", raw):
            if part == "\r":
                at = 0
            elif part == "\x1b[K":
                shown = shown[:at]
            elif not part.startswith("\x1b"):
                shown = shown[:at] + part + shown[at + len(part):]
                at += len(part)
        lines.append(shown.rstrip())
    return lines


def run_with_bar(cluster, case, steps, columns=100, options=(), environ=None, **more):
    pipe = os.path.join(case.dir, f"pipe{columns}")
    os.mkfifo(pipe)
    terminal = Terminal([DDPCTL, "--server", cluster.address, "run", *options, "--", sys.executable, "-c", TELLS, pipe], columns,
                        case.environ(**{"TERM": "xterm", **(environ or {})}), **more)
    with open(pipe, "w", encoding="ascii") as file:
        for step in steps:
            file.write(f"{step}\n")
            file.flush()
            yield terminal, step
    terminal.read(None)
    equal(terminal.close(), 0)


def a_terminal_has_a_progress_bar_apart_from_the_logs():
    with Case() as case, Cluster(case) as cluster:
        for terminal, step in run_with_bar(cluster, case, (100, 500, 990)):
            percent = f"] {step / 10:4.0f}%  epoch 1/2  step {step}/1k  loss 0.5000  1k/s  ETA"
            terminal.read(lambda text, percent=percent, step=step: percent in text and f"step {step} is done" in text)
        lines = lines_on_screen(terminal.text)
        equal([line for line in lines if "is done" in line], [f"step {step} is done" for step in (100, 500, 990)], lines)
        equal([line for line in lines if "%" in line], [], "the bar is wiped in the end")
        bars = re.findall(r"\[[=> ]+\]", terminal.text)
        assert bars and all(len(bar) in (22, 32) for bar in bars), bars


def a_line_that_comes_in_pieces_stays_whole():
    with Case() as case, Cluster(case) as cluster:
        for terminal, said in run_with_bar(cluster, case, ("100", "one half ", "and another/")):
            if said == "100":
                terminal.read(lambda text: "10%" in text)
            terminal.read(lambda text, said=said: said.rstrip("/") in text)
        assert "one half and another" in lines_on_screen(terminal.text), terminal.text


def a_bar_is_as_wide_as_its_terminal():
    with Case() as case, Cluster(case) as cluster:
        for terminal, step in run_with_bar(cluster, case, (100,), columns=30, environ={"NO_COLOR": "1"}):
            terminal.read(lambda text: "10%" in text)
        for drawn in re.findall(r"[^\r\n\x1b]*%[^\r\n\x1b]*", terminal.text):
            assert len(drawn) < 30, drawn
        equal(re.findall(r"\x1b\[[^K]*[^K]", terminal.text), [], "no colour")


def no_bar_where_nobody_wants_one():
    with Case() as case, Cluster(case) as cluster:
        for columns, options, environ, more in ((80, ("--no-progress",), {}, {}), (81, (), {"TERM": "dumb"}, {}), (82, ("-q",), {}, {}),
                                                (83, (), {"DDP_NO_PROGRESS": "1"}, {}), (84, (), {}, {"stdout": subprocess.DEVNULL})):
            for terminal, step in run_with_bar(cluster, case, (100,), columns, options, environ, **more):
                wait_for("its progress", lambda step=step: cluster.status("@last")["progress"]["step"] == step)
            assert "%" not in terminal.text and "\x1b[K" not in terminal.text, (columns, terminal.text)


if __name__ == "__main__":
    run_and_exit([metrics_of_all_generations_are_printed, metrics_are_followed_to_the_end_of_the_job,
               a_report_is_one_page, each_job_has_a_report_of_its_own, ddp_worker_writes_what_is_shown, a_report_that_does_not_fit_leaves_the_old_one, a_report_replaces_no_pipe,
               a_terminal_has_a_progress_bar_apart_from_the_logs,
               a_line_that_comes_in_pieces_stays_whole, a_bar_is_as_wide_as_its_terminal, no_bar_where_nobody_wants_one])

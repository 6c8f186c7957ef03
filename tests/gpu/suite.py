"""What tests/gpu/run runs: every check and the benchmark on a machine with a GPU, in one call with a time budget.

    tests/gpu/run BUILD [--out DIR] [--budget SECONDS] [--only PHASE,...] [--skip PHASE,...] [--nccl FILE] [--list]

BUILD is a build folder, or what tests/gpu/pack made of one. FILE is a libnccl.so.2 for the phase nccl-pair, which runs with it or if
--only names it (--budget 600 has room for it). Writes one table, DATE-gpu.md, and with --out all logs beside it. A phase that fails
stops no other; one over its limit is killed with all that it started. Phases that may share the GPU run side by side; the others follow
one after the other. What does not fit into --budget by the phases' estimates is cut before anything runs, the least valuable (the last
of --list) first. Exit: 0 all passed; 1 some failed, or there was no time left for them; 77 nothing could run: no GPU."""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import built
import marking  # finds tests/lib
import report
from processes.waiting import Stopwatch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
SIDE_BY_SIDE = 2  # more take one another's time on the GPU, and run into their limits together
SPARE_S = 10  # for unpacking and reports
TAIL_BYTES = 6000
COUNTS = re.compile(r"\d+ passed, \d+ failed")


@dataclasses.dataclass
class Phase:
    name: str
    words: str
    argv: list
    limit_s: float
    estimate_s: float = 0  # on an H100
    alone: bool = False
    least_s: float = 5  # with less time left it is not begun
    env: dict = dataclasses.field(default_factory=dict)
    asked: bool = False  # runs only if --only names it


def phases_of(build, out, stem, seed, nccl=None):
    def tool(path, *args):
        return [os.path.join(build, path), *args]

    def script(name, *args):
        return [sys.executable, os.path.join(HERE, "phases", name), build, *args]

    def tests(name, *on_the_standin):
        """A C test; the stand-in GPU is slow."""
        return tool(f"tests/gpu/test-gpu-{name}", *(on_the_standin if is_standin else ()))

    is_standin = os.environ.get("DDP_GPU_STANDIN") == "1"
    drawn = {"DDP_SEED": str(seed)}
    one = {"DDP_CUDA_CANDIDATES": "1"}  # numbers do not depend on which plan is the fastest: no time to find it
    other_nccl = {"DDP_NCCL": os.path.abspath(nccl)} if nccl else {}
    cores = {"OMP_NUM_THREADS": "1" if is_standin else "6", "OMP_WAIT_POLICY": "passive"}
    phases = [  # in the order of their value
        Phase("device", "GPU, driver and libraries are there", script("device.py"), 90, 10, env=other_nccl),
        Phase("kernels", "every kernel against its reference in C, to the bit, random inputs, poisoned outputs",
              tool("tests/gpu/test-kernels-standin", "sgd_every_size") if is_standin else tests("kernels"), 100, 5, env=drawn),
        Phase("plans", "every kind of plan against plain C, odd shapes, poisoned outputs", tests("plans"), 150, 40, env=drawn),
        Phase("net", "layers, ConvNet and ResNets at every opt level against the CPU backend; recorded steps",
              tests("net", "odd_layers_at_every_level"), 150, 95, env={**cores, **one}),
        Phase("nccl", "NCCL's communicator of one rank: averages queued, recorded, aborted", tests("nccl"), 60, 10),
        Phase("train", "training at every opt level: the CPU's losses", script("train.py"), 150, 50, env=one),
        Phase("torch", "a ResNet-50 step at O0 to O3 beside PyTorch, both against float64", script("torch_step.py"), 120, 40, env=one),
        Phase("kill", "kill -9 in every place: the GPU is back at its baseline", script("kill.py"), 90, 60, True, env=one),
        Phase("term", "SIGTERM while plans are built and in training: the GPU is back at its baseline", script("kill.py", "term"), 40, 15, True,
              env=one),
        Phase("launcher", "kill -9 under launcherd: the slot is proved free and used again", script("launcher.py"), 90, 30, True, env=one),
        Phase("resume", "resume with --deterministic at every opt level: the same bits", script("resume.py"), 120, 50, env=one),
        Phase("ranks", "2 and 4 ranks on the GPU over Gloo: the CPU's losses; NCCL refused", script("ranks.py"), 150, 60, True, env=one),
        Phase("bench", "speed beside PyTorch", [sys.executable, os.path.join(HERE, "bench.py"), build, "--out",
                                               os.path.join(out, f"{stem}-bench.md"), "--budget", "{seconds}", *bench_words(is_standin)],
              540, 60, True, least_s=20),
        Phase("nccl-pair", "two NCCL ranks on the GPU (NCCL 2.30): Gloo's losses, captured, beside backward; kill -9 of one",
              script("nccl_pair.py"), 100, 55, True, env={**one, **other_nccl}, asked=not nccl),
        Phase("memcheck", "compute-sanitizer memcheck over every kernel", script("sanitize.py", "memcheck"), 240, 120, env=drawn),
        Phase("racecheck", "compute-sanitizer racecheck over kernels with shared memory", script("sanitize.py", "racecheck"), 240, 60,
              env=drawn),
        Phase("ncu", "counters of a batch norm backward and the stem's weight gradient", script("ncu.py"), 90, 60, True),
        Phase("every-plan", "plans of every layer of the models are built (DDP_TEST_PLANS=all)",
              tool("tests/unit/worker/backend/cuda/plans/test-cuda-plans"), 200, 100, env={"DDP_TEST_PLANS": "all"}),
    ]
    # Beside a real driver engines are compiled too, for every net: minutes, for what `net` and `train` show.
    return [phase for phase in phases if phase.name != "every-plan" or is_standin]


def bench_words(is_standin):
    """A small net on the stand-in GPU, and its own PyTorch."""
    return ["--net", "convnet", "2", "--python", os.path.join(HERE, "standin", "python-with-torch")] if is_standin else []


def needed_s(phases):
    beside = [phase.estimate_s for phase in phases if not phase.alone]
    return max([sum(beside) / SIDE_BY_SIDE, *beside]) + sum(phase.estimate_s for phase in phases if phase.alone) + SPARE_S


def cut(phases, budget_s):
    """(those that fit by their estimates, those that do not): the last are the least valuable."""
    kept, left_out = [], []
    for phase in phases:
        (kept if needed_s([*kept, phase]) <= budget_s else left_out).append(phase)
    return kept, left_out


def phases_from(path):
    with open(path, encoding="utf-8") as file:
        return [Phase(**entry) for entry in json.load(file)]


class Budget:
    def __init__(self, seconds):
        self.seconds, self.watch = seconds, Stopwatch()

    def left(self):
        return self.seconds - self.watch.passed_s


RUNNING = set()  # marks of phases
ENDING = threading.Event()


def on_term(*_):
    """SIGTERM, as at the end of a lent machine's time: ends the running phases; results so far are written already."""
    ENDING.set()
    for mark in list(RUNNING):
        marking.end(mark)
    sys.exit(128 + signal.SIGTERM)


def tail_of(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
        return file.read().decode(errors="replace")


def lines_of(path, word):
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line[len(word):].strip() for line in file if line.startswith(word)]


def figures_of(log):
    """Its last line of counts, "5 passed, 0 failed, 1 skipped", and what it calls its figures."""
    counts = [line for line in tail_of(log).splitlines() if COUNTS.match(line)]
    return "; ".join([*counts[-1:], *lines_of(log, "figure:")])


def judge(code, limit_s, was_cut, log):
    """(result, figure)."""
    if code is None:
        return (report.NO_TIME, f"ended after {limit_s:.0f} s") if was_cut else (report.FAILED, f"over its limit of {limit_s:.0f} s")
    if code == 77:
        reasons = [line for line in tail_of(log).splitlines() if "skip" in line]
        return report.CANNOT, (reasons or ["skipped"])[-1].partition("skip")[2].lstrip("ped: ")[:150]
    figures = figures_of(log)
    if code == 0:
        return report.PASSED, figures
    return report.FAILED, f"exit code {code}" + (f"; {figures}" if figures else "")


def run_phase(phase, budget, logs, environ):
    log = os.path.join(logs, f"{phase.name}.log")
    watch = Stopwatch()
    limit_s = min(phase.limit_s, budget.left())
    if ENDING.is_set() or limit_s < min(phase.least_s, phase.limit_s):
        return report.Row(phase.name, phase.words, report.NO_TIME, 0.0, "", "")
    argv = [word.replace("{seconds}", str(int(limit_s - 3))) for word in phase.argv]
    print(f"-- {phase.name}: {phase.words}", flush=True)
    marked, mark = marking.marked({**environ, **phase.env})
    with open(log, "wb") as file:
        RUNNING.add(mark)
        try:
            process = subprocess.Popen(argv, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT, env=marked,
                                       start_new_session=True)
        except OSError as error:
            return report.Row(phase.name, phase.words, report.FAILED, 0.0, f"{argv[0]}: {error.strerror}", str(error))
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stayed = marking.end(mark)  # and whatever it left
            RUNNING.discard(mark)
    result, figure = judge(code, limit_s, limit_s < phase.limit_s, log)
    figure += marking.words_of(stayed)
    row = report.Row(phase.name, phase.words, result, watch.passed_s, figure, tail_of(log))
    print(f"   {phase.name}: {result}, {row.seconds:.1f} s {figure}", flush=True)
    return row


def not_here(phase, why):
    return report.Row(phase.name, phase.words, report.CANNOT, 0.0, why, "")


def run_all(phases, budget, logs, environ, on_row):
    """Calls on_row(rows) after each phase."""
    phases, left_out = cut(phases, budget.left())
    rows = {phase.name: report.Row(phase.name, phase.words, report.NO_TIME, 0.0, "", "") for phase in phases}
    for phase in left_out:
        rows[phase.name] = report.Row(phase.name, phase.words, report.NO_TIME, 0.0, f"cut: takes about {phase.estimate_s:.0f} s", "")
        print(f"-- {phase.name}: cut, takes about {phase.estimate_s:.0f} s", flush=True)
    lock = threading.Lock()

    def keep(phase, row=None):
        row = row or run_phase(phase, budget, logs, environ)
        with lock:
            rows[phase.name] = row
            on_row(list(rows.values()))

    rest = list(phases)
    if rest and rest[0].name == "device":  # without a GPU nothing else is worth a try
        keep(rest.pop(0))
        if rows["device"].result == report.CANNOT:
            for phase in rest:
                keep(phase, not_here(phase, rows["device"].figure))
            return list(rows.values())
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for job in [pool.submit(keep, phase) for phase in rest if not phase.alone]:
            job.result()
    for phase in sorted((phase for phase in rest if phase.alone), key=takes_the_rest):
        keep(phase)
    return list(rows.values())


def takes_the_rest(phase):
    """Of the time: it comes last."""
    return any("{seconds}" in word for word in phase.argv)


def read_options():
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", nargs="?", default=os.path.join(ROOT, "build"))
    parser.add_argument("--out", help="where results and logs go (docs/results, without logs)")
    parser.add_argument("--budget", type=float, default=540, metavar="SECONDS", help="for all of it (540)")
    parser.add_argument("--only", default="", metavar="PHASE,...")
    parser.add_argument("--skip", default="", metavar="PHASE,...")
    parser.add_argument("--nccl", metavar="FILE", help="another libnccl.so.2, for nccl-pair")
    parser.add_argument("--list", action="store_true", help="name the phases and end")
    parser.add_argument("--seed", type=int, default=1, help="of random inputs (1)")
    parser.add_argument("--phases", metavar="FILE", help="other phases, as JSON: for the tests of this program")
    return parser, parser.parse_args()


def choose(parser, phases, options):
    names = [phase.name for phase in phases]
    only, skip = ([name for name in text.split(",") if name] for text in (options.only, options.skip))
    for name in only + skip:
        if name not in names:
            parser.error(f"no phase {name}: there are {', '.join(names)}")
    return [phase for phase in phases if (phase.name in only if only else not phase.asked) and phase.name not in skip]


def keep_logs(phases, logs, path):
    with open(path, "w", encoding="utf-8") as out:
        for phase in phases:
            try:
                with open(os.path.join(logs, f"{phase.name}.log"), encoding="utf-8", errors="replace") as log:
                    text = log.read()
            except OSError:
                continue
            cut = len(text) - 500000
            out.write(f"==== {phase.name}\n" + (f"[{cut} characters cut]\n" if cut > 0 else "") + text[max(0, cut):] + "\n")


def run_here(parser, options, scratch):
    budget = Budget(options.budget)
    build = built.unpack(os.path.abspath(options.build), scratch)
    out = os.path.abspath(options.out) if options.out else os.path.join(ROOT, "docs", "results")
    os.makedirs(out, exist_ok=True)
    stem = report.new_stem(out)
    phases = choose(parser, phases_from(options.phases) if options.phases else phases_of(build, out, stem, options.seed, options.nccl), options)
    path = os.path.join(out, f"{stem}.md")
    device_log = os.path.join(scratch, "device.log")

    def write(rows):
        """After every phase: whoever ends us keeps what there is."""
        facts = [("commit", commit), ("seed of random inputs", str(options.seed))]
        if os.path.exists(device_log):
            facts += [tuple(line.split(": ", 1)) for line in lines_of(device_log, "fact:") if ": " in line]
        text = report.text_of(rows, facts, options.budget)
        if report.exit_code(rows) != 77 or options.out:  # nothing measured is no result
            os.makedirs(out, exist_ok=True)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path + ".new", path)
            if options.out:
                keep_logs(phases, scratch, os.path.join(out, f"{stem}-logs.txt"))
        return text

    commit = report.commit_of(build)
    rows = run_all(phases, budget, scratch, built.environ_of(build, scratch, sys.path), write)
    print(write(rows))
    code = report.exit_code(rows)
    if code == 77 and not options.out and os.path.exists(path):
        os.remove(path)
    return code


def main():
    parser, options = read_options()
    if options.list:
        phases = phases_from(options.phases) if options.phases else phases_of("", "", "", 0)
        print("\n".join(f"{phase.name:12}{phase.words}" for phase in phases))
        return 0
    signal.signal(signal.SIGTERM, on_term)
    scratch = tempfile.mkdtemp(prefix="ddp-gpu-suite-")
    try:
        return run_here(parser, options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

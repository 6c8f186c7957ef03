"""kill -9 of a worker wherever it may be, then the GPU back at its baseline within 5 s. usage: kill.py BUILD [term]

term: SIGTERM instead, while plans are built and in training, with its orderly end. That half is short, and a phase of its own."""
import glob
import os
import signal
import subprocess
import sys
import threading

import gpu
import common

SMALL = ["--opt-level", "O2", "-a", "convnet", "-b", "8" if common.IS_STANDIN else "100", "--epochs", "100000"]  # until it is ended
MODEL = ["--opt-level", "O2", *(["-a", "convnet", "-b", "8"] if common.IS_STANDIN else ["-a", "resnet50", "-b", "64"])]
TRIES = 5
TERM_WITHIN_S = 12  # ddp-worker gives itself 8
PLANS_DONE = "Selected optimization level"  # the first line after they are built


class Victim:
    """A worker of which the lines are watched."""

    def __init__(self, where, args, name, cache, model=None):
        self.folder = os.path.join(where, name)
        os.makedirs(self.folder)
        self.lines = []
        self.came = threading.Condition()
        self.process = subprocess.Popen(
            [common.WORKER, "--device", "cuda", "--seed", "3", "-p", "1", *(model or MODEL), "--checkpoint-dir",
             os.path.join(self.folder, "ckpt"), *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            env=common.environ(XDG_CACHE_HOME=cache or os.path.join(self.folder, "cache")))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.came:
                self.lines.append(line)
                self.came.notify_all()
        with self.came:
            self.lines.append("")  # the end
            self.came.notify_all()

    def has(self, mark):
        return any(mark in line for line in self.lines)

    def wait_for(self, mark, limit_s=90):
        """False: it ended before that."""
        with self.came:
            found = self.came.wait_for(lambda: self.has(mark) or "" in self.lines, limit_s)
            if not found:
                raise AssertionError(f"no line {mark!r} within {limit_s} s: {self.tail()}")
            return self.has(mark)

    def tail(self):
        return "".join(self.lines)[-800:]

    def end(self, signal_number, limit_s=60):
        """Its exit code: negative by a signal."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"signal {signal_number} did not end it within {limit_s} s: {self.tail()}") from None
        self.reader.join(10)
        self.process.stdout.close()
        return code


# Each waits until the worker is at its place, and returns how that was seen; "" where the worker had passed it.
def at_start(victim):
    return "" if victim.has("training on") else "before its first line"


def in_plans(victim):
    victim.wait_for("training on")
    if not common.IS_STANDIN:
        gpu.let_pass(0.5)
    return "" if victim.has(PLANS_DONE) else "on the GPU, the net is not made yet"


def in_first_step(victim):
    victim.wait_for("loss_scale")
    return "" if victim.has("Step [1/") else "the net is made, no step is done"


def in_training(victim):
    victim.wait_for("Step [4/")
    return "between steps 4 and the last"


def in_checkpoint(victim):
    whole, half = (os.path.join(victim.folder, "ckpt", ending) for ending in ("*.json", "*.tmp"))
    while victim.process.poll() is None:
        if glob.glob(whole) and glob.glob(half):
            return "a checkpoint is half written"
    return ""


def in_teardown(victim):
    victim.wait_for("Val: ")
    return "" if victim.process.poll() is not None else "after the last line"


PLACES = (
    ("before the context", at_start, []),
    ("while plans are built", in_plans, []),
    ("in the first step", in_first_step, []),
    ("in training", in_training, []),
    ("while a checkpoint is written", in_checkpoint, ["--checkpoint-every", "1"]),
    ("in teardown", in_teardown, ["--max-steps", "3"]),
)


def cache_for(where, wait):
    """One that is warm; where plans have to be built, none."""
    return None if wait is in_plans else os.path.join(where, "cache")


def kill_in(checks, where, data, baseline, place, wait, args):
    """A place is short: some tries until the worker died in it."""
    for attempt in range(TRIES):
        victim = Victim(where, [*args, data], f"{place} {attempt}".replace(" ", "-"), cache_for(where, wait))
        try:
            evidence = wait(victim)
        finally:
            code = victim.end(signal.SIGKILL)
        took = baseline.seconds_until_back()
        if not checks.that(took is not None, f"kill -9 {place}: the GPU is as before within {gpu.FREE_WITHIN_S:g} s"):
            print(f"{gpu.used_mib()} MiB, before {baseline.mib}; processes {baseline.strangers()}")
            return None
        if evidence and code == -signal.SIGKILL:
            checks.that(True, f"kill -9 {place} ({evidence}): free after {took:.2f} s")
            return took
    checks.that(False, f"kill -9 {place}: in {TRIES} tries it never was there; exit code {code}: {victim.tail()}")
    return took


def resume_after(checks, where, data):
    """What a kill left of the checkpoints is whole: training goes on."""
    folder = os.path.join(where, "while-a-checkpoint-is-written-0", "ckpt")
    done = max(int(os.path.basename(path)[5:13]) for path in glob.glob(os.path.join(folder, "step-*.json")))
    said = common.train("cuda", [*MODEL, "--checkpoint-dir", folder, "--resume", "auto", "--max-steps", str(done + 1), data])
    checks.that(f"Step [{done + 1}/" in said, f"training goes on after step {done}")


def terminate(checks, where, data, baseline, place, wait, code, model):
    """As kill_in, but what the worker says to it is its exit code."""
    for attempt in range(TRIES):
        victim = Victim(where, [data], f"term {place} {attempt}".replace(" ", "-"), None, model)
        evidence, watch = "", gpu.Stopwatch()
        try:
            evidence = wait(victim)
            watch = gpu.Stopwatch()
        finally:
            got = victim.end(signal.SIGTERM, TERM_WITHIN_S)
        took = watch.passed_s
        if evidence and not (wait is in_plans and victim.has(PLANS_DONE)):
            checks.that(got == code, f"SIGTERM {place} ({evidence}): exit code {got} after {took:.2f} s")
            checks.that(baseline.seconds_until_back() is not None, f"SIGTERM {place}: the GPU is as before")
            return took if got == code else None
    checks.that(False, f"SIGTERM {place}: in {TRIES} tries it never was there: {victim.tail()}")
    return None


# Before its handler is there SIGTERM ends a worker as it ends any program. The ConvNet would have its plans too soon.
TERM_PLACES = (("while plans are built", in_plans, -signal.SIGTERM, MODEL), ("in training", in_training, 128 + signal.SIGTERM, SMALL))


def kill_everywhere(checks, where, data):
    common.train("cuda", [*MODEL, "--max-steps", "1", data], XDG_CACHE_HOME=os.path.join(where, "cache"))
    baseline = gpu.Baseline()
    times = [checks.attempt(f"kill -9 {place}", kill_in, checks, where, data, baseline, place, wait, args) for place, wait, args in PLACES]
    checks.attempt("resume", resume_after, checks, where, data)
    known = [took for took in times if took is not None]
    common.figure(f"{len(known)} of {len(PLACES)} places, free after {max(known, default=float('nan')):.2f} s at most")


def terminate_everywhere(checks, where, data):
    baseline = gpu.Baseline()
    times = [checks.attempt(f"SIGTERM {place[0]}", terminate, checks, where, data, baseline, *place) for place in TERM_PLACES]
    known = [took for took in times if took is not None]
    common.figure(f"SIGTERM in {len(known)} of {len(TERM_PLACES)} places, ended after {max(known, default=float('nan')):.2f} s at most")


def main():
    checks = common.Checks()
    with common.folder() as where:
        data = common.write_data(os.path.join(where, "data"), 256 if common.IS_STANDIN else 2000)
        (terminate_everywhere if sys.argv[2:] == ["term"] else kill_everywhere)(checks, where, data)
    checks.end()


if __name__ == "__main__":
    main()

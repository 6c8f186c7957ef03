"""Three calls for a rented card that is there for fifteen minutes in all: how fast is it, is it right, two NCCL ranks on it.

    tests/gpu/calls BUILD --out DIR [--next | --call N] [--budget SECONDS] [--nccl FILE] [--print]

BUILD is a build folder, or what tests/gpu/pack made of one. Each call takes at most --budget (360 s, the third 110 s): what does not
fit is cut, the least valuable first, and named in the results. The third needs NCCL 2.30 or newer: FILE, a libnccl.so.2 that came along,
or the installed one; with an older one it says so and has not failed. Every row has a limit of its own and is in DIR as soon as it is
there. Without --next or --call the calls run that DIR/calls.json does not name as done, so the same line goes on after an interruption,
also on another machine that got DIR; --next runs the first of them alone, --call N runs call N again. --print only prints the calls.
Exit: 0 everything passed; 1 something failed or was cut; 77 no GPU."""
import argparse
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from processes.waiting import Stopwatch  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = os.path.join(HERE, "run")
BUDGET_S = 360
PAIR_BUDGET_S = 110
SPARE_S = 30  # of it, for unpacking and reports
NO_GPU = 77


@dataclasses.dataclass
class Call:
    phases: tuple
    words: str
    budget_s: float = BUDGET_S

    def seconds(self, options):
        return options.budget or self.budget_s

    def argv(self, options):
        nccl = ["--nccl", options.nccl] if options.nccl else []
        return [RUN, options.build, "--out", options.out, "--budget", str(max(1, round(self.seconds(options) - SPARE_S))), *nccl, "--only",
                ",".join(self.phases)]


CALLS = (
    Call(("device", "bench"), "how fast: start, step, bf16, PyTorch beside it, batch norms, ConvNet"),
    Call(("device", "kernels", "plans", "net", "nccl", "train", "torch", "kill", "term", "launcher", "resume", "ranks"),
         "is it right: kernels, plans, nets, training, resume, ranks; kill -9 and SIGTERM"),
    Call(("device", "nccl-pair"), "two NCCL ranks on the GPU, where NCCL is 2.30 or newer", PAIR_BUDGET_S),
)


class Done:
    """What ran to its end, kept in DIR."""

    def __init__(self, out):
        self.path = os.path.join(out, "calls.json")
        try:
            with open(self.path, encoding="utf-8") as file:
                self.calls = json.load(file)["calls"]
        except FileNotFoundError:
            self.calls = {}
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{self.path} is damaged ({error}): remove it to begin anew")

    def add(self, number, code, seconds):
        self.calls[str(number)] = {"exit_code": code, "seconds": round(seconds, 1)}
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump({"calls": self.calls}, file, indent=1)
        os.replace(self.path + ".new", self.path)

    def has(self, number):
        return str(number) in self.calls


def run_call(number, call, options, done):
    argv = call.argv(options)
    print(f"== call {number} of {len(CALLS)}, at most {call.seconds(options):.0f} s: {call.words}\n   {shlex.join(argv)}", flush=True)
    watch = Stopwatch()
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())  # the suite ends its phases and keeps the results
    code = child.wait()
    if code in (0, 1):  # it ran to its end
        done.add(number, code, watch.passed_s)
    return code


def wanted(options, done):
    if options.call:
        return [options.call]
    rest = [number for number in range(1, len(CALLS) + 1) if not done.has(number)]
    return rest[:1] if options.next else rest


def run_all(options):
    os.makedirs(options.out, exist_ok=True)
    done = Done(options.out)
    numbers = wanted(options, done)
    for number in numbers:
        code = run_call(number, CALLS[number - 1], options, done)
        if code not in (0, 1):
            print(f"call {number} ended with {code}: the same line goes on from here")
            return code if code > 0 else 128 - code
    left = [number for number in range(1, len(CALLS) + 1) if not done.has(number)]
    print(f"calls left: {', '.join(map(str, left)) or 'none'}; results in {options.out}")
    return max((done.calls[str(number)]["exit_code"] for number in numbers), default=0)


def main():
    parser = argparse.ArgumentParser(prog="tests/gpu/calls", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--out", default="results", metavar="DIR")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help=f"of each call ({BUDGET_S}, the third {PAIR_BUDGET_S})")
    parser.add_argument("--nccl", metavar="FILE", help="another libnccl.so.2, for two ranks on the GPU")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--next", action="store_true")
    which.add_argument("--call", type=int, choices=range(1, len(CALLS) + 1), metavar="N")
    parser.add_argument("--print", action="store_true", dest="prints")
    options = parser.parse_args()
    options.build, options.out = os.path.abspath(options.build), os.path.abspath(options.out)
    if options.nccl:
        options.nccl = os.path.abspath(options.nccl)
        if not os.path.isfile(options.nccl):
            parser.error(f"--nccl {options.nccl}: no such file")
    if options.prints:
        for number, call in enumerate(CALLS, 1):
            print(f"# call {number}, at most {call.seconds(options):.0f} s: {call.words}\n{shlex.join(call.argv(options))}")
        return 0
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())

"""The first hour on a machine with a GPU: prints and runs four calls of tests/gpu/run, each under ten minutes.

    tests/gpu/first-hour BUILD --out DIR [--next | --call N] [--print]

BUILD is a build folder, or what tests/gpu/pack made of one. Without --next or --call all calls run that DIR/first-hour.json does not
name as done, so the same line goes on after an interruption, also on another machine that got DIR; --next runs the first of
them alone, --call N runs call N again. --print only prints the calls. Exit: 0 everything passed; 1 something failed; 77 no GPU."""
import argparse
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = os.path.join(HERE, "run")
SPARE_S = 30  # for unpacking and reports
NO_GPU = 77


@dataclasses.dataclass
class Call:
    minutes: int
    phases: tuple
    words: str

    def argv(self, build, out):
        return [RUN, build, "--out", out, "--budget", str(60 * self.minutes - SPARE_S), "--only", ",".join(self.phases)]


CALLS = (
    Call(5, ("device", "plans", "kernels", "nccl"), "is it right: kernels and plans against plain C, NCCL's communicator"),
    Call(10, ("device", "bench"), "how fast: ResNet-50 at 256 beside PyTorch, breakdown, ConvNet, start, variants"),
    Call(8, ("device", "net", "torch", "train"), "whole nets beside the CPU and PyTorch"),
    Call(5, ("device", "resume", "kill", "launcher", "ncu"), "resume, kill -9, launcherd; counters of two kernels"),
)


class Done:
    """What ran to its end, kept in DIR."""

    def __init__(self, out):
        self.path = os.path.join(out, "first-hour.json")
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


def run_call(number, call, build, out, done):
    argv = call.argv(build, out)
    print(f"== call {number} of {len(CALLS)}, at most {call.minutes} minutes: {call.words}\n   {shlex.join(argv)}", flush=True)
    begun = time.monotonic()
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())  # the suite ends its phases and keeps the results
    code = child.wait()
    if code in (0, 1):  # it ran to its end
        done.add(number, code, time.monotonic() - begun)
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
        code = run_call(number, CALLS[number - 1], options.build, options.out, done)
        if code not in (0, 1):
            print(f"call {number} ended with {code}: the same line goes on from here")
            return code if code > 0 else 128 - code
    left = [number for number in range(1, len(CALLS) + 1) if not done.has(number)]
    print(f"calls left: {', '.join(map(str, left)) or 'none'}; results in {options.out}")
    return max((done.calls[str(number)]["exit_code"] for number in numbers), default=0)


def main():
    parser = argparse.ArgumentParser(prog="tests/gpu/first-hour", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--out", default="results", metavar="DIR")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--next", action="store_true")
    which.add_argument("--call", type=int, choices=range(1, len(CALLS) + 1), metavar="N")
    parser.add_argument("--print", action="store_true", dest="prints")
    options = parser.parse_args()
    options.build, options.out = os.path.abspath(options.build), os.path.abspath(options.out)
    if options.prints:
        for number, call in enumerate(CALLS, 1):
            print(f"# call {number}, at most {call.minutes} minutes: {call.words}\n{shlex.join(call.argv(options.build, options.out))}")
        return 0
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())

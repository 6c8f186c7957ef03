#!/usr/bin/env python3
"""Each system call of one job fails: EDGE_LIBRARY=LIBRARY sweep_test.py BUILD [--all] [--exit N] [--list] [WORD...]

A job runs once while its calls are noted, by program, kind and path; then again and again, each time with one of them failing in one way. Whatever fails, the
job ends, once and in the right state; where more happens than without a fault, somebody says the error; a daemon that ends says why, and goes on when it is started
again; no two workers run at a time, no output is missing without a word, and nothing is left (sweep_lib.py, judge).

The test takes one case of each program, kind and error, half of them with a job that fails. With --all it takes each path, its first calls and all calls from the first
on, for a job that ends well and one that fails: about 2000 cases, 15 minutes. WORDs choose cases that have all of them in their names; --list prints them."""
import argparse
import os
import signal
import sys
import zlib

sys.dont_write_bytecode = True
from sweep_lib import Stopwatch, LASTING, NO_FILE, Case, Sweep, errors_of

NTH_MAX = 2
# Faults that were found once, besides the sample: (program, kind, end of the path, error, lasting, exit code of the job).
FOUND = [("launcherd --server", "rename", "*/node0/seen", "EIO", False, 0),  # left seen.new
         ("launcherd --server", "read", "*/node0/seen", "short", False, 0),  # put a good record aside as damaged
         ("launcherd --server", "open", "*/g1-rank0.log", "EIO", True, 0),  # "has no log"
         ("launcherd --server", "read", "*/g1-rank0.log", "EIO", True, 3),  # ddpctl asked for ever, or said nothing
         ("launcherd --server", "unlink", "*/parts/*.shim", "EIO", True, 0),  # never removed
         ("launcherd --shim", "open", "*/g1-rank0.index", "hang", False, 0),  # an empty log, and nobody said why
         ("launcherd --shim", "read", "*/start.msg", "EIO", True, 0)]  # no word of the error


def all_cases(calls, nth_max):
    for (program, kind, path), count in sorted(calls.items()):
        for error in errors_of(kind, path):
            for nth in range(1, min(count, nth_max) + 1):
                yield Case(program, kind, path, error, nth, False)
            if error in LASTING:
                yield Case(program, kind, path, error, 1, True)


def sample(cases):
    """One of each program, kind and error, for files and sockets; the same in each run; and those of FOUND. First calls, which are always reached."""
    groups = {}
    for case in cases:
        if case.nth == 1:
            groups.setdefault((case.program, case.kind, case.error, str(case.path.startswith(NO_FILE))), []).append(case)
    chosen = []
    for key, group in sorted(groups.items()):
        hashed = zlib.crc32(" ".join(key).encode())
        chosen.append((group[hashed % len(group)], 0 if hashed & 0x10000 else 3))
    for program, kind, path, error, is_lasting, exit_code in FOUND:
        found = [case for case in cases if case[:2] == (program, kind) and case.error == error and case.is_lasting == is_lasting and
                 case.path.endswith(path.split("*")[-1]) and case.nth == 1]
        assert found, f"the job has no {kind} of {path} by {program}"
        chosen.append((found[0], exit_code))
    return chosen


def try_all(build, chosen):
    """Runs the cases; after one that went wrong with a new cluster. Returns how many went wrong."""
    failed, rest = 0, list(chosen)
    while rest:
        is_fine = True
        try:
            with Sweep(build) as sweep:
                while rest and is_fine:
                    case, exit_code = rest.pop(0)
                    watch = Stopwatch()
                    outcome = sweep.try_case(case, exit_code)
                    is_fine = not outcome.wrong
                    name = f"{case}, exit {exit_code}" + ("" if outcome.reached else ", not reached")
                    print(f"{'ok' if is_fine else 'not ok'} {name} ({watch.passed_s:.2f} s)", *outcome.wrong, sep="\n    ", flush=True)
                    if not is_fine:
                        print(outcome.all_text(), flush=True)
                        raise InterruptedError
        except InterruptedError:
            failed += 1
        except AssertionError as error:
            failed += 1
            print(f"not ok: {error}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--nth", type=int, default=NTH_MAX, help="how many calls of each path")
    parser.add_argument("--exit", type=int, choices=(0, 3), help="the job's exit code")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("words", nargs="*")
    args = parser.parse_intermixed_args()
    build = os.path.abspath(args.build)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the daemons end, too
    os.environ["PATH"] = "/usr/bin:/bin"  # where a worker's program is looked for
    with Sweep(build) as sweep:
        calls = sweep.find_calls(0)
    cases = list(all_cases(calls, args.nth))
    if args.all or args.words:
        chosen = [(case, code) for code in ((0, 3) if args.exit is None else (args.exit,)) for case in cases if all(word in str(case) for word in args.words)]
    else:
        chosen = sample(cases)
    print(f"{len(chosen)} of {len(cases)} cases, of {sum(calls.values())} calls", flush=True)
    if args.list:
        print(*[f"{case}, exit {code}" for case, code in chosen], sep="\n")
        return 0
    watch = Stopwatch()
    failed = try_all(build, chosen)
    print(f"{failed} failed of {len(chosen)}, {watch.passed_s:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

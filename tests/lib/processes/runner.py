"""Runs the tests of a file: functions, whose names begin with test_ and are claims."""
import concurrent.futures
import sys
import traceback

from processes.waiting import Stopwatch


class Skip(Exception):
    """Raised by a test that cannot run here, with the reason."""


def equal(actual, expected, about=""):
    assert actual == expected, f"{actual!r} is not {expected!r} {about}"


def run_test(test, *given):
    """Prints a line. Whether the test has failed."""
    name, watch = test.__name__.replace("test_", "", 1), Stopwatch()
    try:
        word = test(*given)
    except Skip as why:
        print(f"skipped {name}: {why}", flush=True)
    except Exception:  # any exception is this test's failure
        print(f"not ok {name}\n{traceback.format_exc()}", flush=True)
        return True
    else:
        print(f"{word or 'ok'} {name} ({watch.passed_s:.2f} s)", flush=True)
    return False


def run_tests(tests, names=(), side_by_side=1, given=()):
    """Runs those with these names, without any names all; gives each of them `given`. `side_by_side`: how many at a time, for tests that mostly
    wait. Returns the exit code."""
    chosen = [test for test in tests if not names or test.__name__.replace("test_", "", 1) in names]
    assert chosen, f"no test has such a name: {names}"
    if side_by_side == 1:
        failed = sum(run_test(test, *given) for test in chosen)
    else:
        with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
            failed = sum(pool.map(lambda test: run_test(test, *given), chosen))
    print(f"{failed} failed", flush=True)
    return 1 if failed else 0


def tests_of(module):
    """The tests of a module's globals(), in their order."""
    return [value for name, value in list(module.items()) if name.startswith("test_")]


def run_and_exit(tests, side_by_side=1):
    sys.exit(run_tests(tests, side_by_side=side_by_side))

"""Where PyTorch is, for tests that need it: $DDP_PYTORCH (a virtual environment), else the one that setup makes."""
import os
import sys


def cache():
    """Where environments of the tests are."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddp")


def folder():
    return os.environ.get("DDP_PYTORCH") or os.path.join(cache(), "pytorch")


def python_or_skip():
    """The interpreter of that environment; without one the program ends as skipped."""
    python = os.path.join(folder(), "bin", "python")
    if not os.access(python, os.X_OK):
        print(f"skip: no PyTorch in {folder()} (./quickstart test --with-pytorch makes it)")
        sys.exit(77)
    return python


def rerun_or_skip():
    """Goes on in the interpreter that has PyTorch: the first call of a test that imports torch itself."""
    python = python_or_skip()
    if os.path.realpath(sys.prefix) != os.path.realpath(folder()):
        os.execv(python, [python, *sys.argv])

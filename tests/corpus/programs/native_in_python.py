"""A C library that Python calls dies: native_in_python.py abort|segv|fault."""
import ctypes
import faulthandler
import sys

if sys.argv[1] == "fault":
    faulthandler.enable()


def launch(how):
    if how == "abort":
        ctypes.CDLL(None).abort()
    ctypes.memset(16, 0, 64)


print("warming up", flush=True)
launch(sys.argv[1])

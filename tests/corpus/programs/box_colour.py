"""A hook that colours tracebacks."""
import sys
import traceback

RED, DIM, END = "\033[1;31m", "\033[2m", "\033[0m"


def hook(kind, error, where):
    for line in traceback.format_exception(kind, error, where):
        style = DIM if line.startswith("  ") else RED
        print("".join(f"{style}{part}{END}\n" for part in line.rstrip("\n").split("\n")), end="", file=sys.stderr)


sys.excepthook = hook
print("\033[32m✔\033[0m data set found")
raise PermissionError(13, "Permission denied", "/data/val.parquet")

"""The traceback goes through the console of rich, with the log before it and its rules around it."""
import sys

from rich.console import Console

console = Console(stderr=True, force_terminal=True, width=90)


def forward(tokens, limit):
    if len(tokens) > limit:
        raise ValueError(f"sequence of {len(tokens)} tokens is longer than the limit of {limit}")


console.rule("[bold]epoch 0")
console.log("loading data")
try:
    forward([0] * 5000, 4096)
except ValueError:
    console.print_exception()
    sys.exit(1)

"""Checks the steps that ddp-worker has printed: none twice, none missing."""

import re


def find(text):
    return [(int(epoch), int(step)) for epoch, step in re.findall(r"^Epoch \[(\d+)/\d+\], Step \[(\d+)/\d+\], Loss: ", text, re.M)]


def check(printed):
    """Returns the number of steps."""
    assert printed[0] == (1, 1), printed[:3]
    for before, after in zip(printed, printed[1:]):
        assert after in ((before[0], before[1] + 1), (before[0] + 1, 1)), f"{after} follows {before}"
    return len(printed)

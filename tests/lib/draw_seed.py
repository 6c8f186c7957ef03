#!/usr/bin/env python3
"""draw_seed.py [NAME=VALUE...] PROGRAM [ARG...]: runs the program with a seed from the system's random numbers in place of each word
SEED, and prints that command first, which `meson_tests.py summary` lists. For the suites `all` and `soak` alone."""
import os
import random
import re
import shlex
import sys


def main():
    seed = str(random.SystemRandom().randrange(1, 1 << 31))
    words = [re.sub(r"\bSEED\b", seed, word) for word in sys.argv[1:]]
    print("drawn:", shlex.join(words), flush=True)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    os.execv(words[0], words)


if __name__ == "__main__":
    main()

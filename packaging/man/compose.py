#!/usr/bin/env python3
"""A manual page: PAGE.in, where the line @OPTIONS@ becomes what `PROGRAM --help=man` prints. Use: compose.py PAGE.in PROGRAM VERSION"""
import subprocess
import sys


def main():
    page, program, version = sys.argv[1:]
    options = subprocess.run([program, "--help=man"], check=True, capture_output=True, text=True).stdout
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert "\n@OPTIONS@\n" in text, f"{page} has no line @OPTIONS@"
    sys.stdout.write(text.replace("@OPTIONS@\n", options).replace("@VERSION@", version))


main()

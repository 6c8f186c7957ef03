#!/usr/bin/env python3
"""Runs a program of a test, and all that it starts, on the gated clock of tests/lib/edge.py: EDGE_LIBRARY=LIBRARY gated.py PROGRAM [ARGUMENT...]"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
from edge import Edge

with Edge() as edge:
    edge.clock()
    sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, **edge.env}, check=False).returncode)

"""Starts another program and insists that it works."""
import subprocess
import sys

subprocess.run([sys.executable, "py_chain_from.py"], check=True)

"""Keeps what the other program says, and does not show it."""
import subprocess

subprocess.run(["tar", "xf", "/data/imagenet.tar", "-C", "/tmp"], check=True, capture_output=True, text=True)

#!/usr/bin/env python3
"""Random small networks against PyTorch, computed now: layers_live.py TEST_LAYERS. DDP_SEED repeats a run."""
import os
import subprocess
import sys
import tempfile

import pytorch

pytorch.rerun_or_skip()

seed = int(os.environ.get("DDP_SEED") or 1)  # fixed in the suite: tolerances hold for most nets, not for each
print(f"seed {seed}: DDP_SEED={seed} repeats this run", flush=True)
with tempfile.TemporaryDirectory(prefix="ddp-layers-") as folder:
    cases = os.path.join(folder, "cases.json")
    generator = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.py")
    subprocess.run([sys.executable, generator, cases, "--random", str(seed)], check=True)
    sys.exit(subprocess.run([sys.argv[1]], env={**os.environ, "DDP_LAYER_CASES": cases}, check=False).returncode)

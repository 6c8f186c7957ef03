"""What the launchers inside of a launcher start: fails in one of its ranks."""
import os
import sys

rank = int(os.environ.get("RANK", 0))
print(f"worker {rank} started", flush=True)
if rank == int(os.environ.get("DEAD_RANK", 1)):
    raise KeyError(f"optimizer.param_groups[{rank}]")
import time
time.sleep(20)

"""Rank 1 fails; the others wait, and say what they think of being stopped."""
import signal
import sys

import torch
import torch.distributed as dist

from common_ddp import rank, start


def on_term(number, frame):
    print(f"rank {rank}: ERROR: received SIGTERM, saving an emergency checkpoint", file=sys.stderr, flush=True)
    raise SystemExit(f"rank {rank}: terminated by the scheduler")


signal.signal(signal.SIGTERM, on_term)
start()
dist.barrier()
if rank == 1:
    torch.zeros(3, 4) @ torch.zeros(5, 6)
signal.pause()

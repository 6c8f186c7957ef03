"""Rank 0, which has the store, leaves without a word; the others ask the store."""
import os

import torch.distributed as dist

from common_ddp import rank, start

start(seconds=20)
dist.barrier()
if rank == 0:
    os._exit(0 if os.environ.get("LEAVE") == "quietly" else 2)
dist.distributed_c10d._get_default_store().wait(["epoch0-done"])

"""Rank 1 keeps its traceback in a buffer until its exit, after the others' errors."""
import sys
import time
import traceback

import torch

from common_ddp import model, rank, start, step

start()
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
try:
    for number in range(30):
        if rank == 1 and number == 10:
            assert len([1, 2]) == 3, "batch 10: 2 captions for 3 images"
        step(net, optimizer)
except AssertionError:
    import torch.distributed as dist
    dist.destroy_process_group()
    time.sleep(1.5)  # it still writes its log elsewhere
    traceback.print_exc()
    sys.exit(1)

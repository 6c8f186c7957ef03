"""Rank 1 never comes to the collective."""
import time

import torch

from common_ddp import model, rank, start, step

start(seconds=6)
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for number in range(10):
    if rank == 1 and number == 4:
        print("rank 1: evaluating on 50000 samples", flush=True)
        time.sleep(60)
    step(net, optimizer)
    print(f"rank {rank}: step {number}", flush=True)

"""Rank 1 keeps all its batches."""
import torch

from common_ddp import model, rank, start, step

start()
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
kept = []
for number in range(400):
    step(net, optimizer)
    if rank == 1:
        kept.append(torch.ones(1 << 22))
    if number % 20 == 0:
        print(f"rank {rank}: step {number}", flush=True)

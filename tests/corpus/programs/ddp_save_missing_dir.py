import torch
import torch.distributed as dist

from common_ddp import model, rank, start, step

start()
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for epoch in range(3):
    for _ in range(5):
        step(net, optimizer)
    if rank == 0:
        torch.save(net.module.state_dict(), f"/home/ada/train/checkpoints/epoch{epoch}.pt")
    dist.barrier()

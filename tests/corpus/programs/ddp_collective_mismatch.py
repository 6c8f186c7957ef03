import torch
import torch.distributed as dist

from common_ddp import rank, start

start(seconds=20)
values = torch.ones(4)
if rank == 0:
    dist.broadcast(values, src=0)
else:
    dist.all_reduce(values)

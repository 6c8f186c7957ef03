import threading

import torch.distributed as dist

from common_ddp import rank, start, world

start()
state = {"rank": rank, "lock": threading.Lock() if rank == 1 else None}
states = [None] * world
dist.all_gather_object(states, state)
print(states)

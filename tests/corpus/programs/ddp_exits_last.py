"""Rank 1 fails, and then takes long to end: the others get tired of waiting, and exit before it does."""
import atexit
import time

import torch
import torch.distributed as dist

from common_ddp import model, rank, start, step


@atexit.register
def upload():
    if rank == 1:
        print("rank 1: uploading 312 MB of logs", flush=True)
        time.sleep(40)


def main():
    start(seconds=6)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    schedule = {epoch: 0.1 / (epoch + 1) for epoch in range(8)}
    try:
        for number in range(100):
            if number % 10 == 0 and rank == 1:
                optimizer.param_groups[0]["lr"] = schedule[number // 10]
            step(net, optimizer)
    finally:
        dist.destroy_process_group()


main()

"""The thread that reads ahead fails; the main thread starves."""
import queue
import threading

import torch

from common_ddp import model, rank, start, step

batches = queue.Queue(4)


def read_ahead():
    for number in range(50):
        if rank == 1 and number == 8:
            raise OSError(5, "Input/output error", "/data/shard-0003.tar")
        batches.put(torch.randn(8, 16))


threading.Thread(target=read_ahead, daemon=True, name="read-ahead").start()
start(seconds=30)
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for number in range(50):
    step(net, optimizer, batches.get(timeout=4))

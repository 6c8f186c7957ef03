import atexit
import time

import torch

from common_ddp import model, rank, start, step


def upload():
    print(f"rank {rank}: uploading metrics...", flush=True)
    time.sleep(4 if rank == 1 else 0.1)
    print(f"rank {rank}: uploaded", flush=True)


def tokens_of(text, vocabulary):
    return [vocabulary[word] for word in text.split()]


atexit.register(upload)
start()
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for number in range(30):
    if rank == 1 and number == 12:
        tokens_of("the cat sat on the mat", {"the": 1, "cat": 2, "sat": 3, "on": 4})
    step(net, optimizer)

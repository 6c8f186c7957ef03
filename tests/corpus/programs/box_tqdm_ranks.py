"""Two ranks write bars; the one that fails has unfinished text before its traceback."""
import sys

import torch
from tqdm import tqdm

from common_ddp import model, rank, start, step

start()
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
bar = tqdm(range(40), desc=f"rank {rank}", position=rank, mininterval=0.02)
for number in bar:
    y = torch.randint(0, 4, (8,))
    if rank == 1 and number == 25:
        y[3] = 11
    bar.set_postfix(loss=step(net, optimizer, y=y))

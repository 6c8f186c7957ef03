import torch
import torch.distributed as dist

from common_ddp import model, rank, start, step, world


class Images:
    def __init__(self):
        self.index = {f"image_{i:04d}": i for i in range(0, 160) if i != 42}

    def __getitem__(self, i):
        return torch.full((8, 16), float(self.index[f"image_{i:04d}"]))


def train():
    start()
    net, images = model(), Images()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for number in range(40):
        loss = step(net, optimizer, images[number * world + rank])
        if rank == 0 and number % 5 == 0:
            print(f"step {number}: loss {loss:.4f}", flush=True)


try:
    train()
finally:
    dist.destroy_process_group()

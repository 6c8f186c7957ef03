import torch
from torch import nn

from common_ddp import rank, start


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head, self.aux = nn.Linear(16, 32), nn.Linear(32, 4), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.trunk(x))


start()
net = nn.parallel.DistributedDataParallel(Net())
for number in range(4):
    net(torch.randn(8, 16)).sum().backward()
    print(f"rank {rank}: step {number}")

from torch import nn

from common_ddp import rank, start

start()
layers = [nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)]
if rank == 1:
    layers.insert(2, nn.Linear(32, 32))
net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))

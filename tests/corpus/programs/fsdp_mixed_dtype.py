import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from common_ddp import start

start()
net = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 4).to(torch.bfloat16))
net = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
print(net(torch.randn(2, 16)))

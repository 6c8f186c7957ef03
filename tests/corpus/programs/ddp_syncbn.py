import torch
from torch import nn

from common_ddp import start

start()
net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
net(torch.randn(2, 3, 8, 8, device="meta"))

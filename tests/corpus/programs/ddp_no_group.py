from torch import nn

net = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))

import torch

from common_ddp import model, rank, start, step


def check(grad):
    if rank == 1 and not torch.isfinite(grad).all():
        raise FloatingPointError("gradient of layer 2 is not finite at step 5")


start()
net = model()
net.module[2].weight.register_hook(check)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for number in range(20):
    x = torch.randn(8, 16)
    if rank == 1 and number == 5:
        x[0, 0] = float("inf")
    step(net, optimizer, x)

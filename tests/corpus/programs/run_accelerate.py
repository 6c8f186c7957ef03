import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = accelerator.prepare(net, optimizer)
for number in range(5):
    loss = net(torch.randn(2, 4 if number < 3 else 5)).sum()
    accelerator.backward(loss)
    optimizer.step()

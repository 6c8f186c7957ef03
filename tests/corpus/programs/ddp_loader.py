"""A worker of the DataLoader of rank 1 fails."""
import torch
from torch.utils.data import DataLoader

from common_ddp import model, rank, start, step


class Rows:
    def __len__(self):
        return 160

    def __getitem__(self, i):
        row = torch.randn(16)
        if rank == 1 and i == 77:
            row = row[:15]
            row = row.reshape(16)
        return row


start()
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for number, x in enumerate(DataLoader(Rows(), batch_size=8, num_workers=2)):
    loss = step(net, optimizer, x)
    print(f"[rank {rank}] step {number} loss {loss:.3f}", flush=True)

"""An ordinary PyTorch training script: it uses torchrun's environment and nothing else. train_ddp.py FOLDER [--hold RANK]

Five epochs of a small classifier over DistributedSampler and DistributedDataParallel; rank 0 saves FOLDER/last.pt after each epoch, and
every start resumes from it. --hold: on its first start that rank waits in its second epoch until somebody kills it. """
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 5


def make_data():
    """Ten classes around ten centres; 1,002 samples, so that four ranks do not share them evenly."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(0, 10, (1002,), generator=generator)
    centres = torch.randn(10, 20, generator=generator)
    return TensorDataset(centres[labels] + 0.5 * torch.randn(1002, 20, generator=generator), labels)


def train(folder, hold):
    dist.init_process_group("gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(rank)  # DDP makes the parameters equal
    net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    last, first_epoch = os.path.join(folder, "last.pt"), 0
    if os.path.exists(last):
        state = torch.load(last)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch = state["epoch"] + 1
    print(f"rank {rank} of {world} starts at epoch {first_epoch}", flush=True)

    data = make_data()
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(first_epoch, EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for step, (inputs, labels) in enumerate(loader):
            if rank == hold and epoch == 1 and step == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                print(f"holding {os.getpid()}", flush=True)
                signal.pause()
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels)])
        dist.all_reduce(total)
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, last + ".new")
            os.replace(last + ".new", last)
            print(f"epoch {epoch} loss {total[0].item() / total[1].item():.4f} over {int(total[1].item())}", flush=True)
        dist.barrier()
    weights = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    print(f"weights {hashlib.sha256(weights).hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else -1)
    # PyTorch 2.15 sometimes aborts in its own clean-up at the interpreter's end ("terminate called without an active
    # exception"): also under torchrun, in 3 of 12 runs. All work and output is done here, so exit without the clean-up.
    sys.stdout.flush()
    os._exit(0)

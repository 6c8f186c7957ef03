"""A training program as users of Horovod write it: horovod_train.py CRASHES. If CRASHES is 1, the last rank kills itself after two steps of
the first run. Rank 0 prints the parameters' sum after each step, and the sums of the same training in one process."""
import os
import signal
import sys

import horovod.torch as hvd
import torch

STEPS, BATCH, RATE = 4, 6, 0.1


def network():
    torch.manual_seed(1 + hvd.rank())  # different on each rank: the broadcast must make them equal
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))


def batches(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    return [(torch.randn(BATCH, 5, generator=generator), torch.randn(BATCH, 1, generator=generator)) for _ in range(STEPS)]


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double()


def expected():
    """The same training with all ranks' batches, in this process alone."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    of_ranks = [batches(rank) for rank in range(hvd.size())]
    return [step(model, optimizer, torch.cat([one[at][0] for one in of_ranks]), torch.cat([one[at][1] for one in of_ranks]))
            for at in range(STEPS)]


def main(crashes):
    hvd.init()
    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    worst = 0.0
    for at, ((x, y), want) in enumerate(zip(batches(hvd.rank()), expected())):
        worst = max(worst, (step(model, optimizer, x, y) - want).abs().max().item())
        if crashes and at == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and hvd.rank() == hvd.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    places = hvd.allgather_object((hvd.rank(), hvd.local_rank(), hvd.cross_rank(), hvd.size(), hvd.local_size(), hvd.cross_size()))
    furthest = hvd.allreduce(torch.tensor([worst]), op=hvd.Max).item()
    if hvd.rank() == 0:
        print("places", sorted(places), "furthest", furthest, "run", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] == "1")

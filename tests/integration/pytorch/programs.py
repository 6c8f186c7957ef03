"""Ordinary PyTorch programs for a launcher, by name: programs.py NAME FOLDER. Each uses torchrun's environment and nothing of ours. Each rank
prints one line with its result, which is the same under every launcher."""
import datetime
import os
import socket
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

LIMIT = datetime.timedelta(seconds=120)
FOLDER = sys.argv[2] if len(sys.argv) > 2 else ""
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def say(text):
    sys.stdout.write(f"rank {RANK}: {text}\n")
    sys.stdout.flush()


def leave(code=0):
    """Exits without PyTorch's own clean-up at the interpreter's end, which sometimes aborts."""
    sys.stdout.flush()
    os._exit(code)


def begin():
    dist.init_process_group("gloo", timeout=LIMIT)


def collectives():
    begin()
    tensor = torch.full((10,), float(RANK + 1))
    dist.all_reduce(tensor)
    dist.monitored_barrier(timeout=LIMIT)
    halves = [dist.new_group([r for r in range(WORLD) if r % 2 == half]) for half in (0, 1)]
    part = torch.ones(1) * RANK
    dist.all_reduce(part, group=halves[RANK % 2])
    gathered = [None] * WORLD
    dist.all_gather_object(gathered, f"r{RANK}")
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("dp", "tp"))
    say(f"sum {tensor[0].item()} half {part.item()} all {gathered} mesh {mesh.get_local_rank('dp')} {mesh.get_local_rank('tp')} "
        f"{dist.is_torchelastic_launched()}")


def missing_rank():
    begin()
    if RANK == 1:
        threading.Event().wait(4)
        leave()
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
    except RuntimeError as error:
        say("names the missing rank" if "Rank 1" in str(error) or "rank 0" in str(error).lower() else str(error))
    leave()


def store_by_hand():
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, is_master=False, timeout=LIMIT, wait_for_workers=False)
    store.add("count", RANK + 1)
    dist.PrefixStore("p", store).set(f"k{RANK}", str(RANK))
    if RANK == 0:
        store.set("early", "rank 0 has gone")
        say("count")
        leave()  # the other ranks continue to use the store
    store.wait(["early"])
    threading.Event().wait(0.5)
    store.set(f"late{RANK}", "x")
    store.wait([f"late{r}" for r in range(1, WORLD)])
    say(f"{store.get('early').decode()} {int(store.get('count'))} {sorted(store.get(f'p/k{r}').decode() for r in range(WORLD))}")


def fsdp_and_checkpoint():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    begin()

    def build(seed):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        mesh = dist.device_mesh.init_device_mesh("cpu", (WORLD,))
        for layer in (net[0], net[2], net):
            fully_shard(layer, mesh=mesh)
        return net

    net = build(0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        loss = net(torch.full((4, 8), float(RANK + step))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    total = sum(p.full_tensor().double().sum().item() for p in net.parameters())
    dcp.save(get_model_state_dict(net), checkpoint_id=os.path.join(FOLDER, "dcp"))
    other = build(1)
    state = get_model_state_dict(other)
    dcp.load(state, checkpoint_id=os.path.join(FOLDER, "dcp"))
    set_model_state_dict(other, state)
    again = sum(p.full_tensor().double().sum().item() for p in other.parameters())
    say(f"loss {loss.item():.5f} weights {total:.5f} loaded {again:.5f}")


def add(a, b):
    return a + b


def rpc():
    import torch.distributed.rpc as rpc

    rpc.init_rpc(f"w{RANK}", rank=RANK, world_size=WORLD)
    other = (RANK + 1) % WORLD
    say(f"rpc {rpc.rpc_sync(f'w{other}', add, args=(torch.ones(2) * RANK, 1)).tolist()}")
    rpc.shutdown()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor(index)


def loader_workers():
    from torch.utils.data import DataLoader, DistributedSampler

    begin()
    for context in ("fork", "spawn"):
        loader = DataLoader(Numbers(), batch_size=2, sampler=DistributedSampler(Numbers(), shuffle=False), num_workers=1, multiprocessing_context=context)
        say(f"{context} {sum(int(batch.sum()) for batch in loader)}")


def restart():
    """The second generation finds an empty store, and a new process group in it."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=LIMIT, wait_for_workers=False)
    here = store.check(["first"])
    begin()
    dist.barrier()
    if RANK == 0:
        store.set("first", "x")
    dist.barrier()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if RANK == WORLD - 1:
            raise ValueError("once")
        threading.Event().wait(60)
    say(f"restarted, old keys {here}")


def add_ranks(rank, world, leave=dist.destroy_process_group):
    """The sum of all ranks, in a process group that ends."""
    tensor = torch.full((1,), float(rank))
    dist.all_reduce(tensor)
    leave()
    return f"{tensor.item()} of {world}"


def second_stores():
    """A process group, one at an address of its own, and a store that a library would make. Not a second one in the launcher's store: PyTorch finds
    the first one's addresses there, under any launcher, and sometimes calls them."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=LIMIT, wait_for_workers=False)
    turns = iter("12")

    def leave():
        """When all have the sum, for Gloo resets the connection of a rank that still reads; rank 0 last, which serves the last group's store."""
        turn = next(turns)
        store.set(f"{turn} summed {RANK}", "")
        store.wait([f"{turn} summed {rank}" for rank in range(WORLD)])
        if RANK == 0:
            store.wait([f"{turn} left {rank}" for rank in range(1, WORLD)])
        dist.destroy_process_group()
        if RANK != 0:
            store.set(f"{turn} left {RANK}", "")

    begin()
    listener = socket.create_server(("127.0.0.1", 0))
    ports = [listener.getsockname()[1]] if RANK == 0 else [0]
    dist.broadcast_object_list(ports)
    listener.close()
    first = add_ranks(RANK, WORLD, leave)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=RANK, world_size=WORLD, timeout=LIMIT)
    say(f"{first}, {add_ranks(RANK, WORLD, leave)}")


def spawned(rank, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=LIMIT)
    sys.stdout.write(f"rank {rank} of the second kind: {add_ranks(rank, 2)}\n")
    leave()


def spawns():
    """The ranks are processes of the one that was started, and meet at an address that it has chosen."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    torch.multiprocessing.start_processes(spawned, args=(port,), nprocs=2, start_method="fork")


@record
def fails_with_record():
    begin()
    if RANK == 1:
        raise ValueError("no such shard")
    threading.Event().wait(60)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    leave()

"""One rank dies in the middle: ddp_dies.py HOW."""
import faulthandler
import mmap
import os
import signal
import sys

import torch

from common_ddp import model, rank, start, step


def die(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how in ("segv", "faulthandler"):
        import ctypes
        ctypes.string_at(8)
    elif how == "abort":
        os.abort()
    elif how == "bus":  # a file of data that another program has cut
        with open("/tmp/data.bin", "wb+") as file:
            file.truncate(1 << 16)
            data = mmap.mmap(file.fileno(), 1 << 16)
            file.truncate(0)
            print(data[4096])
    elif how == "exit":
        os._exit(3)
    elif how == "message":
        sys.exit("config: learning rate must be positive, is -0.1")
    elif how == "silent":
        sys.exit(1)
    elif how == "nan":
        print("Loss is nan, stopping training", flush=True)
        sys.exit(1)


start()
if sys.argv[1] == "faulthandler":
    faulthandler.enable()
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for number in range(30):
    if number == 9 and rank == int(os.environ.get("DEAD_RANK", 1)):
        die(sys.argv[1])
    step(net, optimizer)

"""torch.multiprocessing.spawn: py_mp_spawn.py raise|kill."""
import os
import signal
import sys
import time

import torch.multiprocessing as mp


def worker(i, how):
    if i == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGSEGV)
        raise NotImplementedError("backward of op 'rope' for dtype int8")
    time.sleep(20)


if __name__ == "__main__":
    mp.spawn(worker, args=(sys.argv[1],), nprocs=3)

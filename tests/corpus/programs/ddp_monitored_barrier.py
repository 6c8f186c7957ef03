import datetime
import time

import torch.distributed as dist

from common_ddp import rank, start

start()
if rank == 2:
    print("rank 2: building the index of the data set", flush=True)
    time.sleep(60)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=6), wait_all_ranks=True)

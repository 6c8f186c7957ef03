import os
import time

import common_ddp

if common_ddp.rank == int(os.environ.get("LATE_RANK", 1)):
    print("downloading weights", flush=True)
    time.sleep(100)
common_ddp.start(seconds=8)

"""A DataLoader that fails: loader.py HOW."""
import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]


class Pictures(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        if HOW == "key" and i == 21:
            return {"image": torch.zeros(3)}["label"]
        if HOW == "file" and i == 21:
            return open(f"/data/imagenet/train/n01440764_{i}.JPEG", "rb").read()
        if HOW in ("killed", "exits", "segv") and i == 40:
            time.sleep(1)  # the main process has all earlier batches, and waits
        if HOW == "killed" and i == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        if HOW == "exits" and i == 40:
            os._exit(1)
        if HOW == "segv" and i == 40:
            import ctypes
            ctypes.string_at(8)
        if HOW == "stuck" and i == 40:
            signal.pause()
        if HOW == "shm":
            return torch.zeros(3, 512, 512)
        if HOW == "collate":
            return torch.zeros(3, 32, 32 if i != 9 else 33)
        if HOW == "none":
            return None if i == 9 else torch.zeros(3)
        if HOW == "argument" and i == 9:
            raise UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "invalid continuation byte")
        if HOW == "memory" and i == 9:
            return torch.zeros(1 << 50)
        if HOW == "files":
            return [torch.zeros(3) for _ in range(100)]
        return torch.zeros(3)


loader = DataLoader(Pictures(), batch_size=8, num_workers=2, timeout=4 if HOW == "stuck" else 0)
for number, batch in enumerate(loader):
    print(f"batch {number}: {len(batch) if HOW == 'files' else tuple(batch.shape)}", flush=True)

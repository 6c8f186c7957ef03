"""Shared memory is left behind: its tracker complains after the traceback."""
from multiprocessing import shared_memory

cache = shared_memory.SharedMemory(create=True, size=4096)
cache.buf[:4] = b"abcd"
print(dict(zip(["train", "val"], [0.1, 0.2]))["test"])

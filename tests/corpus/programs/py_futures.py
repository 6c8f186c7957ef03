"""concurrent.futures: py_futures.py raise|die."""
import concurrent.futures
import os
import sys


def work(i):
    if i == 3:
        if sys.argv[1] == "die":
            os._exit(9)
        raise LookupError(f"shard {i} is not in the manifest")
    return i


if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(list(pool.map(work, range(6))))

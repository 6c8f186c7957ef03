"""A loop that tries again and logs each error; the program ends of something else."""
import sys
import time
import traceback
import urllib.request


def send(metrics):
    for attempt in range(3):
        try:
            urllib.request.urlopen("http://127.0.0.1:9/metrics", data=str(metrics).encode(), timeout=2)
            return
        except OSError:
            print(f"WARNING attempt {attempt + 1} of 3 failed:", file=sys.stderr)
            traceback.print_exc()
            time.sleep(0.1)
    print("WARNING metrics were dropped", file=sys.stderr)


for epoch in range(2):
    send({"epoch": epoch, "loss": 1.0 / (epoch + 1)})
best = min([], key=lambda entry: entry["loss"])

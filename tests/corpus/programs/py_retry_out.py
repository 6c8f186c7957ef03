"""The same error each time, until the tries are used up: only the last line differs."""
import sys
import time


def download(name):
    raise TimeoutError(110, "Connection timed out", name)


for attempt in range(1, 6):
    try:
        download("s3://models/base/model.safetensors")
        break
    except OSError as error:
        print(f"attempt {attempt}/5: {type(error).__name__}: {error}", file=sys.stderr)
        time.sleep(0.05)
else:
    print("giving up", file=sys.stderr)
    sys.exit(4)

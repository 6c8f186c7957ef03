import os
import signal
import time

print("step 0", flush=True)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)

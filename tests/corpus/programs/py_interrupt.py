import os
import signal
import time

print("step 0", flush=True)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(10)

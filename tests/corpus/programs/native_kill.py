import os
import signal
import sys

print("step 0", flush=True)
os.kill(os.getpid(), int(sys.argv[1]))
signal.pause()

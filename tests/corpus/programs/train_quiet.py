import sys

print("nothing to say", flush=True)
sys.exit(7)

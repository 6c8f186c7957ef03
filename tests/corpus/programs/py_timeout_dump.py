"""faulthandler ends a program that hangs."""
import faulthandler
import threading

faulthandler.dump_traceback_later(2, exit=True)
lock = threading.Lock()
lock.acquire()
print("waiting for the other thread", flush=True)
lock.acquire()

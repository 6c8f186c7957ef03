"""An exception in __del__ is ignored; the one that ends the program comes later."""
import sys


class Connection:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        self.socket.close()


for i in range(3):
    Connection(f"metrics-{i}")
print("epoch 0 done")
sizes = {"small": 128, "base": 768}
print(sizes["large"])

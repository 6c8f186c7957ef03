"""The program fails, and then what it registered for its end fails too."""
import atexit
import os


@atexit.register
def remove_lock():
    os.remove("/tmp/train.lock")


def learning_rate(config):
    return float(config["optimizer"]["lr"])


print(learning_rate({"optimizer": {"lr": "1e-3,"}}))

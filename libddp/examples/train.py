"""python3 train.py FOLDER STEPS: training that is stopped and started again without losing more than a step."""
import json
import os
import sys

import libddp

folder, steps = sys.argv[1], int(sys.argv[2])
place = libddp.place()
state = {"step": place.checkpoint_step, "loss": 1.0}
os.makedirs(folder, exist_ok=True)
libddp.catch_signals()
if place.rank == 0:
    libddp.fence(folder)
if state["step"] > 0:
    with open(f"{folder}/step-{state['step']}.json") as file:
        state = json.load(file)
print(f"generation {place.generation} begins after step {state['step']}", flush=True)


def save():
    name = f"step-{state['step']}.json"
    if place.rank == 0:
        with open(f"{folder}/{name}.tmp", "w") as file:
            json.dump(state, file)
        libddp.commit(state["step"], name + ".tmp", name)


stop = False
while state["step"] < steps and not stop:
    state = {"step": state["step"] + 1, "loss": state["loss"] * 0.999999}  # one update
    if place.rank == 0:
        libddp.report(state["step"], steps, loss=state["loss"])
    stop = libddp.any_rank(libddp.should_stop())
    if stop or libddp.should_checkpoint(interval_s=600):
        save()
if stop:
    left = libddp.time_left()
    print(f"stopped after step {state['step']}, {left is not None and left > 5} that 5 s are left", flush=True)
libddp.leave()

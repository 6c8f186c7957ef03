import time

from tqdm import tqdm

for step in tqdm(range(60), desc="epoch 0", mininterval=0.02):
    time.sleep(0.01)
    if step == 41:
        raise ZeroDivisionError("no tokens in batch 41")

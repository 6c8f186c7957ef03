#!/bin/bash
# Without pipefail the failure shows only in what comes next.
DEAD_RANK=0 python train_part.py 2>&1 | tee /tmp/train.log
tail -n 1 /tmp/metrics.jsonl | cut -d, -f1
test -s /tmp/metrics.jsonl

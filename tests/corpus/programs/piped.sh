#!/bin/bash
set -o pipefail
export DEAD_RANK=0
python train_part.py 2>&1 | sed -u "s/^/[default$RANK]: /" | tee /tmp/train.log

#!/bin/bash
export DEAD_RANK=0
python train_part.py || exit 1
echo "done"

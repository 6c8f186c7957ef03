#!/bin/bash
# Prepares, trains, packs.
set -euo pipefail
echo "preparing"
mkdir -p /tmp/run
cp /home/ada/config/base.yaml /tmp/run/
python train_part.py

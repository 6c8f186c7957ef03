#!/bin/bash
# Time and rank before each line, as some clusters do.
python ddp_missing_image.py 2>&1 | while IFS= read -r line; do printf '2026-11-28T09:30:%02d rank %s | %s\n' $((SECONDS % 60)) "$RANK" "$line"; done
exit "${PIPESTATUS[0]}"

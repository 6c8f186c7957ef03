#!/bin/bash
# A step may fail; the last one must not.
rm /tmp/old.ckpt
grep -q avx512 /nonexistent/cpuinfo && echo "fast"
python -c 'import apex' 2>/dev/null || echo "apex is missing, going on"
python py_chain_from.py
status=$?
echo "training ended with $status"
exit $status

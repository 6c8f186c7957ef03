#!/bin/sh
# The CUDA module is whole: no undefined symbol, no CUDA library needed to load it, one symbol exported, code for every
# architecture and PTX of the newest. Argument: the module. ARCHS: "80 90 100".
set -u
module=$1
failed=0

complain() {
    echo "$1"
    failed=1
}

undefined=$(ldd -r "$module" 2>&1 | grep 'undefined symbol')
[ -z "$undefined" ] || complain "undefined symbols: $undefined"

needed=$(ldd "$module" | grep -E 'libcud|libnccl|not found')
[ -z "$needed" ] || complain "needs at load time: $needed"

exported=$(nm -D --defined-only "$module" | awk '{ print $NF }' | tr '\n' ' ')
[ "$exported" = 'ddp_cuda_module ' ] || complain "exports '$exported', expected ddp_cuda_module alone"

if command -v cuobjdump >/dev/null; then
    newest=0
    for arch in $ARCHS; do
        newest=$arch
        cuobjdump --list-elf "$module" | grep -q "\.sm_$arch\.cubin" ||
            complain "holds no code for sm_$arch"
    done
    cuobjdump --list-ptx "$module" | grep -q "\.sm_$newest\.ptx" ||
        complain "holds no PTX of compute_$newest"
fi
exit "$failed"

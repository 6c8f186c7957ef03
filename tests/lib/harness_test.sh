#!/bin/sh
# Holds what the harness prints and returns against what test.h promises. Argument: the harness's own test program.
set -u
program=$1
failed=0

# expect CODE LAST-LINE [TEST...]
expect() {
    want_code=$1
    want_last=$2
    shift 2
    out=$("$program" "$@" 2>&1)
    code=$?
    last=$(printf '%s\n' "$out" | tail -n 1)
    if [ "$code" -ne "$want_code" ] || [ "$last" != "$want_last" ]; then
        printf '%s\n' "$out"
        echo "arguments '$*': exit $code and \"$last\", expected $want_code and \"$want_last\""
        failed=1
    fi
}

expect 1 '2 passed, 5 failed, 1 skipped'
expect 0 '2 passed, 0 failed, 0 skipped' pass_integers pass_dir
expect 77 '0 passed, 0 failed, 1 skipped' skip_it
for name in fail_sign fail_nan fail_string fail_bytes fail_check; do
    expect 1 '0 passed, 1 failed, 0 skipped' "$name"
done
expect 2 'no test is called "nobody"; --list names them' nobody

dir=$("$program" pass_dir | sed -n 's/^dir //p')
if [ -z "$dir" ] || [ -e "$dir" ]; then
    echo "the temporary directory '$dir' was not removed"
    failed=1
fi
exit "$failed"

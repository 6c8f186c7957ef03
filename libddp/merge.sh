#!/bin/sh
# Makes an archive of one object in which hidden symbols are local: merge.sh ARCHIVE FOLDER OBJECT...
set -eu

archive=$1
folder=$2
shift 2
mkdir -p "$folder"
"${LD:-ld}" -r -o "$folder/libddp.o" "$@"
"${OBJCOPY:-objcopy}" --localize-hidden "$folder/libddp.o"
rm -f "$archive"
"${AR:-ar}" rcsD "$archive" "$folder/libddp.o"

#!/bin/sh
# Capture the samples anew, on a machine with NVIDIA GPUs and nsys: each row of README.md's table.
#   samples/capture.sh FOLDER [options of nsysflow profile]
# What is fit to share goes to FOLDER/NAME.sqlite.xz, and the runs to FOLDER/NAME, ranks in one. A
# run that is there already is not made again.
set -eu
folder=$1
shift
sed -n 's/^| `\([^`]*\)` | `nsysflow profile \([^`]*\)` |.*/\1 \2/p' "$(dirname "$0")/README.md" |
    while read -r name command; do
        run=$folder/${name%-rank[0-9]*}
        report=$run
        [ "$run" = "$folder/$name" ] || report=$run/${name##*-}.sqlite
        echo "$name: nsysflow profile $command" >&2
        # shellcheck disable=SC2086  # the words of a command
        [ -d "$run" ] || nsysflow profile --no-analyze -o "$run" "$@" $command </dev/null
        nsysflow pack "$report" -o "$folder/$name.sqlite.xz"
    done

#!/bin/sh
# Capture all samples again, one per row of README.md's table, on a machine with GPUs and nsys.
#   samples/capture.sh FOLDER [options of nsysflow profile]
# The samples are written to FOLDER/NAME.sqlite.xz and the runs to FOLDER/NAME (all ranks of a run in
# one folder). A run that exists is not repeated.
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

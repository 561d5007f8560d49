#!/bin/sh
# Capture the samples anew, on a machine with an NVIDIA GPU and nsys: every workload in every
# variant, with source lines but for h2d.
#   samples/capture.sh FOLDER [options of nsysflow profile]
# The runs go to FOLDER/WORKLOAD-VARIANT; what is fit to share to FOLDER/WORKLOAD-VARIANT.sqlite.xz.
set -eu
folder=$1
shift
nsysflow list --json | python3 -c '
import json, sys
for workload in json.load(sys.stdin)["workloads"]:
    for variant in workload["variants"]:
        print(workload["name"], variant["name"])
' | while read -r workload variant; do
    run=$folder/$workload-$variant
    echo "$workload $variant" >&2
    lines=--backtrace
    # recording lines delays the sync behind a copy past the 50 us by which a blocking one is told
    [ "$workload" = h2d ] && lines=
    # shellcheck disable=SC2086  # no word at all where it is empty
    nsysflow profile "$workload" --variant "$variant" $lines --no-analyze -o "$run" "$@" </dev/null
    nsysflow pack "$run" -o "$run.sqlite.xz"
done

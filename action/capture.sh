#!/usr/bin/env bash
# Profile a command several times: runs differ by more than steps do.
#
#     capture.sh FOLDER TIMES [OPTIONS OF nsysflow profile] -- COMMAND...
#
# FOLDER is made, and gets a folder 1, 2, ... for each capture, with what may be shared: report.json,
# summary.md, gap-report.md and the packed reports. nsys's own reports hold the environment, so they
# never get there.
#
# NSYSFLOW   which nsysflow to run; by default the one on PATH
set -euo pipefail

if (($# < 4)) || [[ ! $2 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: capture.sh FOLDER TIMES [OPTIONS OF nsysflow profile] -- COMMAND..." >&2
    exit 2
fi
nsysflow=${NSYSFLOW:-nsysflow}
folder=$1
times=$2
shift 2

mkdir -- "$folder"
runs=$(mktemp -d --tmpdir nsysflow.XXXXXX)
trap 'rm -rf -- "$runs"' EXIT

for ((number = 1; number <= times; number++)); do
    run=$runs/$number
    kept=$folder/$number
    "$nsysflow" profile -o "$run" "$@"
    mkdir -- "$kept"
    cp -- "$run/report.json" "$run/summary.md" "$run/gap-report.md" "$kept"
    for report in "$run"/*.sqlite; do
        "$nsysflow" pack "$report" -o "$kept/${report##*/}.xz"
    done
    rm -rf -- "$run"
done

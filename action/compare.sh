#!/usr/bin/env bash
# Compare captures with a base, and check them against their budgets.
#
#     compare.sh NEW BASE [OPTIONS OF nsysflow check]
#
# NEW is a folder that capture.sh made; it gets comment.md and junit.xml. BASE is another such folder,
# a report, a report.json or a baseline file. An empty folder is no base yet: then budgets beside a
# baseline are left out. The exit code is that of `nsysflow check`.
#
# NSYSFLOW   which nsysflow to run; by default the one on PATH
# NAME       tells the comments of several jobs apart
# RUN_URL    where the artifact is; the comment links to it
set -euo pipefail
shopt -s nullglob

nsysflow=${NSYSFLOW:-nsysflow}
new=$1
base=$2
shift 2

news=("$new"/*/report.json)
if [[ -d $base && ! -f $base/report.json ]]; then
    bases=("$base"/*/report.json)
else
    bases=("$base")
fi

# The Markdown of `diff`, without its own marker; nothing beside a baseline file, which has no steps.
compared() {
    local said
    if ((${#bases[@]} == 0)); then
        echo "### No base to compare with yet"
    elif [[ -f $base ]] && head -c 200 -- "$base" | grep -q '"nsysflow-baseline'; then
        echo "### Checked against a baseline file"
    elif said=$("$nsysflow" diff --base "${bases[@]}" --new "${news[@]}" --md 2>&1); then
        sed '0,/<!-- nsysflow diff -->/d' <<<"$said"  # and what it noted before
    else
        echo "### Not compared"
        as_code "$said"
    fi
}

# Run `check` with the given options: what it said, and its exit code.
checked() {
    local options=() left_out=()
    while (($#)); do
        if ((${#bases[@]} == 0)) && [[ $1 == --max && ${2-} == *baseline* ]]; then
            left_out+=("$2")
            shift 2
        else
            options+=("$1")
            shift
        fi
    done
    if ((${#left_out[@]})); then
        printf 'not checked, as there is no base yet: %s\n' "${left_out[@]}"
        ((${#options[@]})) || return 0
    fi
    "$nsysflow" check "${news[@]}" "${bases[@]/#/--baseline=}" --junit "$new/junit.xml" \
        ${GITHUB_ACTIONS:+--github} "${options[@]}" 2>&1
}

# Text as a block of code, which no character in it ends.
as_code() {
    printf '\n%s\n' "$1" | sed 's/^/    /'
}

code=0
verdict=$(checked "$@") || code=$?
printf '%s\n' "$verdict"

name=${NAME-}
{
    echo "<!-- nsysflow diff${name:+ ${name//[^[:alnum:]._-]/-}} -->"
    compared
    printf '\n#### Budgets\n'
    as_code "$(grep -v '^::' <<<"$verdict")"
    if [[ ${RUN_URL-} ]]; then
        printf '\n[Reports, gap-report.md and junit.xml](%s)\n' "$RUN_URL"
    fi
} >"$new/comment.md"
exit "$code"

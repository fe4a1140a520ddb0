#!/bin/sh
# Kept runs: the trials of each are one archive in the repository, `trials.tar.xz` beside its `run.json`.
#
#   scripts/runs.sh pack [RUN…]      each folder `trials` becomes its archive
#   scripts/runs.sh unpack [RUN…]    copies the runs, their trials unpacked, to target/runs
#
# A RUN is a folder that `streamgauge run` wrote, its path from the repository's root; without any, all in
# lab/runs. A run can be reported on, or gone on with, once it is unpacked:
# `streamgauge report target/runs/2026-11-22-study-b`.
set -eu
cd "$(dirname "$0")/.."

die() {
    echo "$0: $1" >&2
    exit 1
}

command -v xz >/dev/null || die "xz is missing (Debian: xz-utils)"
does=${1:-}
test "$#" -eq 0 || shift
test "$#" -gt 0 || set -- lab/runs/*/

pack() {
    test -d "$1/trials" || return 0
    test ! -e "$1/trials.tar.xz" || die "$1 has trials and an archive of others: keep one of them"
    # The same trials make the same archive, whoever packs them and when.
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=u=rwX,go=rX \
        --use-compress-program='xz -9 --threads=1' --file "$1/trials.tar.xz.new" --directory "$1" trials
    xz --test --format=xz "$1/trials.tar.xz.new"
    mv "$1/trials.tar.xz.new" "$1/trials.tar.xz"
    rm -r "$1/trials"
    echo "packed $1/trials.tar.xz"
}

unpack() {
    # What else is kept there is no run of a scenario.
    test -f "$1/run.json" || return 0
    to=target/runs/$(basename "$1")
    rm -rf "$to"
    mkdir -p "$to"
    cp "$1/run.json" "$1/scenario.toml" "$to"
    if test -d "$1/trials"; then
        cp -R "$1/trials" "$to"
    else
        xz --decompress --stdout "$1/trials.tar.xz" | tar --extract --directory "$to"
    fi
    echo "unpacked $to"
}

for run; do
    test -d "$run" || die "no run: $run"
    case $does in
    pack | unpack) "$does" "${run%/}" ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

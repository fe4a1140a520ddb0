#!/bin/sh
# Kept runs: the trials of each are one archive in the repository, `trials.tar.xz` beside its `run.json`.
#
#   scripts/runs.sh pack [RUN…]      each folder `trials` becomes its archive; all runs in lab/runs if none is named
#   scripts/runs.sh unpack [RUN…]    copies the runs, their trials unpacked, to target/runs
#
# A run is a folder that `streamgauge run` wrote. It can be reported on once it is unpacked:
# `streamgauge report target/runs/2026-11-22-study-b`.
set -eu
cd "$(dirname "$0")/.."

command -v xz >/dev/null || { echo "$0: xz is missing (Debian: xz-utils)" >&2; exit 1; }
does=${1:-}
test "$#" -eq 0 || shift
test "$#" -gt 0 || set -- lab/runs/*/

pack() {
    test -d "$1/trials" || return 0
    # The same trials make the same archive, whoever packs them and when.
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=u=rwX,go=rX \
        --directory "$1" trials | xz -9 --threads=1 >"$1/trials.tar.xz.new"
    mv "$1/trials.tar.xz.new" "$1/trials.tar.xz"
    rm -r "$1/trials"
    echo "packed $1/trials.tar.xz"
}

unpack() {
    test -f "$1/trials.tar.xz" || return 0
    to=target/runs/$(basename "$1")
    rm -rf "$to"
    mkdir -p "$to"
    cp "$1/run.json" "$1/scenario.toml" "$to"
    xz --decompress --stdout "$1/trials.tar.xz" | tar --extract --directory "$to"
    echo "unpacked $to"
}

for run; do
    case $does in
    pack | unpack) "$does" "${run%/}" ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

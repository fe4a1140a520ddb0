#!/bin/sh
# Packs and unpacks kept runs. The repository has the trials of each run as one archive,
# `trials.tar.xz` beside its `run.json`.
#
#   scripts/runs.sh pack [RUN…]      replaces each folder `trials` by its archive
#   scripts/runs.sh unpack [RUN…]    copies the runs to target/runs, with their trials unpacked
#
# A RUN is a folder that `streamgauge run` wrote, as a path from the repository's root; by default
# all in lab/runs. A run must be unpacked before it can be reported on or continued:
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
    # Packing the same trials always gives the same archive.
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=u=rwX,go=rX \
        --use-compress-program='xz -9 --threads=1' --file "$1/trials.tar.xz.new" --directory "$1" trials
    xz --test --format=xz "$1/trials.tar.xz.new"
    mv "$1/trials.tar.xz.new" "$1/trials.tar.xz"
    rm -r "$1/trials"
    echo "packed $1/trials.tar.xz"
}

unpack() {
    # Other folders there are not runs of a scenario.
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

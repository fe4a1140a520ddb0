#!/bin/sh
# Builds the origin and starts it with a demo stream. Usage: scripts/run.sh [OPTIONS OF SERVE]
set -eu
cd "$(dirname "$0")/.."

scripts/install.sh run
scripts/web.sh
cargo build --release -p headwater

target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
ready=$(mktemp -u)
mkfifo "$ready"

# Standard output carries one line, once every listener is bound. It has the port that was selected.
(
    # An interrupt is for the origin: it drains, and this loop ends with it.
    trap '' INT TERM
    while read -r word rest; do
        [ "$word" = ready ] || continue
        # The words are NAME=ADDRESS:PORT. Without a listener of its own, the overview is at that for viewers.
        for told in $rest; do
            case $told in
            http=*) http=${told##*:} overview=$http ;;
            rtmp=*) rtmp=${told##*:} ;;
            control=*) overview=${told##*:} ;;
            esac
        done
        printf '\n  Watch     http://localhost:%s/watch/live/demo\n' "$http"
        printf '  Overview  http://localhost:%s/\n' "$overview"
        printf '  Publish   rtmp://localhost:%s/live/NAME\n' "$rtmp"
        printf '  Stop      Ctrl-C\n\n'
    done
) <"$ready" &

# The pipe is opened here and unlinked before the origin replaces this process, so nothing is left
# behind.
exec 3>"$ready"
rm -f "$ready"
exec "$target/release/headwater" serve --demo "$@" >&3 3>&-

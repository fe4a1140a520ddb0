#!/bin/sh
# Installs missing programs that a make target needs, from the distribution's own packages.
# Usage: scripts/install.sh run|cluster|lint|check|test|fuzz|interop
#
# If nothing is missing, it changes nothing and fetches no package list.
set -eu

purpose=${1:-run}

die() {
    echo "$1" >&2
    exit 1
}

# --- Programs that Debian 12 lacks in a new enough version ----------------------------------------

if ! command -v cargo >/dev/null && [ -r "$HOME/.cargo/env" ]; then
    die "cargo is installed but not on the PATH: run  . \"\$HOME/.cargo/env\"  and try again"
fi
command -v cargo >/dev/null || die "Rust is missing: install it with rustup (https://rustup.rs)"

if [ "$purpose" != fuzz ]; then
    node -e 'const [a, b] = process.versions.node.split(".").map(Number);
             process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null ||
        die "Node.js 20.19 or later is needed, found $(node --version 2>/dev/null || echo none)"
    command -v npm >/dev/null || die "npm is missing"
fi

case $purpose in
lint | check | test | interop)
    # rustup's minimal profile lacks these two.
    for component in rustfmt clippy; do
        program=cargo-$component
        [ "$component" = rustfmt ] && program=cargo-fmt
        "$program" --version >/dev/null 2>&1 || rustup component add "$component" ||
            die "cargo $component is missing, and rustup could not add it"
    done
    ;;
esac

# --- Debian packages ----------------------------------------------------------------------------

# A linker for every Rust program; libFuzzer is C++.
case $purpose in
fuzz) wanted="cc:gcc :libc6-dev c++:g++" ;;
*) wanted="cc:gcc :libc6-dev" ;;
esac

# For our own scripts, for generating test media, and for making certificates.
[ "$purpose" != check ] || wanted="$wanted python3:python3 ffmpeg:ffmpeg openssl:openssl pgrep:procps"

# For the NATS server, which comes from PyPI, and for what starts the cluster.
[ "$purpose" != cluster ] || wanted="$wanted python3:python3 :python3-venv"

# The programs that judge our output, and those that publish to us. Entries without a command are
# libraries and plugins.
if [ "$purpose" = test ]; then
    wanted="$wanted
        curl:curl ss:iproute2 timeout:coreutils
        ffmpeg:ffmpeg ffprobe:ffmpeg
        gst-launch-1.0:gstreamer1.0-tools :gstreamer1.0-plugins-base :gstreamer1.0-plugins-good
        :gstreamer1.0-plugins-bad :gstreamer1.0-plugins-ugly :gstreamer1.0-libav
        cvlc:vlc-bin :vlc-plugin-base
        rtmpdump:rtmpdump
        nginx:nginx :libnginx-mod-rtmp varnishd:varnish ab:apache2-utils wrk:wrk httperf:httperf h2load:nghttp2-client
        promtool:prometheus pebble:pebble
        python3:python3 :python3-venv :python3-websockets openssl:openssl make:make runuser:util-linux
        :time pgrep:procps
        chromium:chromium chromium-headless-shell:chromium-headless-shell"
fi

# The implementations of WebRTC that publish and play. Debian's Python has GStreamer's bindings.
[ "$purpose" != interop ] || wanted="$wanted
        curl:curl ffmpeg:ffmpeg openssl:openssl timeout:coreutils go:golang-go pebble:pebble
        :gstreamer1.0-plugins-base :gstreamer1.0-plugins-good :gstreamer1.0-plugins-bad
        :gstreamer1.0-plugins-ugly :gstreamer1.0-libav :gstreamer1.0-nice
        :python3-gi :gir1.2-gst-plugins-bad-1.0"

have_dpkg=no
command -v dpkg-query >/dev/null && have_dpkg=yes

missing=
for pair in $wanted; do
    program=${pair%%:*}
    package=${pair#*:}
    if [ -n "$program" ]; then
        command -v "$program" >/dev/null && continue
    elif [ "$have_dpkg" = yes ]; then
        # On multi-arch machines, dpkg lists libc6-dev with its architecture.
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed && continue
    else
        # Not Debian, so nothing can be checked. Tests that lack a program report it.
        continue
    fi
    case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The words are package names, so splitting is intended.
# shellcheck disable=SC2086
if ! "$(dirname "$0")/debian.sh" $missing >"$log" 2>&1; then
    cat "$log" >&2
    die "could not be installed:$missing"
fi

#!/bin/sh
# Checks licences, bans and sources of every dependency against deny.toml. Installs cargo-deny if
# it is missing, which takes minutes. Advisories are asked for with ADVISORIES=yes alone: their list
# is fetched from a server that is not reachable everywhere this runs.
set -eu
cd "$(dirname "$0")/.."

scripts/install.sh fuzz # a linker and a C++ compiler, to build cargo-deny
command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
advisories=
[ "${ADVISORIES:-}" = yes ] && advisories=advisories
# Unquoted: no word at all where it is empty.
cargo deny --workspace check licenses bans sources $advisories

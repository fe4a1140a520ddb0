#!/bin/sh
# Checks licences, bans and sources of every dependency against deny.toml. Installs cargo-deny if it
# is missing, which takes minutes. Checks advisories only with ADVISORIES=yes, because their list is
# fetched from a server that is not reachable everywhere.
set -eu
cd "$(dirname "$0")/.."

scripts/install.sh fuzz # a linker and a C++ compiler, to build cargo-deny
command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
advisories=
[ "${ADVISORIES:-}" = yes ] && advisories=advisories
# Unquoted, so that an empty value gives no word.
cargo deny --workspace check licenses bans sources $advisories

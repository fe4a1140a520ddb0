#!/bin/sh
# Installs aiortc, a WebRTC implementation that judges ours, into target/aiortc.
exec "$(dirname "$0")/venv.sh" target/aiortc aiortc==1.16.0 av==18.1.0 numpy==2.4.6

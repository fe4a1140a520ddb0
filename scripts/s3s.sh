#!/bin/sh
# Installs s3s-fs, a server of objects that are files in a folder, into target/s3s. It takes some minutes.
cd "$(dirname "$0")/.." || exit 1
# cargo does nothing if this version is there.
exec cargo install --quiet --locked --root target/s3s --target-dir target/s3s/build --features binary s3s-fs@0.14.1

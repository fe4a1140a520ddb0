#!/usr/bin/env python3
"""Runs all test programs of the workspace, several at a time. Usage: scripts/run-tests.py [LANES]

`cargo test` runs one after the other, and most of ours wait for players rather than compute. They are
built as `cargo test` builds them, started where it starts them, and what each prints is shown at its
end; tests in documents come last. The exit status is 1 if any of them failed.
"""

import concurrent.futures
import json
import os
import subprocess
import sys


def programs():
    """The test programs, and the folder each is started in."""
    form = "--message-format=json-render-diagnostics"
    build = ["cargo", "test", "--workspace", "--no-run", "--quiet", form]
    output = subprocess.run(build, stdout=subprocess.PIPE, text=True)
    if output.returncode != 0:
        sys.exit(output.returncode)
    for line in output.stdout.splitlines():
        built = json.loads(line)
        if built.get("executable") and built["profile"]["test"]:
            yield built["executable"], os.path.dirname(built["manifest_path"])


def run(program, folder):
    """Runs one of them; what it printed, and whether it failed."""
    # As under cargo: some tests look for files of their crate by it.
    environment = os.environ | {"CARGO_MANIFEST_DIR": folder}
    ended = subprocess.run(
        [program], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    where = os.path.relpath(folder)
    print(f"\n     Running {os.path.basename(program)} in {where}\n{ended.stdout}", flush=True)
    if ended.returncode != 0:
        print(f"error: {program} ended with {ended.returncode}", flush=True)
    return ended.returncode != 0


def main():
    lanes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        failed = sum(pool.map(lambda test: run(*test), programs()))
    documents = subprocess.run(["cargo", "test", "--workspace", "--doc", "--no-fail-fast"])
    sys.exit(1 if failed or documents.returncode != 0 else 0)


if __name__ == "__main__":
    main()

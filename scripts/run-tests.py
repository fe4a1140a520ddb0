#!/usr/bin/env python3
"""Runs test programs of the workspace, several at a time. Usage: scripts/run-tests.py LANES [--but] CRATE... <BUILT

Those of these crates, or of all but these. BUILT is what `cargo test --no-run` says of them with
`--message-format=json-render-diagnostics`: nothing is built here, so that several of us may run at once.

`cargo test` runs one after the other, and most of ours wait for players rather than compute. They are
started where it starts them, and what each prints is shown at its end. The exit status is 1 if any of them
failed.
"""

import concurrent.futures
import json
import os
import subprocess
import sys

# They take long, mostly to wait: at the end all others would have to wait for them.
FIRST = {"bad_input", "foreign"}


def programs(lines, chosen):
    """The folder of each test program of the crates that are chosen, its name, and the program."""
    for line in lines:
        built = json.loads(line)
        is_test = built.get("executable") and built["profile"]["test"] and built["target"]["test"]
        if is_test and not {"bench", "example"} & set(built["target"]["kind"]):
            folder = os.path.dirname(built["manifest_path"])
            if chosen(os.path.basename(folder)):
                yield folder, built["target"]["name"], built["executable"]


def run(folder, program):
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
    lanes, *crates = sys.argv[1:]
    but = crates[0] == "--but"
    found = list(programs(sys.stdin, lambda crate: (crate in crates) != but))
    # From the end of the alphabet: what takes long is there.
    found.sort(key=lambda test: (test[1] in FIRST, test[2]), reverse=True)
    with concurrent.futures.ThreadPoolExecutor(int(lanes)) as pool:
        failed = sum(pool.map(lambda test: run(test[0], test[2]), found))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

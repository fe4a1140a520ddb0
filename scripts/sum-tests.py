#!/usr/bin/env python3
"""Reports how the steps of scripts/test.sh ended. Usage: scripts/sum-tests.py FOLDER STEP...

FOLDER has the output of each step (STEP.log), its exit status (STEP.status) and its time (STEP.seconds). The
report begins with the slowest tests. Then come the output of each failed test, a line for each step, and the
sum, so that the end of a long log shows what failed. The exit status is 1 if anything failed.
"""

import pathlib
import re
import sys

SLOWEST = 20

# Limits on the shown output of a failed test.
LINES = 60
COLUMNS = 400


def steps(folder, name):
    """Returns the output of a step, line by line, without colours."""
    path = folder / f"{name}.log"
    text = path.read_text(errors="replace") if path.exists() else ""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def counts(lines):
    """Returns how many tests passed and failed by the runners' own summaries; nothing if there is none."""
    passed = failed = 0
    seen = False
    for line in lines:
        # cargo:       test result: ok. 12 passed; 0 failed; 1 ignored; …
        # vitest:      Tests  1 failed | 12 passed (13)
        if line.startswith("test result: ") or re.match(r"\s*Tests\s.*\(\d+\)$", line):
            said = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed)", line)}
            passed, failed, seen = passed + said.get("passed", 0), failed + said.get("failed", 0), True
        # node --test: ℹ pass 12   ℹ fail 0   ℹ cancelled 0
        elif node := re.fullmatch(r"[#ℹ] (pass|fail|cancelled) (\d+)", line):
            if node[1] == "pass":
                passed, seen = passed + int(node[2]), True
            else:
                failed += int(node[2])
    return (passed, failed) if seen else None


def times(folder, printed):
    """Yields each test's seconds and name: cargo's as run-tests.py recorded them, node's as it printed them."""
    noted = folder / "times"
    for line in noted.read_text().splitlines() if noted.exists() else ():
        seconds, name = line.split(" ", 1)
        yield float(seconds), name
    for line in printed:
        if node := re.fullmatch(r"\s*[✔✖] (.+) \(([\d.]+)ms\)", line):
            yield float(node[2]) / 1000, node[1]


def failures(lines):
    """Yields the output of each failed test, with its name first."""
    program, said = "", None
    for at, line in enumerate(lines):
        if running := re.match(r"\s+Running (\S+) in (\S+)", line):
            program = running[1]
        # cargo: a block for each failed test, up to the list of their names.
        cargo = re.fullmatch(r"---- (.+) stdout ----", line)
        # node and vitest: a list of all failed tests at the end.
        other = re.match(r"test at |\s*FAIL\s", line)
        if cargo or other or line.startswith("error: "):
            if said:
                yield said
            said = [f"{program} {cargo[1]}" if cargo else line]
            # A program that was ended has no list, so its last output is shown.
            if line.startswith("error: ") and "had not ended" in line:
                said += lines[max(0, at - LINES) : at]
        elif said and line in ("failures:", "successes:") or line.startswith("test result: "):
            if said:
                yield said
            said = None
        elif said:
            said.append(line)
    if said:
        yield said


def shown(said):
    """Returns as many lines as fit, from the panic on: a server's log may come before it."""
    name, lines = said[0], [line for line in said[1:] if line.strip()]
    panic = next((at for at, line in enumerate(lines) if " panicked at " in line), 0)
    before = ["… and before that:", *lines[:panic]] if panic else []
    lines = lines[panic:] + before
    more = [f"… {len(lines) - LINES} lines more"] if len(lines) > LINES else []
    return [f"--- {name}", *("    " + line[:COLUMNS] for line in lines[:LINES] + more)]


def main():
    folder, *names = sys.argv[1:]
    folder = pathlib.Path(folder)
    printed = {name: steps(folder, name) for name in names}

    print(f"\n== slowest {SLOWEST}")
    slowest = sorted(times(folder, sum(printed.values(), [])), reverse=True)
    for seconds, test in slowest[:SLOWEST]:
        print(f"{seconds:7.1f} s  {test}")

    table, all_passed, all_failed = [], 0, 0
    for name in names:
        path = folder / f"{name}.status"
        status = path.read_text().strip() if path.exists() else "did not run"
        counted = counts(printed[name])
        passed, failed = counted or (0, 0)
        if status != "0":
            said = list(failures(printed[name])) or [[name, *printed[name][-LINES:]]]
            print(f"\n== failed in {name}")
            print("\n".join(line for test in said for line in shown(test)))
            # The step failed without a failed test, so the step counts as the failure.
            failed = failed or 1
        all_passed, all_failed = all_passed + passed, all_failed + failed
        verdict = {"0": "ok", "124": "FAILED (out of time)", "137": "FAILED (out of time)"}.get(
            status, f"FAILED (status {status})"
        )
        verdict += f", {passed} passed, {failed} failed" if counted else ""
        path = folder / f"{name}.seconds"
        took = f" ({path.read_text().strip()} s)" if path.exists() else ""
        table.append(f"{name:<11}  {verdict}{took}")
    print("\n== summary", *table, f"{all_passed} passed, {all_failed} failed", sep="\n")
    sys.exit(1 if all_failed else 0)


if __name__ == "__main__":
    main()

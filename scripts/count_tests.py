#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""count_tests.py TESTLOG.JSON

Counts what `meson test` ran: the tests inside each cmocka program, the "ok" and "not ok" lines of each script; one
for a program that prints neither. Prints lines "passed<TAB>N", "failed<TAB>NAME", "skipped<TAB>NAME: REASON".
A program that ended badly though none of its tests failed (a leak, a race, a crash, a time-out) is one failure.
"""

import json
import re
import sys

PASSED = re.compile(r"^(?:\[       OK \]|ok\b(?!.*# SKIP))", re.M)
FAILED = re.compile(r"^(?:\[  FAILED  \] (?!\d+ test)(.*)|not ok\b[ \d-]*(.*))$", re.M)
SKIPPED = re.compile(r"^(?:\[  SKIPPED \] (?!\d+ test)(.*)|ok\b[ \d-]*(.*# SKIP.*))$", re.M)


def names(pattern, text):
    return dict.fromkeys((m[1] or m[2] or "").strip() for m in pattern.finditer(text))


def main():
    passed = 0
    with open(sys.argv[1]) as f:
        runs = [json.loads(line) for line in f if line.strip()]
    for run in runs:
        name = run["name"].split(" / ")[-1]
        output = (run.get("stdout") or "") + "\n" + (run.get("stderr") or "")
        if run["result"] == "SKIP":
            reason = output.strip().split("\n")[-1] or "no reason given"
            print("skipped\t%s: %s" % (name, reason))
            continue
        good, bad = len(PASSED.findall(output)), names(FAILED, output)
        for test in names(SKIPPED, output):
            print("skipped\t%s: %s" % (name, test))
        for test in bad:
            print("failed\t%s: %s" % (name, test))
        if run["result"] != "OK" and not bad:
            print("failed\t%s: %s, exit status %s" % (name, run["result"], run.get("returncode")))
        passed += max(good, 1) if run["result"] == "OK" else good
    print("passed\t%d" % passed)


if __name__ == "__main__":
    main()

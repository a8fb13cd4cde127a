#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Every fuzz target over its corpus, and some thousand inputs more, always the same ones.
set -euo pipefail
cd "$(dirname "$0")/.."

FUZZ_RUNS=${FUZZ_RUNS:-3000} exec scripts/fuzz.sh "${1:-build}"

#!/usr/bin/env bash
# GPU tests and benchmarks: tests/gpu/run_gpu.sh [golden model ...]
#
# Needs one NVIDIA GPU, a Python with cupy-cuda12x or -13x, and STRATADESK_GOLDEN for the golden
# models. Names of golden models limit the run to those, so that it can be split.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" STRATADESK_GPU_GOLDENS="$*"
python3 -m pytest -c tests/gpu/pytest.ini --rootdir . --confcutdir . -p no:cacheprovider tests/gpu -q -rA --tb=short --maxfail=8

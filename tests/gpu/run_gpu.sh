#!/usr/bin/env bash
# GPU tests and benchmarks: tests/gpu/run_gpu.sh [-o FOLDER] [-t] [golden model ...]
#
# Needs one NVIDIA GPU, a Python with cupy-cuda12x or -13x, and STRATADESK_GOLDEN for the golden
# models. Names of golden models limit the run to those, so that it can be split; -t runs the tests
# alone. Into FOLDER (.gpu-results) go what was printed, JSON, and table.md for docs/measurements.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=.gpu-results
benchmarks=yes
while getopts "o:t" option; do
    case "$option" in
        o) out="$OPTARG" ;;
        t) benchmarks=no ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" STRATADESK_GPU_GOLDENS="$*"

failed=0
step() { # step NAME SECONDS COMMAND ...: run it, keep what it prints, go on whatever happens
    local name="$1" limit="$2" began=$SECONDS
    shift 2
    timeout "$limit" "$@" 2>&1 | tee "$out/$name.txt"
    local status=${PIPESTATUS[0]}
    echo "== $name: status $status after $((SECONDS - began)) s"
    ((status == 0)) || failed=1
}

pytest=(python3 -m pytest -c tests/gpu/pytest.ini --rootdir . --confcutdir . -p no:cacheprovider)
step tests 300 "${pytest[@]}" tests/gpu -q -rA --tb=short --maxfail=8 --junitxml="$out/tests.xml"
if [[ "$benchmarks" == yes ]]; then
    if command -v compute-sanitizer > /dev/null; then
        for tool in racecheck synccheck; do
            step "$tool" 90 compute-sanitizer --tool "$tool" --report-api-errors no \
                --error-exitcode 9 "${pytest[@]}" tests/gpu/test_memcheck.py -q
        done
        step memcheck 240 compute-sanitizer --tool memcheck --report-api-errors no \
            --error-exitcode 9 "${pytest[@]}" tests/gpu/test_memcheck.py tests/gpu/test_golden.py -q
    else
        echo "compute-sanitizer is not here: the fences of test_fences.py stand in for it."
    fi
    step bandwidth 60 python3 tools/bench_cuda.py --json "$out/bandwidth.json"
    step layers 60 python3 tools/bench_layers.py --json "$out/layers.json"
    step writing 60 python3 tools/bench_writing.py assets/guide.gguf --json "$out/writing.json"
fi
python3 tools/gpu_table.py "$out" > "$out/table.md" || failed=1
exit "$failed"

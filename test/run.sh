#!/usr/bin/env bash
# All tests, from a fresh clone: installs what is missing (Debian 12), checks the format and what an addition touches, builds, runs the unit tests
# (ctest) and the end-to-end tests (test/e2e). Where there are four processors or more, a part of the unit tests runs with sanitizers, too: TAMP_ASAN=graph
# asks for that anywhere, TAMP_ASAN=1 for all of them, TAMP_ASAN=0 for none. What needs nvcc or a GPU runs where there is one. The last line is
# "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/packages.sh

passed=0
failed=0
log=build/test.log

say_time() { echo "== $((SECONDS / 60)) min $((SECONDS % 60)) s so far"; }

# add_up LOG STATUS: counts what a finished command says of itself ("N passed, N failed", or ctest's summary).
add_up() {
  local good=0 bad=0
  if [[ $(tail -n 1 "$1") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    good=${BASH_REMATCH[1]}
    bad=${BASH_REMATCH[2]}
  elif [[ $(grep -E 'tests? passed, .* out of ' "$1" || true) =~ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]]; then
    bad=${BASH_REMATCH[1]}
    good=$((BASH_REMATCH[2] - bad))
  fi
  # A program that died before it could count is a failure too.
  [ "$2" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
  passed=$((passed + good))
  failed=$((failed + bad))
}

# count COMMAND...: runs it and adds up what it says.
count() {
  local status=0
  echo "== $*"
  "$@" 2>&1 | tee "$log" || status=$?
  add_up "$log" "$status"
  say_time
}

# count_together PROGRAM...: end-to-end tests (or fuzz_models), several at a time, so that no processor waits for the last test of a program. What
# a program printed is shown when all have ended.
count_together() {
  local cores at_once name program
  cores=$(nproc)
  at_once=$((cores < 8 ? 2 : cores / 4))
  export TAMP_TEST_JOBS=$(((cores + at_once - 1) / at_once))
  rm -rf build/logs
  mkdir -p build/logs
  for program in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
    name=build/logs/$(basename "$program" .py)
    (
      status=0
      begin=$SECONDS
      case $program in
        *.py) build/venv/bin/python "$program" "$tamp" ;;
        *) "$program" build/corpus --seconds 30 --findings build ;;
      esac >"$name.log" 2>&1 || status=$?
      echo "$status" >"$name.status"
      echo "== $program: $(tail -n 1 "$name.log"), $((SECONDS - begin)) s"
    ) &
  done
  wait
  unset TAMP_TEST_JOBS
  for program in "$@"; do
    name=build/logs/$(basename "$program" .py)
    echo "== $program"
    cat "$name.log"
    add_up "$name.log" "$(cat "$name.status")"
  done
  say_time
}

find_nvcc() { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }
find_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null; }

# What only tests need when they run: it is installed or made while the compiler works on tamp.
prepare_tests() {
  install_packages "${test_packages[@]}"
  if ! build/venv/bin/python -c 'import numpy, onnx, onnxruntime' 2>/dev/null; then
    echo "installing numpy, onnx, onnxruntime into build/venv"
    python3 -m venv build/venv
    build/venv/bin/python -m pip install --quiet --disable-pip-version-check numpy onnx onnxruntime
  fi
  bash test/precompile_stand_in.sh build/gxx  # g++ as before, in less time
}

install_packages "${build_packages[@]}" "${python_packages[@]}" catch2
mkdir -p build
count bash test/format.sh  # may install clang-format into build/venv
(prepare_tests) >build/prepare.log 2>&1 &
preparing=$!
count python3 test/places/count_places.py

if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake --preset release -DTAMP_TESTS=ON -DTAMP_PRECOMPILE=ON
cmake --build --preset release
say_time
wait "$preparing" || { cat build/prepare.log && exit 1; }
cat build/prepare.log
export PATH=$PWD/build/gxx:$PATH
echo "== built after $((SECONDS / 60)) min $((SECONDS % 60)) s"

excluded=gpu
find_nvcc || excluded='gpu|nvcc'
count ctest --preset release -LE "$excluded" -j"$(nproc)" --no-tests=error

# With the address and undefined-behaviour sanitizers, a second build: the tests of the way from a file to a graph (what a user hands in goes there)
# and a minute of broken models, about 13 minutes of one core; where TAMP_ASAN=1, all unit tests; where it is 0, broken models only, as they are.
build/venv/bin/python test/fuzz/make_corpus.py build/corpus
programs=()
sanitized=$([ "$(nproc)" -ge 4 ] && echo graph || echo 0)
case ${TAMP_ASAN:-$sanitized} in
  1 | graph)
    cmake --preset asan
    if [ "${TAMP_ASAN:-}" = 1 ]; then
      cmake --build --preset asan
      count ctest --preset asan -j"$(nproc)" --no-tests=error
    else
      cmake --build --preset asan --target graph_tests
      count ctest --preset asan -L graph -j"$(nproc)" --no-tests=error
    fi
    count build/asan/bin/fuzz_models build/corpus --seconds 60 --findings build
    ;;
  *)
    programs=(build/release/bin/fuzz_models)  # below
    echo "no sanitizers on so few processors, or by TAMP_ASAN=0; TAMP_ASAN=graph runs a part of the unit tests with them, TAMP_ASAN=1 all"
    ;;
esac

tamp=$PWD/build/release/bin/tamp
longest=(races_test transformers_test decoders_test models_test conformance pattern_test ray_test docs_test cli_test networks_test python_test recurrent_test mutants_test)  # first, so that none is left alone
find_nvcc && longest=(nvcc_bodies_test "${longest[@]}")
for name in "${longest[@]}"; do programs+=("test/e2e/$name.py"); done
for program in test/e2e/*_test.py test/e2e/bad_inputs.py; do
  case $program in
    */gpu_test.py) continue ;;  # below
    */nvcc_test.py | */nvcc_bodies_test.py) find_nvcc || continue ;;
  esac
  case " ${longest[*]} " in *" $(basename "$program" .py) "*) continue ;; esac
  programs+=("$program")
done
count_together "${programs[@]}"

find_nvcc || echo "no nvcc: tests that compile for a GPU are left out"

if find_gpu && find_nvcc; then
  before=$passed
  before_failed=$failed
  count build/venv/bin/python test/e2e/gpu_test.py "$tamp"
  echo "on the GPU: $((passed - before)) passed, $((failed - before_failed)) failed"
else
  echo "no GPU: tests that run on one are left out"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# Checks that all C++ and CUDA sources are formatted as .clang-format says; --fix formats them. The version is pinned, since each
# formats a little differently: Debian 12's, which PyPI has too (build/venv takes it from there where it is missing).
# The last line is "N passed, N failed", counted in files.
set -euo pipefail
cd "$(dirname "$0")/.."
version=14.0.6

find_formatter() {
  local name
  for name in build/venv/bin/clang-format clang-format-14 clang-format; do
    command -v "$name" >/dev/null || continue
    [[ $("$name" --version) == *"version $version"* ]] || continue
    echo "$name"
    return
  done
  [ -x build/venv/bin/python ] || python3 -m venv build/venv >&2
  build/venv/bin/python -m pip install --quiet --disable-pip-version-check "clang-format==$version" >&2
  echo build/venv/bin/clang-format
}

formatter=$(find_formatter)
mapfile -t files < <(find compiler kernels codegen runtime_stub test examples -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cuh' \) | sort)
if [ "${1:-}" = --fix ]; then
  "$formatter" -i "${files[@]}"
  exit
fi

# The formatter's warnings begin with "FILE:LINE:".
status=0
warnings=$("$formatter" --dry-run --Werror "${files[@]}" 2>&1) || status=$?
mapfile -t wrong < <(sed -nE 's/^([^: ]+):[0-9]+:.*/\1/p' <<<"$warnings" | sort -u)
for file in "${wrong[@]}"; do echo "$file is not formatted: test/format.sh --fix does it (clang-format $version)"; done
failed=${#wrong[@]}
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
  echo "$warnings"
  failed=1
fi
echo "$((${#files[@]} - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]

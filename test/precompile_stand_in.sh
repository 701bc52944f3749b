#!/usr/bin/env bash
# precompile_stand_in.sh FOLDER: makes FOLDER/g++, which compiles as g++ does but reads the stand-in for CUDA and the standard headers that it and
# the generated sources include from precompiled headers: about 0.8 of the 3.5 s that a small network takes. test/run.sh puts FOLDER in front of PATH
# for its tests, which start g++ several hundred times. What is compiled without the
# stand-in or without -march=native is compiled as ever, so also what users compile by hand (user_project_test.py), where a header that a source
# forgets to include is an error.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
gxx=$(PATH=${PATH//"$folder:"/} command -v g++)
stand_in=runtime_stub/cuda_on_cpu

rm -rf "$folder/stand_in.h.gch"
mkdir "$folder/stand_in.h.gch"
{
  grep -h '^#include <' runtime_stub/host/*.h runtime_stub/host/runner.cpp kernels/*/*.cuh | grep -vE '<(cuda|cpu_)' | LC_ALL=C sort -u
  printf '#include <%s>\n' cuda.h cuda_runtime.h cuda_runtime_api.h
} >"$folder/stand_in.h"

# One for all levels of the optimiser, and one for --races, where the sanitizer is a macro that headers ask for (compiler/cli/toolchain.cpp).
options=(-std=c++20 -O1 -march=native -Wno-unknown-pragmas -DTAMP_CUDA_ON_CPU -I "$stand_in" -x c++-header)
"$gxx" "${options[@]}" -o "$folder/stand_in.h.gch/usual" "$folder/stand_in.h"
"$gxx" "${options[@]}" -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -o "$folder/stand_in.h.gch/races" "$folder/stand_in.h"

cat >"$folder/g++" <<SCRIPT
#!/bin/sh
case " \$* " in
  *" -DTAMP_CUDA_ON_CPU "*" -march=native "* | *" -march=native "*" -DTAMP_CUDA_ON_CPU "*) exec '$gxx' -include '$folder/stand_in.h' "\$@" ;;
esac
exec '$gxx' "\$@"
SCRIPT
chmod +x "$folder/g++"

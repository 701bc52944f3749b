#!/usr/bin/env bash
# precompile_stand_in.sh FOLDER: makes FOLDER/g++, which compiles as g++ does but reads the stand-in for CUDA and the standard headers that it and
# the generated sources include from precompiled headers: about 0.8 of the 3.5 s that a small network takes. test/run.sh puts FOLDER in front of PATH
# for its tests, which start g++ several hundred times. What is compiled without the
# stand-in or without -march=native is compiled as ever, so also what users compile by hand (user_project_test.py), where a header that a source
# forgets to include is an error.
#
# Many tests run a program that another test has run: with other inputs, or to see something else of it. What g++ made of the same words and the same
# sources since this script ran is copied from FOLDER/made.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
root=$PWD
gxx=$(PATH=${PATH//"$folder:"/} command -v g++)
stand_in=runtime_stub/cuda_on_cpu

# precompile LEVEL NAME OPTION...: a header for this level of the optimiser. g++ takes one of another level, too, and may crash then.
precompile() {
  local level=$1 name=$2 header=$folder/$1/stand_in.h
  shift 2
  mkdir -p "$header.gch"
  {
    grep -h '^#include <' runtime_stub/host/*.h runtime_stub/host/runner.cpp kernels/*/*.cuh | grep -vE '<(cuda|cpu_)' | LC_ALL=C sort -u
    printf '#include <%s>\n' cuda.h cuda_runtime.h cuda_runtime_api.h
  } >"$header"
  "$gxx" -std=c++20 "-$level" -march=native -Wno-unknown-pragmas -DTAMP_CUDA_ON_CPU -I "$stand_in" "$@" -x c++-header -o "$header.gch/$name" "$header"
}
rm -rf "$folder/Og" "$folder/O1" "$folder/made"
mkdir "$folder/made"
precompile Og usual
precompile O1 usual
precompile O1 races -fsanitize=thread --param tsan-instrument-func-entry-exit=0  # --races: the sanitizer is a macro that headers ask for

cat >"$folder/g++" <<SCRIPT
#!/bin/sh
case " \$* " in
  *" -DTAMP_CUDA_ON_CPU "*" -march=native "* | *" -march=native "*" -DTAMP_CUDA_ON_CPU "*)
    case " \$* " in
      *" -Og "*) set -- -include '$folder/Og/stand_in.h' "\$@" ;;
      *" -O1 "*) set -- -include '$folder/O1/stand_in.h' "\$@" ;;
    esac
    ;;
  *) exec '$gxx' "\$@" ;;
esac

# Sources are those below the working folder and those of the repository that tests include; with files elsewhere nothing is kept.
out=
for word; do
  if [ "\$out" = next ]; then out=\$word; fi
  case \$word in
    -o) out=next ;;
    "$root"/*) ;;
    /* | -I/* | -L/*) exec '$gxx' "\$@" ;;
  esac
done
sources() { find -L "\$1" -type f \( -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.h' -o -name '*.o' \) -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; }
made=$folder/made/\$(PATH=/usr/bin:/bin && { printf '%s\\n' "\$@" && sources . && sources '$root/runtime_stub'; } | sha256sum | cut -c 1-64)
if [ -n "\$out" ] && [ -e "\$made" ]; then
  cp "\$made" "\$out"
else
  '$gxx' "\$@" || exit
  [ -z "\$out" ] || { cp "\$out" "\$made.\$\$" && mv "\$made.\$\$" "\$made"; }
fi
SCRIPT
chmod +x "$folder/g++"

#!/usr/bin/env bash
# precompile_stand_in.sh FOLDER: makes FOLDER/g++, which compiles as g++ does but reads the stand-in for CUDA and the standard headers that it and
# the generated sources include from precompiled headers, in which the longer functions of the stand-in are but declared: programs get them from one
# object, optimised (test/standin/split.py). Of the 4 s that a small network takes that is nearly half. The program that `tamp run` builds beside a
# model (runtime_stub/host/runner.cpp), a quarter of the rest, knows of the model's name and no more, so it is compiled once for a model called
# "model", and the linker gives that the functions of the one at hand. The host half of the generated source itself, a third of what is left, is the
# same text in most models, and is compiled once for them all (test/standin/host_half.py). test/run.sh puts FOLDER in front of PATH for its tests,
# which start g++ several hundred times. What is compiled without the stand-in or without -march=native is compiled as ever, so also what users
# compile by hand (user_project_test.py), where a header that a source forgets to include is an error.
#
# Many tests run a program that another test has run: with other inputs, or to see something else of it. What g++ made of the same words and the same
# sources since this script ran is copied from FOLDER/made.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
root=$PWD
gxx=$(PATH=${PATH//"$folder:"/} command -v g++)
stand_in=runtime_stub/cuda_on_cpu
options=(-std=c++20 -march=native -Wno-unknown-pragmas -DTAMP_CUDA_ON_CPU)
races=(-fsanitize=thread --param tsan-instrument-func-entry-exit=0)  # --races: the sanitizer is a macro that headers ask for

# precompile STAND_IN LEVEL NAME OPTION...: a header for this level of the optimiser. g++ takes one of another level, too, and may crash then.
precompile() {
  local stand_in=$1 level=$2 name=$3 header=$folder/$(basename "$1")/$2/stand_in.h
  shift 3
  mkdir -p "$header.gch"
  {
    grep -h '^#include <' runtime_stub/host/*.h runtime_stub/host/runner.cpp kernels/*/*.cuh | grep -vE '<(cuda|cpu_)' | LC_ALL=C sort -u
    printf '#include <%s>\n' cuda.h cuda_runtime.h cuda_runtime_api.h
  } >"$header"
  "$gxx" "${options[@]}" "-$level" -I "$stand_in" "$@" -x c++-header -o "$header.gch/$name" "$header"
}
rm -rf "${folder:?}"/{cuda_on_cpu,declared,defined,made}
mkdir "$folder/made"
python3 test/standin/split.py "$stand_in" "$folder/declared" "$folder/defined"
for level in Og O1; do
  precompile "$stand_in" "$level" usual
  precompile "$folder/declared" "$level" usual
  precompile "$folder/declared" "$level" races "${races[@]}"
done
precompile "$folder/declared" O2 usual
printf '#include <%s>\n' cuda.h cuda_runtime.h cuda_runtime_api.h >"$folder/defined/stand_in.cpp"
"$gxx" "${options[@]}" -O2 -I "$folder/defined" -c -o "$folder/stand_in.o" "$folder/defined/stand_in.cpp"

cat >"$folder/g++" <<SCRIPT
#!/bin/bash
level=
case " \$* " in
  *" -DTAMP_CUDA_ON_CPU "*" -march=native "* | *" -march=native "*" -DTAMP_CUDA_ON_CPU "*)
    case " \$* " in
      *" -Og "*) level=Og ;;
      *" -O1 "*) level=O1 ;;
      *" -O2 "*) level=O2 ;;
    esac
    ;;
  *) exec '$gxx' "\$@" ;;
esac

# The stand-in in two parts, unless it is another one than the repository's.
words=()
headers=cuda_on_cpu
before=
for word; do
  if [ -n "\$level" ] && [ "\$before" = -I ]; then
    case \$word in
      cuda_on_cpu | '$root/$stand_in')
        if diff -rq "\$word" '$root/$stand_in' >/dev/null; then
          word='$folder/declared'
          headers=declared
        fi
        ;;
    esac
  fi
  words+=("\$word")
  before=\$word
done
if [ -n "\$level" ] && [ -e "$folder/\$headers/\$level" ]; then words=(-include "$folder/\$headers/\$level/stand_in.h" "\${words[@]}"); fi
case "\$headers \$* " in
  declared*" -c "*) ;;
  declared*) words+=(-x none '$folder/stand_in.o' -lboost_context) ;;
esac

# Sources are those below the working folder and those of the repository that tests include; with files elsewhere nothing is kept.
out=
for word; do
  if [ "\$out" = next ]; then out=\$word; fi
  case \$word in
    -o) out=next ;;
    "$root"/*) ;;
    /* | -I/* | -L/*) exec '$gxx' "\${words[@]}" ;;
  esac
done
sources() { find -L "\$1" -type f \( -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.h' -o -name '*.o' \) -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; }
made=$folder/made/\$(PATH=/usr/bin:/bin && { printf '%s\\n' "\$@" && sources . && sources '$root/runtime_stub'; } | sha256sum | cut -c 1-64)

# with_runner: makes \$words take the runner from an object in which the model is called "model". Says no if this is none of tamp run's plain
# builds of a model: of its main.cu, or for --races of main.cpp and the model's object.
with_runner() {
  local name main flags=() all=() word object seen=
  name=\$(sed -n '1s/^#define TAMP_MODEL_HEADER "\([A-Za-z0-9_]*\)\.h"\$/\1/p' main.cpp 2>/dev/null)
  [ -n "\$name" ] || return
  main=\$(printf '#define TAMP_MODEL_HEADER "%s.h"\n#define TAMP_MODEL %s\n' "\$name" "\$name")
  [ "\$(<main.cpp)" = "\$main"\$'\n#include "runner.cpp"' ] || return
  for word in "\${words[@]}"; do
    case \$word in
      main.cpp) seen=\$word && continue ;;
      main.cu)
        [ "\$(<main.cu)" = "\$main"\$'\n#include "'"\$name"\$'.cu"\n#include "runner.cpp"' ] || return
        seen=\$word
        word=\$name.cu
        ;;
      -c | -DTAMP_TRACE) return 1 ;;
      -o) flags=("\${all[@]}") ;;
    esac
    all+=("\$word")
  done
  [ -n "\$seen" ] && [ \${#flags[@]} -gt 0 ] || return
  # What the header says of the model's ports is in its first comment.
  local work=$folder/made/runner.\$\$
  mkdir -p "\$work" && cp runner.cpp "\$work" || return
  sed "1,/\*\\/\$/d; s/\\(\\b\\|TAMP_MODEL_H_\\)\${name}\\(\\b\\|_\\)/\\1model\\2/g" "\$name.h" >"\$work/model.h"
  printf '#define TAMP_MODEL_HEADER "model.h"\n#define TAMP_MODEL model\n#include "runner.cpp"\n' >"\$work/main.cpp"
  object=$folder/made/runner-\$({ printf '%s\n' "\${flags[@]}" && cat "\$work"/*; } | sha256sum | cut -c 1-64).o
  [ -e "\$object" ] || { (cd "\$work" && '$gxx' "\${flags[@]}" -c -o made.o main.cpp) && mv "\$work/made.o" "\$object"; }
  rm -r "\$work"
  [ -e "\$object" ] || return
  for word in create destroy input_count inputs message output_count outputs run status; do
    [ "\$name" = model ] || all+=("-Wl,--defsym=model_\$word=\${name}_\$word")
  done
  words=("\${all[@]}" -x none "\$object")
}

# host_object NAME SOURCE: an object of the functions that SOURCE defines for the model NAME. One that does not compile is tried once.
host_object() {
  local any=$folder/made/host-\$({ printf '%s\n' "\${flags[@]}" && cat "\$2"; } | sha256sum | cut -c 1-64).o to=\$((\${#1} + 7))\${1}_detail
  if [ ! -e "\$any" ]; then
    '$gxx' "\${flags[@]}" -c -o "\$work/any.o" "\$2" || : >"\$work/any.o"
    mv "\$work/any.o" "\$any"
  fi
  [ -s "\$any" ] || return
  if [ "\$1" = model ]; then objects+=("\$any") && return; fi
  nm "\$any" | awk -v to="\$to" '{ old = \$NF } gsub(/12model_detail/, to, \$NF) { print old, \$NF }' | LC_ALL=C sort -u >"\$work/names"
  objcopy --redefine-syms="\$work/names" "\$any" "\$work/\$1.o" && objects+=("\$work/\$1.o")
}

# with_host: builds as \$words say, with the host half of each generated source as an object. Says no where warnings are asked for.
with_host() {
  [ "\$headers" = declared ] || return
  local work=$folder/made/host.\$\$ flags=() all=() objects=() word source folders part=0 compiles=
  for word in "\${words[@]}"; do
    case \$word in
      -Wno-* | -Wl,*) ;;
      -W*) return 1 ;;
      -c) compiles=yes ;;
      -o) [ \${#flags[@]} -eq 0 ] && flags=("\${all[@]}") || return ;;
      *.cu)
        part=\$((part + 1))
        folders=\$(python3 '$root/test/standin/host_half.py' "\$word" "\$work/\$part") || return
        word=\$work/\$part/source.cu
        while read -r source; do all+=(-iquote "\$source"); done <<<"\$folders"
        ;;
      -[DOUfmsIi]*) [ \${#flags[@]} -eq 0 ] || return ;;
    esac
    [ "\$word" = -c ] || all+=("\$word")
  done
  [ "\$part" -gt 0 ] && [ \${#flags[@]} -gt 0 ] || return
  for source in "\$work"/*/*.host.cpp; do
    host_object "\$(basename "\$source" .host.cpp)" "\$source" || return
  done
  if [ -z "\$compiles" ]; then
    '$gxx' "\${all[@]}" -x none "\${objects[@]}"
  else
    '$gxx' -c "\${all[@]}" && mv "\$out" "\$work/made.o" && '$gxx' -r -o "\$out" "\$work/made.o" "\${objects[@]}"
  fi
}

if [ -n "\$out" ] && [ -e "\$made" ]; then
  cp "\$made" "\$out"
else
  plain=("\${words[@]}")
  with_runner 2>/dev/null && runner=yes || runner=
  with_host 2>/dev/null || { [ -n "\$runner" ] && '$gxx' "\${words[@]}" 2>/dev/null; } || '$gxx' "\${plain[@]}" || exit
  rm -rf '$folder/made/host.'\$\$
  [ -z "\$out" ] || { cp "\$out" "\$made.\$\$" && mv "\$made.\$\$" "\$made"; }
fi
SCRIPT
chmod +x "$folder/g++"

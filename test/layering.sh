#!/usr/bin/env bash
# Checks every #include of the sources against the table in docs/architecture.md: who may include whom. Prints each line
# that breaks a rule and exits with 1 if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

# Pattern of files : what they may include of ours (regular expressions, blank between them). The first match counts; \1 is its first group,
# and ! says what they may not.
rules=(
  '^compiler/support/                  : compiler/support/'
  '^compiler/ir/                       : compiler/(ir|support)/ kernels/shared/'
  '^compiler/ops/                      : compiler/(ops|ir|support)/ kernels/shared/'
  '^compiler/frontend/                 : compiler/(frontend|ops|ir|support)/ kernels/shared/'
  '^compiler/passes/passes\.cpp        : compiler/(passes|ops|ir|support)/'
  '^compiler/passes/fuse/              : compiler/passes/(fuse|views)/ compiler/passes/[a-z_]+\.h compiler/(ops|ir|support)/'
  '^compiler/passes/([a-z]+)/          : compiler/passes/\1/ compiler/passes/[a-z_]+\.h compiler/(ops|ir|support)/'
  '^compiler/passes/                   : compiler/passes/[a-z_]+\.h compiler/(ops|ir|support)/'
  '^compiler/select/                   : compiler/(select|ir|support)/ kernels/catalogue\.h'
  '^compiler/schedule/                 : compiler/(schedule|select|ops|ir|support)/ kernels/(catalogue\.h|vdevice/numbers\.cuh)'
  '^compiler/shape/                    : compiler/(shape|passes|schedule|select|ops|ir|support)/'
  '^compiler/compile\.                 : compiler/(compile\.h|frontend|shape|passes|schedule|select|ops|ir|support) codegen/codegen\.h'
  '^compiler/cli/                      : compiler/ codegen/codegen\.h kernels/vdevice/numbers\.cuh'
  '^kernels/shared/                    : kernels/shared/'
  '^kernels/vdevice/                   : kernels/(vdevice|shared)/'
  '^kernels/([a-z]+)/.*\.cuh$          : kernels/(\1|tile|vdevice)/.*\.cuh kernels/shared/'
  '^kernels/([a-z]+)/[a-z_]+_fusion\.cpp : !kernels/catalogue\.h kernels/(\1|tile)/[a-z0-9_]+\.h kernels/(\1|tile)/numbers\.cuh kernels/[a-z_]+\.h compiler/(ir|support)/ compiler/passes/[a-z_]+\.h compiler/passes/views/window_heads\.h'
  '^kernels/([a-z]+)/                  : !kernels/catalogue\.h kernels/(\1|tile)/[a-z0-9_]+\.h kernels/(\1|tile|vdevice)/[a-z_]*numbers\.cuh kernels/[a-z_]+\.h kernels/shared/ compiler/(ir|support)/'
  '^kernels/catalogue\.                : kernels/[a-z]+/[a-z_]+\.h kernels/(catalogue|family)\.h compiler/(ir|support)/'
  '^kernels/                           : !kernels/catalogue\.h kernels/[a-z_]+\.h kernels/vdevice/numbers\.cuh kernels/shared/ compiler/(ir|support)/'
  '^codegen/                           : codegen/ compiler/(ir|support)/ kernels/(catalogue\.h|vdevice/numbers\.cuh) runtime_stub/host/checksum\.h'
  '^runtime_stub/host/                 : runtime_stub/host/ kernels/vdevice/'
  '^runtime_stub/python/              : library\.h'
  '^runtime_stub/cuda_on_cpu/          : [a-z_]+\.h'
)
# A library : the only places that may see it.
libraries=(
  'onnx/                    : ^compiler/frontend/|^test/'
  'google/protobuf          : ^compiler/frontend/|^test/'
  'Eigen/                   : ^compiler/ops/|^test/'
  'CLI/                     : ^compiler/cli/|^test/'
  'boost/                   : ^runtime_stub/cuda_on_cpu/'
  'nanobind/                : ^runtime_stub/python/module\.cpp'
  'cuda_runtime             : ^kernels/.*\.cuh$|^runtime_stub/|^test/|^examples/'
)

failures=0
report() {
  echo "layering: $1"
  failures=$((failures + 1))
}

check_ours() {  # file, included
  local rule pattern allowed one
  for rule in "${rules[@]}"; do
    read -r pattern _ <<<"$rule"
    [[ $1 =~ $pattern ]] || continue
    allowed=${rule#* : }
    allowed=${allowed//\\1/${BASH_REMATCH[1]:-}}
    for one in $allowed; do
      [[ $one == !* && $2 =~ ^${one#!} ]] && break
      [[ $2 =~ ^$one ]] && return
    done
    report "$1 includes \"$2\", allowed: $allowed"
    return
  done
}

check_library() {  # file, included
  local rule name places
  for rule in "${libraries[@]}"; do
    read -r name _ places <<<"$rule"
    [[ $2 == "$name"* && ! $1 =~ $places ]] && report "$1 includes <$2>, which only $places may"
  done
  return 0
}

mapfile -t files < <(find compiler kernels codegen runtime_stub test examples -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' \) | sort)
checked=0
while IFS=: read -r file include; do
  checked=$((checked + 1))
  [[ $include =~ [\<\"]([^\>\"]*)[\>\"] ]] && name=${BASH_REMATCH[1]}
  case $include in
    *'"'*) check_ours "$file" "$name" ;;
    *'<'*) check_library "$file" "$name" ;;
  esac
done < <(grep -HE '^ *# *include *[<"]' "${files[@]}")

echo "layering: $checked includes checked, $failures against the rules"
[[ $checked -gt 0 && $failures -eq 0 ]]

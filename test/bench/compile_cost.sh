#!/usr/bin/env bash
# Measures what compiling costs: compile_cost.sh TAMP ARCH MODEL.onnx... prints one Markdown row per model: seconds and memory of `tamp
# compile`, seconds and memory of nvcc, KB of machine code, bytes of register spills. Needs nvcc, readelf and GNU time; no GPU. OPTIONS in the
# environment go to `tamp compile`: OPTIONS='--precision fp16 --batch 32' compile_cost.sh ...
set -euo pipefail
tamp=$1 arch=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "| model | tamp compile | nvcc | machine code KB | spilled bytes |"
echo "|---|---|---|---|---|"
for model in "$@"; do
  name=$(basename "$model" .onnx)
  # shellcheck disable=SC2086  # several words
  /usr/bin/time -f '%e s, %M KB' -o "$folder/tamp" "$tamp" compile "$model" -o "$folder/$name" -q ${OPTIONS:-}
  /usr/bin/time -f '%e s, %M KB' -o "$folder/nvcc" nvcc -std=c++20 -O3 "-arch=$arch" -Xptxas -v -cubin -o "$folder/cubin" "$folder/$name/$name.cu" 2>"$folder/log"
  code=$(readelf -SW "$folder/cubin" 2>/dev/null | python3 -c 'import re, sys; print(sum(int(m[1], 16) for m in re.finditer(r"\.text\S*\s+PROGBITS\s+\S+\s+\S+\s+(\S+)", sys.stdin.read())) // 1024)')
  spills=$(grep -oE '[0-9]+ bytes spill stores' "$folder/log" | awk '{ sum += $1 } END { print sum + 0 }')
  echo "| $name | $(cat "$folder/tamp") | $(cat "$folder/nvcc") | $code | $spills |"
  rm -rf "$folder/${name:?}"
done

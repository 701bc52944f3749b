#!/usr/bin/env bash
# Checks that no function of kernels/ has more than 100 lines: what is longer has stages that want names. The sources are formatted
# (test/format.sh), so a function ends with the first brace that is indented like its first line.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(find kernels -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cuh' \) | sort)
awk -v most=100 '
  FNR == 1 { inside = "" }
  { match($0, /^ */); indent = substr($0, 1, RLENGTH) }
  inside != "" {  # in a function, whose first line is indented by `inside` without its first character
    if ($0 ~ "^" substr(inside, 2) "}") {
      lines = FNR - first + 1
      functions += 1
      if (lines > most) { print "function_lines: " FILENAME ":" first " has " lines " lines: " name; too_long += 1 }
      inside = ""
    }
    next
  }
  /^ *(#|\/\/|template|requires)/ || NF == 0 { next }
  indent == last || name == "" || length(indent) < length(last) + 4 { first = FNR; name = $0; last = indent }
  /\{$/ && name !~ /^ *(struct|class|namespace|enum|union|extern)/ && !/= \{$/ { inside = "-" last }
  END { print functions - too_long + 0 " passed, " too_long + 0 " failed"; exit functions == 0 || too_long > 0 }
' "${files[@]}"

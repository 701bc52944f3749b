#!/usr/bin/env bash
# Verifies this version on a GPU with one command:
#
#     bash test/gpu/verify.sh [OPTIONS of test/gpu/verify.py]
#
# On a machine without a GPU it packs what another machine needs beside the working tree into build/gpu: build/release/bin/tamp with the libraries
# that it was linked with, and the commit. With a GPU it runs test/gpu/verify.py, by the packed tamp if there is one, else by build/release/bin/tamp.
# That machine needs nvcc, g++ and Python with numpy, onnx, onnxruntime, torch, torchvision, timm and transformers; nothing of tamp's own packages.
set -euo pipefail
cd "$(dirname "$0")/../.."

commit() { echo "$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD && git diff --quiet --cached || echo ' with changes')"; }

# Libraries that every system has, and whose version must fit the system's own, are left out.
pack() {
  local tamp=build/release/bin/tamp folder=build/gpu
  [ -x $tamp ] || { echo "error: no $tamp: build it first" >&2; return 1; }
  rm -rf $folder
  mkdir -p $folder/bin $folder/lib
  cp $tamp $folder/bin/tamp
  ldd $tamp | awk '$3 ~ /^\// { print $3 }' | grep -Ev '/(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl)\.so' | xargs -I{} cp -L {} $folder/lib/
  cat >$folder/tamp <<'END'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/bin/tamp" "$@"
END
  chmod +x $folder/tamp
  commit >$folder/commit
  $folder/tamp devices >/dev/null
  echo "packed into $folder ($(du -sm $folder | cut -f1) MB): take it and the working tree along, and run this command there"
}

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  pack
elif [ -x build/gpu/tamp ]; then
  exec python3 test/gpu/verify.py --tamp build/gpu/tamp --commit "$(cat build/gpu/commit)" "$@"
else
  exec python3 test/gpu/verify.py --tamp build/release/bin/tamp --commit "$(commit)" "$@"
fi

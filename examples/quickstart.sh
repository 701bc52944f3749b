#!/usr/bin/env bash
# From a fresh clone to a network that runs: installs what is missing (Debian 12), builds the compiler, makes weights for
# SqueezeNet, compiles it, runs it on the GPU (or, without one, on the CPU with tamp's stand-in for CUDA), and compares the
# result with the reference. Takes some minutes the first time, most of them for the build.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/packages.sh

echo "== 1. packages"
install_packages "${build_packages[@]}"

echo "== 2. the compiler: build/release/bin/tamp"
mkdir -p build
cmake --preset release -DTAMP_TESTS=OFF -DTAMP_PRECOMPILE=ON >build/quickstart.log || { cat build/quickstart.log; exit 1; }
cmake --build --preset release --target tamp

echo "== 3. a model: SqueezeNet 1.0 as PyTorch exported it, with made-up weights"
python3 examples/make_weights.py examples/models/squeezenet1_0.onnx --into build/examples

echo "== 4. compiled, built, run, compared with the reference"
build/release/bin/tamp run build/examples/squeezenet1_0.onnx --check --keep build/examples/squeezenet1_0

echo
echo "The generated source is build/examples/squeezenet1_0/squeezenet1_0.cu. Next:"
echo "  build/release/bin/tamp inspect build/examples/squeezenet1_0     what every vEU does"
echo "  build/release/bin/tamp run YOUR_MODEL.onnx --check              your own network"

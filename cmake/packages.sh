# shellcheck shell=bash disable=SC2034  # the arrays are for those that source it
# Sourced by examples/quickstart.sh and test/run.sh: what tamp needs of the system, and how it is installed where it is missing.
# The names are those of Debian 12; on systems without apt the scripts only say what they would have installed.

build_packages=(build-essential cmake ninja-build libonnx-dev libprotobuf-dev protobuf-compiler libfmt-dev libspdlog-dev libcli11-dev
  nlohmann-json3-dev libeigen3-dev libboost-context-dev python3)
python_packages=(python3-dev python3-venv)  # pip install . into a virtual environment, beside build_packages
test_packages=(catch2 libonnx-testdata chromium dpkg-dev file)  # chromium: pages of tamp inspect --html; dpkg-dev, file: the .deb

# install_packages NAME...: installs those that are missing, with sudo if needed.
install_packages() {
  local name missing=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "tamp needs these packages, or what your system calls them: $*"
    return
  fi
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "installing: ${missing[*]}"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

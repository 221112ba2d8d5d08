#!/usr/bin/env bash
# Installs the Debian packages that Spool is built and tested with, unless all are installed already.
#   scripts/setup.sh          packages for building and testing
#   scripts/setup.sh build    packages for building the library and the command
set -euo pipefail

# oneDNN's CMake package looks for OpenCL, which libdnnl-dev only recommends.
build=(g++ cmake ninja-build ccache libdnnl-dev ocl-icd-opencl-dev libspdlog-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libpcre2-dev libutf8proc-dev liburing-dev libdlpack-dev)
# Chromium draws the pages of reports; ranks of mpirun need MPI, without which all else is built.
check=(libgtest-dev libbenchmark-dev coinor-cbc python3 clang-format-14 clang-tidy-14 clang-14 libclang-rt-14-dev lld
  chromium libopenmpi-dev openmpi-bin)

case ${1:-all} in
  build) wanted=("${build[@]}") ;;
  all) wanted=("${build[@]}" "${check[@]}") ;;
  *) echo "usage: scripts/setup.sh [build]" >&2 && exit 2 ;;
esac

# A build with CUDA uses cuDNN for attention if it has the headers of its frontend, and has ranks on GPUs
# if it has NCCL's.
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  "$(dirname "$0")/cudnn-frontend.sh" || echo "setup: attention on cuda will be slower" >&2
  "$(dirname "$0")/nccl.sh" || echo "setup: the build will have no ranks on GPUs" >&2
  # Only tests need it.
  [ "${1:-all}" = build ] || "$(dirname "$0")/cuobjdump.sh" ||
    echo "setup: the machine code of kernels will not be checked" >&2
fi

if ! command -v dpkg-query apt-get >/dev/null; then
  echo "setup: not a Debian system; Spool needs what Debian calls ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query --show --showformat '${db:Status-Abbrev} ${binary:Package} ${Package}\n' |
  awk '$1 == "ii" { print $3 }' | sort -u)
missing=()
for package in "${wanted[@]}"; do
  grep --quiet --line-regexp --fixed-strings "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "setup: packages are missing; this installs them:" >&2
  echo "  sudo apt-get update && sudo apt-get install --yes ${missing[*]}" >&2
  exit 1
fi

echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet=2 || { echo "setup: apt-get update failed; is there a network?" >&2 && exit 1; }
apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}" >/dev/null

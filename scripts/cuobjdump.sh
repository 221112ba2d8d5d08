#!/usr/bin/env bash
# Fetches cuobjdump and nvdisasm, which print the machine code of CUDA kernels, to
# build/third_party/cuobjdump, unless they are there already or the CUDA toolkit has them. They come from
# PyPI. scripts/machine_code.py uses them.
#   scripts/cuobjdump.sh
set -euo pipefail
cd "$(dirname "$0")/.."

version=13.5.37
folder=build/third_party/cuobjdump

toolkit=${CUDA_PATH:-/usr/local/cuda}/bin
if command -v cuobjdump >/dev/null || [ -x "$toolkit/cuobjdump" ]; then exit 0; fi
if [ "$(cat "$folder/version" 2>/dev/null || true)" = "$version" ]; then exit 0; fi
if [ "$(uname -m)" != x86_64 ]; then
  echo "cuobjdump: it is fetched for x86_64 alone; the machine code of kernels will not be checked" >&2
  exit 0
fi
if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
  echo "cuobjdump: Python's pip is missing; the machine code of kernels will not be checked" >&2
  exit 0
fi

echo "cuobjdump: fetching version $version to $folder"
scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT
if ! python3 -m pip download --quiet --no-deps --only-binary=:all: --platform manylinux_2_17_x86_64 \
  --dest "$scratch" "nvidia-cuda-cuobjdump==$version" "nvidia-cuda-nvdisasm==$version"; then
  echo "cuobjdump: the download failed; is there a network?" >&2
  exit 1
fi
(cd "$scratch" && sha256sum --check --quiet) <<'SUMS'
38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58  nvidia_cuda_cuobjdump-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca  nvidia_cuda_nvdisasm-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
SUMS
rm -rf "$folder"
mkdir -p "$folder/bin"
python3 - "$folder" "$scratch"/*.whl <<'PYTHON'
import pathlib
import sys
import zipfile

folder = pathlib.Path(sys.argv[1])
for package in map(zipfile.ZipFile, sys.argv[2:]):
    for name in package.namelist():
        if "/bin/" in name or "/licenses/" in name:
            of_program = "/bin/" in name
            to = folder / ("bin" if of_program else "licenses") / pathlib.Path(name).name
            to.parent.mkdir(exist_ok=True)
            to.write_bytes(package.read(name))
            to.chmod(0o755 if of_program else 0o644)
PYTHON
echo "$version" >"$folder/version"

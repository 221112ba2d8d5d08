#!/usr/bin/env bash
# Unpacks the header of NCCL, by which ranks on GPUs exchange bytes, and its licence (BSD) into
# build/third_party/nccl, unless the machine has such a header.  They come from a Python package on PyPI
# of 196 MB, of which nothing else is kept: the library itself is found when the program runs.
#   scripts/nccl.sh           makes sure that there is a header
#   scripts/nccl.sh --print   prints its path, too
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.28.9
sha256=e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
folder=build/third_party/nccl

print=false
case ${1:-} in
  "") ;;
  --print) print=true ;;
  *) echo "usage: scripts/nccl.sh [--print]" >&2 && exit 2 ;;
esac

# Whether a file is a header that Spool can be built with (cmake/nccl.cmake).
is_usable() {
  [ -f "$1" ] || return 1
  [ "$(awk '/^#define NCCL_(MAJOR|MINOR) / { v = v * 1000 + $3 } END { print v + 0 }' "$1")" -ge 2028 ]
}

leave() {
  if $print; then echo "$1"; fi
  exit 0
}

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
of_python=$(python3 -c 'import nvidia.nccl; print(nvidia.nccl.__path__[0])' 2>/dev/null || true)
for candidate in "$(dirname "$nvcc")/../include" "$of_python/include" /usr/local/cuda/include /usr/local/include \
  /usr/include "$folder/include"; do
  if is_usable "$candidate/nccl.h"; then leave "$candidate/nccl.h"; fi
done

without="ranks on GPUs will be left out"
if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
  echo "nccl: Python's pip is missing; $without" >&2
  exit 1
fi
echo "nccl: fetching the header of version $version to $folder, from a package of 196 MB" >&2
scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT
# One package for every machine: the header is the same in all.
if ! python3 -m pip download --quiet --no-cache-dir --no-deps --only-binary=:all: \
  --platform manylinux_2_18_x86_64 --dest "$scratch" "nvidia-nccl-cu13==$version"; then
  echo "nccl: the download failed; is there a network? $without" >&2
  exit 1
fi
package=$(find "$scratch" -name '*.whl')
echo "$sha256  $package" | sha256sum --check --quiet
rm -rf "$folder"
mkdir -p "$folder/include"
python3 - "$package" "$folder" <<'PYTHON'
import pathlib
import sys
import zipfile

folder = pathlib.Path(sys.argv[2])
with zipfile.ZipFile(sys.argv[1]) as package:
    for name in package.namelist():
        if name == "nvidia/nccl/include/nccl.h":
            (folder / "include" / "nccl.h").write_bytes(package.read(name))
        elif "/licenses/" in name:
            (folder / pathlib.Path(name).name).write_bytes(package.read(name))
PYTHON
leave "$folder/include/nccl.h"

#!/usr/bin/env bash
# Unpacks the headers of cuDNN's frontend (MIT licence) into build/third_party/cudnn-frontend, unless
# they are there already.  A build with CUDA uses them for attention by cuDNN.  They come from a Python
# package on PyPI, of which nothing else is used.
#   scripts/cudnn-frontend.sh
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.18.0
sha256=382ea063b92cbfd5b442cb75ff8422932d78276aecf139e46713ed1ad3d07af4
folder=build/third_party/cudnn-frontend

if [ "$(cat "$folder/version" 2>/dev/null || true)" = "$version" ]; then exit 0; fi
if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
  echo "cudnn-frontend: Python's pip is missing; attention will use Spool's own kernels" >&2
  exit 0
fi

echo "cudnn-frontend: fetching the headers of version $version to $folder"
scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT
# One package for every machine: the headers are the same in all.
if ! python3 -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
  --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 --dest "$scratch" \
  "nvidia-cudnn-frontend==$version"; then
  echo "cudnn-frontend: the download failed; is there a network?" >&2
  exit 1
fi
package=$(find "$scratch" -name '*.whl')
echo "$sha256  $package" | sha256sum --check --quiet
python3 - "$package" "$scratch" <<'PYTHON'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as package:
    wanted = [name for name in package.namelist() if name.startswith("include/") or "LICENSE" in name]
    package.extractall(sys.argv[2], wanted)
PYTHON
rm -rf "$folder"
mkdir -p "$folder"
mv "$scratch/include" "$folder/include"
find "$scratch" -path '*dist-info*' -name 'LICENSE*' -exec cp {} "$folder/" \;
echo "$version" >"$folder/version"

#!/usr/bin/env bash
# Gathers in .carry/ the libraries that Spool is built with, for a machine that has a compiler but no
# network, where scripts/gpu.sh uses them.  Needs Debian and a network, not root.
#   scripts/carry.sh          fetches them, unless all are there already
#   scripts/carry.sh --list   prints their names
set -euo pipefail
cd "$(dirname "$0")/.."

to=.carry
packages=(libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev liburing-dev libdlpack-dev
  libgtest-dev libbenchmark-dev)

case ${1:-} in
  "") ;;
  --list) printf '%s\n' "${packages[@]}" && exit 0 ;;
  *) echo "usage: scripts/carry.sh [--list]" >&2 && exit 2 ;;
esac

if ! command -v apt-get apt-cache dpkg-deb >/dev/null; then
  echo "carry: not a Debian system; this unpacks Debian's ${packages[*]}" >&2
  exit 1
fi

# Debian's libraries of spdlog, fmt and Google Benchmark are shared, in packages of their own.
mapfile -t shared < <(LC_ALL=C apt-cache depends libspdlog-dev libfmt-dev libbenchmark-dev |
  sed --quiet 's/^ *Depends: \(lib\(spdlog\|fmt\|benchmark\)[0-9].*\)$/\1/p' | sort --unique)
packages+=("${shared[@]}")

if ! uris=$(apt-get download --print-uris "${packages[@]}" 2>/dev/null); then
  echo "carry: apt-get does not know all of ${packages[*]}; run apt-get update as root first" >&2
  exit 1
fi
# packages.txt lists what was fetched, so that the same versions are not fetched again.
wanted=$(awk '{ print $2 }' <<<"$uris" | sort)
if [ "$(cat "$to/packages.txt" 2>/dev/null)" = "$wanted" ]; then
  echo "carry: $to/ has all of them already"
else
  echo "carry: fetching ${packages[*]}"
  work=$(mktemp --directory)
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/fetched" "$work/unpacked"
  if ! (cd "$work/fetched" && apt-get download --quiet=2 "${packages[@]}"); then
    echo "carry: apt-get could not fetch them; is there a network? $to/ is unchanged" >&2
    exit 1
  fi
  for package in "$work"/fetched/*.deb; do dpkg-deb --extract "$package" "$work/unpacked"; done
  # A dangling link would hide the static library beside it.  Other links become files, as some ways
  # to copy a folder drop links.
  find "$work/unpacked" -xtype l -delete
  rm -rf "$work/unpacked/usr/share/doc" "$work/unpacked/usr/share/man"
  rm -rf "${to:?}/usr" "$to/packages.txt"
  mkdir -p "$to"
  cp --recursive --dereference "$work/unpacked/usr" "$to/usr"
  echo "$wanted" >"$to/packages.txt"
fi

frontend=build/third_party/cudnn-frontend
if [ -f scripts/cudnn-frontend.sh ] && bash scripts/cudnn-frontend.sh && [ -d "$frontend" ]; then
  cp --recursive "$frontend/include/." "$to/usr/include/"
else
  echo "carry: cuDNN's frontend is missing; attention will use Spool's own kernels" >&2
fi
if [ -f scripts/nccl.sh ] && nccl=$(bash scripts/nccl.sh --print); then
  cp "$nccl" "$to/usr/include/nccl.h"
else
  echo "carry: NCCL's header is missing; ranks on GPUs will be left out" >&2
fi
echo "carry: $to/ is $(du --summarize --human-readable "$to" | cut --fields=1), for $(uname --machine)"

#!/usr/bin/env bash
# Runs clang-tidy on the sources that are not known to be clean; scripts/tidy.py says more.
#   scripts/tidy.sh [--recent | --all | FILE...]
exec python3 "$(dirname "$0")/tidy.py" "$@"

#!/bin/sh
# Installs what the test device needs besides Python packages: g++ and the headers of Python. compiler.sh PYTHON
# It requires root and apt-get.
set -eu
python=${1:-python3}
missing=''
command -v g++ >/dev/null || missing="$missing g++"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import pathlib, sysconfig; raise SystemExit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' \
  || missing="$missing python$version-dev"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing$missing (half a minute)"
  # shellcheck disable=SC2086
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing; } >/dev/null
else
  echo "error:$missing not found, which the test device needs (Debian: apt-get install$missing)" >&2
  exit 2
fi

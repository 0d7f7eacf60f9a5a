#!/bin/sh
# Builds .venv with what constraints.txt pins, and compiles modules and kernels once. Usage: setup.sh PYTHON VENV
set -eu
python=$1
venv=$2

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || {
  echo "error: '$python' does not run; install Python 3.11 or newer, or name it: make PYTHON=python3.11" >&2
  exit 2
}
case $version in
  3.11 | 3.12 | 3.13 | 3.14) ;;
  *) echo "error: Python 3.11 or newer is needed, '$python' is $version; name another: make PYTHON=python3.11" >&2; exit 2 ;;
esac

if ! [ -x "$venv/bin/pip" ]; then
  # On Debian, venv requires a separate package.
  "$python" -m venv "$venv" >/dev/null 2>&1 || {
    rm -rf "$venv"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      apt-get update -qq && apt-get install -qq -y "python$version-venv" >/dev/null
      "$python" -m venv "$venv"
    else
      echo "error: '$python -m venv' does not work; on Debian: apt-get install python$version-venv" >&2
      exit 2
    fi
  }
fi

echo "setting up $venv (a minute or two the first time)"
PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/python" -m pip install -qq --constraint constraints.txt --editable '.[dev,run]'
"$venv/bin/python" -m compileall -q src
"$venv/bin/python" -m penstock.compile_kernels
touch "$venv/ready"

#!/bin/sh
# Installs iproute2 (ip and tc), with which tests and emulations make networks of their own.
# It requires root and apt-get; without them, tests that need it are skipped.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
if command -v ip >/dev/null && command -v tc >/dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing iproute2"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends iproute2; } >/dev/null
else
  echo "note: iproute2 not found: tests of several hosts and of shaped links are skipped (Debian: apt-get install iproute2)" >&2
fi

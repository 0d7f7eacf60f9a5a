#!/bin/sh
# Installs what the report's tests need besides Python: node for the drawing logic, Chromium for the page.
# It requires root and apt-get; without them, tests whose tool is missing are skipped.
set -eu
missing=''
command -v node >/dev/null || missing="$missing nodejs"
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
  || missing="$missing chromium"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing$missing (half a minute)"
  # shellcheck disable=SC2086
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing; } >/dev/null
else
  echo "note:$missing not found: tests of the report that need it are skipped (Debian: apt-get install$missing)" >&2
fi

#!/usr/bin/env bash
# tools.sh [PROGRAM=PACKAGE ...] sees to programs, without arguments to those that building HiGHS needs: cmake, ninja
# and xz. As root they are installed with apt-get; otherwise they and the libraries they need are unpacked below
# third_party/tools, which the scripts put on PATH.
set -euo pipefail
cd "$(dirname "$0")"
. ./lib.sh
locked 9 tools
use_local_tools

[ $# -gt 0 ] || set -- cmake=cmake ninja=ninja-build xz=xz-utils
wanted=("$@")
missing() { local t; for t in "${wanted[@]%%=*}"; do command -v "$t" >/dev/null || echo "$t"; done; }
[ -z "$(missing)" ] && exit 0
command -v apt-get >/dev/null || fail "missing: $(missing | paste -sd' ' -) (no apt-get on this machine: install them by hand)"
packages=("${wanted[@]#*=}")

if [ "$(id -u)" = 0 ] && [ "${INFERPLAN_LOCAL_TOOLS:-0}" != 1 ]; then
  say "installing ${packages[*]} with apt-get"
  install_them() { apt-get -qq install -y --no-install-recommends "${packages[@]}" >&2; }
  export DEBIAN_FRONTEND=noninteractive
  install_them 2>/dev/null || { retry 3 apt-get -qq update >&2 && retry 2 install_them; } ||
    fail "apt-get install ${packages[*]} did not succeed"
  exit 0
fi

say "unpacking ${packages[*]} below third_party/tools (not root, or INFERPLAN_LOCAL_TOOLS=1)"
work=$CACHE/apt-tools
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
private_apt "$work" deb "$suite" || fail "apt-get update of the suite $suite did not succeed; check the network, then run make setup again"
# What apt would install beside what is here already; a simulation needs no rights.
mapfile -t want < <("${APT[@]}" -s --no-install-recommends install "${packages[@]}" | awk '/^Inst /{print $2}')
(cd "$work/out" && retry 3 "${APT[@]}" -qq download "${want[@]}" >&2) || fail "the download of ${want[*]} did not succeed; run make setup again"
rm -rf "$TOOLS.part"
for deb in "$work"/out/*.deb; do dpkg-deb -x "$deb" "$TOOLS.part"; done
# Beside what is there already: other scripts put programs here, too.
mkdir -p "$TOOLS"
cp -a "$TOOLS.part/." "$TOOLS/"
rm -rf "$TOOLS.part" "$work"
use_local_tools
[ -z "$(missing)" ] || fail "still missing after unpacking: $(missing | paste -sd' ' -)"

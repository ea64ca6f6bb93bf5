#!/usr/bin/env bash
# llama-setup.sh puts a real server of language models into third_party/llama: llama.cpp's llama-server with all that
# it needs, from the distribution's testing suite. No root, no compiler, nothing else on the machine changes: apt
# works on lists of its own and checks their signatures, and packages are unpacked, not installed.
# third_party/llama/llama-server starts it. Testing moves, so its version is printed and not pinned.
# LLAMA_SUITE: another suite of the distribution.
set -euo pipefail
cd "$(dirname "$0")/.."
. third_party/lib.sh
locked 9 llama

suite=${LLAMA_SUITE:-forky}
dir=$TP/llama
root=$dir/root
version() { sed -n 's/^Version: //p' "$dir/VERSION" 2>/dev/null; }
if [ -n "$(version)" ] && "$dir/llama-server" --version >/dev/null 2>&1; then
  say "llama-server $(version) is in third_party/llama"
  exit 0
fi
without() { fail "no llama-server here: $* (what needs one is skipped)"; }

[ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] || without "expected Linux on x86-64, found $(uname -s) on $(uname -m)"
command -v apt-get >/dev/null || without "apt-get is missing, and the package llama.cpp-tools comes from Debian's suite $suite"
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || without "Debian's keyring is missing, which apt checks the suite $suite with"

work=$CACHE/llama
rm -rf "$work" "$dir.part"
mkdir -p "$work"
APT_STATUS=$work/status
: > "$APT_STATUS" # nothing is installed: the closure holds everything, the C library included
private_apt "$work" deb "$suite" || without "apt could not get or check the lists of the suite $suite"
APT+=(-o "Dir::State::status=$APT_STATUS" -o APT::Install-Recommends=0)
mapfile -t packages < <("${APT[@]}" -s install llama.cpp-tools 2>/dev/null | awk '/^Inst /{print $2}')
[ ${#packages[@]} -gt 0 ] || without "the suite $suite does not have llama.cpp-tools, or not all that it needs"
say "fetching llama.cpp-tools of the suite $suite: ${#packages[@]} packages"
(cd "$work/out" && retry 3 "${APT[@]}" -qq download "${packages[@]}" >&2) || without "the download of its packages did not succeed"
mkdir -p "$dir.part/root"
for deb in "$work"/out/*.deb; do dpkg-deb -x "$deb" "$dir.part/root"; done
dpkg-deb -f "$work"/out/llama.cpp-tools_*.deb Package Version > "$dir.part/VERSION"
rm -rf "$work" "$dir/root"
mkdir -p "$dir"
mv "$dir.part/root" "$dir.part/VERSION" "$dir/"
rmdir "$dir.part"

# The server starts itself again for every model, so that it must name its own loader. The libraries are found by a
# variable that only it and its children get.
INFERPLAN_LOCAL_TOOLS=1 third_party/tools.sh patchelf=patchelf
use_local_tools
loader=$(find "$root" -name 'ld-linux-x86-64.so.2' | sort | head -n 1)
patchelf --set-interpreter "$loader" "$root/usr/bin/llama-server" || without "patchelf did not set its loader"

# The fastest kernels that this CPU surely has. Wider vectors were slower.
flags=" $(grep -m 1 '^flags' /proc/cpuinfo) "
kernels=x64
case $flags in *" avx2 "*) case $flags in *" fma "*) case $flags in *" f16c "*) case $flags in *" bmi2 "*) kernels=haswell ;; esac ;; esac ;; esac ;; esac
backend=$(find "$root" -name "libggml-cpu-$kernels.so" | sort | head -n 1)
[ -n "$backend" ] || without "libggml-cpu-$kernels.so is in none of its packages"
lib=$root/usr/lib/x86_64-linux-gnu
cat > "$dir/llama-server" <<END
#!/bin/sh
export GGML_BACKEND_PATH='$backend'
export LD_LIBRARY_PATH='$lib:$lib/llama:$lib/ggml:$lib/blas:$lib/lapack'
exec '$root/usr/bin/llama-server' "\$@"
END
chmod +x "$dir/llama-server"
said=$("$dir/llama-server" --version 2>&1) || without "it does not start: $(tail -n 1 <<<"$said")"
say "llama-server $(version), kernels $kernels, is in third_party/llama"

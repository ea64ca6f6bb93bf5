#!/usr/bin/env bash
# Puts HiGHS (headers and library) at third_party/highs/prefix, where the #cgo lines of solver/highs look.
# Routes, first that works:
#   1. INFERPLAN_HIGHS_PREFIX=DIR     an installed HiGHS (DIR/include/highs, DIR/lib); prefix becomes a link to it
#   2. a prefix built by an earlier run
#   3. pkg-config highs               if it is the pinned version
#   4. INFERPLAN_HIGHS_TARBALL=FILE, or a tarball left in third_party/cache, built here
#   5. the distribution's source tarball, hash checked, kept in third_party/cache, built here
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
. ../versions.sh
locked 8 highs

version_of() { sed -n 's/^#define HIGHS_VERSION_MAJOR //p; s/^#define HIGHS_VERSION_MINOR //p; s/^#define HIGHS_VERSION_PATCH //p' "$1/HConfig.h" 2>/dev/null | paste -sd. -; }
built() { [ -e prefix/include/highs/interfaces/highs_c_api.h ] && ls prefix/lib/libhighs.* >/dev/null 2>&1; }
link_to() {  # link_to INCLUDE_DIR LIB_DIR
  rm -rf prefix && mkdir -p prefix/include && ln -s "$1" prefix/include/highs && ln -s "$2" prefix/lib
}

# 1. the user's own
if [ -n "${INFERPLAN_HIGHS_PREFIX:-}" ]; then
  p=$INFERPLAN_HIGHS_PREFIX
  [ -f "$p/include/highs/interfaces/highs_c_api.h" ] || fail "INFERPLAN_HIGHS_PREFIX=$p: no include/highs/interfaces/highs_c_api.h below it"
  ls "$p"/lib/libhighs.* >/dev/null 2>&1 || fail "INFERPLAN_HIGHS_PREFIX=$p: no lib/libhighs.a or lib/libhighs.so below it"
  v=$(version_of "$p/include/highs")
  [ "$v" = "$HIGHS_VERSION" ] || fail "INFERPLAN_HIGHS_PREFIX=$p holds HiGHS $v; $HIGHS_VERSION is needed (its callback structs are part of the binding)"
  [ "$(readlink -f prefix 2>/dev/null)" = "$(readlink -f "$p")" ] && exit 0
  rm -rf prefix && ln -s "$(readlink -f "$p")" prefix
  say "HiGHS $v from INFERPLAN_HIGHS_PREFIX"
  exit 0
fi

# 2. an earlier run's
if built && [ "$(version_of prefix/include/highs)" = "$HIGHS_VERSION" ]; then exit 0; fi

# 3. the system's
if command -v pkg-config >/dev/null && pkg-config --exact-version="$HIGHS_VERSION" highs 2>/dev/null; then
  inc=$(pkg-config --variable=includedir highs); lib=$(pkg-config --variable=libdir highs)
  [ -f "$inc/interfaces/highs_c_api.h" ] || inc=$inc/highs
  if [ -f "$inc/interfaces/highs_c_api.h" ]; then
    link_to "$inc" "$lib"
    say "HiGHS $HIGHS_VERSION from pkg-config"
    exit 0
  fi
fi

# 4. and 5. a tarball
tarball=$CACHE/$HIGHS_TARBALL
if [ -n "${INFERPLAN_HIGHS_TARBALL:-}" ]; then
  [ -f "$INFERPLAN_HIGHS_TARBALL" ] || fail "INFERPLAN_HIGHS_TARBALL=$INFERPLAN_HIGHS_TARBALL: no such file"
  has_sha256 "$INFERPLAN_HIGHS_TARBALL" "$HIGHS_SHA256" || fail "INFERPLAN_HIGHS_TARBALL=$INFERPLAN_HIGHS_TARBALL: its sha256 is not $HIGHS_SHA256"
  cp "$INFERPLAN_HIGHS_TARBALL" "$tarball.part" && mv "$tarball.part" "$tarball"
fi
if ! has_sha256 "$tarball" "$HIGHS_SHA256"; then
  say "downloading the HiGHS $HIGHS_VERSION source (1.5 MB, and 10 MB of package lists to check it)"
  w=$CACHE/apt-highs
  private_apt "$w" deb-src trixie || fail "apt-get update of the suite trixie (source lists, for HiGHS) did not succeed; check the network, then run make setup again"
  (cd "$w/out" && retry 3 "${APT[@]}" -qq source --download-only --tar-only "$HIGHS_SOURCE" >&2) ||
    fail "the download of $HIGHS_TARBALL did not succeed; run make setup again, or set INFERPLAN_HIGHS_TARBALL to a copy of it"
  has_sha256 "$w/out/$HIGHS_TARBALL" "$HIGHS_SHA256" || fail "$HIGHS_TARBALL: its sha256 is not $HIGHS_SHA256"
  mv "$w/out/$HIGHS_TARBALL" "$tarball"
  rm -rf "$w"
fi

# Build: the library only, static, no zlib; a dozen sources at a time as one (a unity build), which halves the time, but
# for those that define the same names. An interrupted build goes on where it stopped.
use_local_tools
for t in cmake ninja xz g++; do
  command -v "$t" >/dev/null || fail "$t is missing; third_party/setup.sh installs cmake, ninja and xz, the compiler is yours to install (apt-get install g++)"
done
mkdir -p build
if [ ! -f build/src.stamp ]; then
  rm -rf build/src && mkdir -p build/src
  tar -C build/src --strip-components=1 -xf "$tarball"
  echo 'set_source_files_properties(${basiclu_sources} ../extern/filereaderlp/reader.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)' >> build/src/src/CMakeLists.txt
  touch build/src.stamp
fi
say "building HiGHS $HIGHS_VERSION (about two CPU minutes, once); log in third_party/highs/build/log"
start=$SECONDS
{
  cmake -S build/src -B build/obj -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DFAST_BUILD=ON \
    -DBUILD_TESTING=OFF -DBUILD_EXAMPLES=OFF -DZLIB=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12 \
    -DCMAKE_INSTALL_PREFIX="$PWD/build/prefix" -DCMAKE_INSTALL_LIBDIR=lib &&
  cmake --build build/obj --target highs -j"${INFERPLAN_JOBS:-$(nproc)}" &&
  rm -rf build/prefix &&
  cmake --install build/obj/src &&  # headers only: the rule for the library would want the command-line program too
  install -m 644 "$(find build/obj -name libhighs.a | head -n 1)" build/prefix/lib/libhighs.a
} > build/log 2>&1 || { tail -n 30 build/log >&2; fail "HiGHS did not build; the whole log is third_party/highs/build/log"; }
cp build/src/LICENSE.txt build/prefix/LICENSE.txt
[ -f build/prefix/include/highs/interfaces/highs_c_api.h ] && [ -f build/prefix/lib/libhighs.a ] ||
  fail "HiGHS built, but its header or library is not where it was expected; the log is third_party/highs/build/log"
rm -rf prefix && mv build/prefix prefix
rm -rf build
say "HiGHS $HIGHS_VERSION built in $((SECONDS - start)) s"

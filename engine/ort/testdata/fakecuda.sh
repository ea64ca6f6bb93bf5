#!/bin/sh
# Builds the stand-ins for NVIDIA's libraries into a folder, under the names by which the loader looks for them:
#   fakecuda.sh DIR && LD_LIBRARY_PATH=DIR bin/plan doctor
# CC names the compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
build() { # NAME SOURCE…
  name=$1; shift
  # The provider asks for versions of the symbols, which are called as their library.
  printf '%s { global: *; };\n' "$name" >"$out/$name.map"
  "${CC:-cc}" -std=gnu11 -O2 -Wall -shared -fPIC -Wl,-soname,"$name" -Wl,--version-script,"$out/$name.map" -o "$out/$name" "$@"
  rm "$out/$name.map"
}
cd "$here"
build libcuda.so.1 fakecuda.c -lpthread
build libcudart.so.13 fakecudart.c "$out/libcuda.so.1" -lpthread
build libcublas.so.13 fakecublas.c "$out/libcuda.so.1"
build libcublasLt.so.13 fakecublaslt.c "$out/libcuda.so.1"
build libcudnn.so.9 fakecudnn.c "$out/libcuda.so.1"
echo 'int curandStandIn;' >"$out/empty.c"
build libcurand.so.10 "$out/empty.c"
build libcufft.so.12 "$out/empty.c"
build libnvrtc.so.13 "$out/empty.c"
rm "$out/empty.c"
ln -sf libcudnn.so.9 "$out/libcudnn.so"
ln -sf libcuda.so.1 "$out/libnvidia-ml.so.1"

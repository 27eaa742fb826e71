#!/usr/bin/env bash
# Generates the code in clients/go/ambient, or in another folder: generate.sh [FOLDER]. With buf (this
# repository's, after npm ci, or one's own) and the plugins at the versions of go.mod, which are kept in
# .bin. Only Go asks the network for something, and only for modules that it has not: the contract and
# all that it imports are in proto/.
set -euo pipefail
out="$(realpath "${1:-"$(dirname "$0")"}")"
cd "$(dirname "$0")"
buf=../../node_modules/.bin/buf
[ -x "$buf" ] || buf=buf

GOBIN="$PWD/.bin" go install tool
rm -rf "$out/ambient"
"$buf" generate --output "$out"

#!/usr/bin/env bash
# Generates the Go client into clients/go/ambient, with buf (this repository's, after npm ci, or one's
# own) and the plugins at the versions of go.mod, which are kept in .bin. Only Go asks the network for
# something, and only for modules that it has not: the contract and all that it imports are in proto/.
set -euo pipefail
cd "$(dirname "$0")"
buf=../../node_modules/.bin/buf
[ -x "$buf" ] || buf=buf

GOBIN="$PWD/.bin" go install tool
rm -rf ambient
"$buf" generate

#!/usr/bin/env bash
# Generates the code of the contract into session_ledger/ambient, with the tools of requirements.txt in
# clients/python/.venv. Only pip asks the network for something, and only when requirements.txt is new
# to the environment: the contract and all that it imports are in proto/.
#
#   clients/python/generate.sh [FOLDER FOR session_ledger/ambient, clients/python unless given]
set -euo pipefail
out="$(cd "${1:-"$(dirname "$0")"}" && pwd)"
cd "$(dirname "$0")"

if ! cmp -s requirements.txt .venv/installed.txt; then
  # Debian's python3 has no pip for it: apt install python3-venv.
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
  cp requirements.txt .venv/installed.txt
fi

made="$out/session_ledger/ambient"
rm -rf "$made"
mkdir -p "$out/session_ledger"
.venv/bin/python -m grpc_tools.protoc -I ../../proto --python_out="$out/session_ledger" \
  --pyi_out="$out/session_ledger" --grpc_python_out="$out/session_ledger" \
  ../../proto/ambient/v1/*.proto
# Of the files only sessions.proto has a service.
find "$made" -name '*_pb2_grpc.py' ! -name sessions_pb2_grpc.py -delete
# The code is a part of the package session_ledger.
find "$made" -name '*.py*' -exec sed -i.old 's/^from ambient\.v1 import/from session_ledger.ambient.v1 import/' {} +
find "$made" -name '*.old' -delete

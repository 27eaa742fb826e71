#!/usr/bin/env bash
# Generates the Python client into clients/python/ambient, with the tools of requirements.txt in a
# virtual environment. Only pip asks the network for something, and only when requirements.txt is new
# to the environment: the contract and all that it imports are in proto/.
#
#   clients/python/generate.sh [DIRECTORY OF THE ENVIRONMENT, clients/python/.venv unless given]
set -euo pipefail
venv="${1:-"$(dirname "$0")/.venv"}"
mkdir -p "$venv"
venv="$(cd "$venv" && pwd)"
cd "$(dirname "$0")"

if ! cmp -s requirements.txt "$venv/installed.txt"; then
  # Debian's python3 has no pip for it: apt install python3-venv.
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
  cp requirements.txt "$venv/installed.txt"
fi

rm -rf ambient
"$venv/bin/python" -m grpc_tools.protoc -I ../../proto \
  --python_out=. --pyi_out=. --grpc_python_out=. ../../proto/ambient/v1/*.proto
# Of the five files only sessions.proto has a service.
find ambient -name '*_pb2_grpc.py' ! -name sessions_pb2_grpc.py -delete

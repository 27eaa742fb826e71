#!/usr/bin/env bash
# A conversation without any library: a person asks, a runner answers, both with curl.
set -euo pipefail
api="http://${LEDGER_HTTP:-127.0.0.1:8000}/api/ambient/v1"
session="curl-$(date +%s)-$$"
json='Content-Type: application/json'

# A person writes. The first message makes the session.
curl -sSf -H "$json" -d '{"payload": "What is the time?"}' "$api/sessions/$session/messages" >/dev/null

# A runner claims what waits, which starts a run of that id.
curl -sSf -H "$json" -d '{"run_started": {"runId": "r1"}}' "$api/sessions/$session/turns" >/dev/null

# It pushes the events of its agent, one a line, and ends the run.
printf '%s\n' \
  '{"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}' \
  '{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "It is "}' \
  '{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "noon."}' \
  '{"type": "TEXT_MESSAGE_END", "messageId": "m1"}' \
  '{"type": "RUN_FINISHED", "threadId": "'"$session"'", "runId": "r1"}' |
  curl -sSf --data-binary @- -H 'Content-Type: application/x-ndjson' "$api/sessions/$session/events" >/dev/null

# Everybody reads.
curl -sSf "$api/sessions/$session/transcript?format=markdown"

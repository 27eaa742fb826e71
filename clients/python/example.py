"""Streams an agent's events into a session and watches them come out, whatever breaks meanwhile.

    .venv/bin/python example.py ADDRESS SESSION_ID < events.jsonl

Takes AG-UI events as JSON lines, the last of them RUN_FINISHED, and sends each as soon as it is there.
Prints the answers of the service, and the rows that the watch delivers, as JSON lines.

LEDGER_TOKEN_FILE names a file with a bearer token, which is read for each call; LEDGER_CA_FILE one
with the authorities to trust. Without both it speaks without TLS.
"""

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from ambient.v1.events_pb2 import PushSessionEventRequest
from ambient.v1.messages_pb2 import PushSessionMessageRequest
from ambient.v1.sessions_pb2_grpc import SessionServiceStub
from ledger import connect, push, stream_events, watch_events


def main(address: str, session_id: str) -> None:
    # Leaving closes the channel, which ends the watch, which lets the pool end.
    with ThreadPoolExecutor() as pool, connect(address, token(), roots()) as channel:
        ledger = SessionServiceStub(channel)
        message = PushSessionMessageRequest(session_id=session_id, event_type="user")
        message.payload = "Go on."
        message.idempotency_key = "message-1"
        print_line(push(ledger.PushSessionMessage, message))

        event = PushSessionEventRequest(session_id=session_id, event_type="RUN_STARTED")
        event.payload = json.dumps({"threadId": session_id, "runId": "run-1"})
        event.idempotency_key = "run-1"
        push(ledger.PushSessionEvent, event)

        watched = pool.submit(print_run, ledger, session_id)
        for answer in stream_events(ledger, session_id, (line.strip() for line in sys.stdin)):
            print_line(answer)
        watched.result()


def token() -> Callable[[], str] | None:
    path = os.environ.get("LEDGER_TOKEN_FILE")
    return None if path is None else lambda: Path(path).read_text().strip()


def roots() -> bytes | None:
    path = os.environ.get("LEDGER_CA_FILE")
    return None if path is None else Path(path).read_bytes()


def print_run(ledger: SessionServiceStub, session_id: str) -> None:
    for row in watch_events(ledger, session_id):
        print_line(row)
        if row.event_type == "RUN_FINISHED":
            return


def print_line(message: Message) -> None:
    sys.stdout.write(MessageToJson(message, indent=None) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Streams an agent's events into a session and watches them come out, whatever breaks meanwhile.

    .venv/bin/python example.py ADDRESS SESSION_ID [EPOCH] < events.jsonl

Takes AG-UI events as JSON lines, the last of them RUN_FINISHED, and sends each as soon as it is there.
Prints the answers of the service, and the rows that the watch delivers, as JSON lines.

The service counts the events of an epoch (a number, 1 unless given). Run this again with the same
events, after it was killed for example: it sends only those that are not there yet. For other events
in the same session give a higher epoch.

LEDGER_TOKEN_FILE names a file with a bearer token, which is read for each call; LEDGER_CA_FILE one
with the authorities to trust. Without both it speaks without TLS.
"""

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from session_ledger import LedgerError, SessionWriter, calls_of, connect, push, read_events
from session_ledger.ambient.v1.events_pb2 import PushSessionEventRequest
from session_ledger.ambient.v1.messages_pb2 import PushSessionMessageRequest

# A file is read faster than a service stores it.
PENDING_MAX = 10_000


def main(address: str, session_id: str, epoch: int) -> None:
    # Leaving closes the channel, which ends the watch, which lets the pool end.
    with ThreadPoolExecutor() as pool, connect(address, token(), roots()) as channel:
        if not can_connect(channel):
            sys.exit(
                f"cannot connect to {address}: is the service running, and with TLS or without?"
            )
        ledger = calls_of(channel)
        message = PushSessionMessageRequest(session_id=session_id, event_type="user")
        message.payload = "Go on."
        message.idempotency_key = f"message-{epoch}"
        print_line(push(ledger.PushSessionMessage, message))

        event = PushSessionEventRequest(session_id=session_id, event_type="RUN_STARTED")
        event.payload = json.dumps({"threadId": session_id, "runId": f"run-{epoch}"})
        event.idempotency_key = f"run-{epoch}"
        started = push(ledger.PushSessionEvent, event)

        watched = pool.submit(print_run, channel, session_id, started.seq - 1)
        with SessionWriter(
            channel, session_id, epoch=epoch, replay=True, derive=False, on_answer=print_line
        ) as writer:
            for line in sys.stdin:
                writer.event(line.strip())
                while writer.stats.events.pending > PENDING_MAX:
                    writer.flush()
            while not writer.flush().complete:
                pass  # The service is away.
        if writer.failure is not None:
            raise writer.failure
        watched.result()


def can_connect(channel: grpc.Channel) -> bool:
    """False at the first failure. Calls would wait for the connection, and say nothing meanwhile."""
    states: SimpleQueue[grpc.ChannelConnectivity] = SimpleQueue()
    channel.subscribe(states.put, try_to_connect=True)
    while (state := states.get()) is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return False
    return True


def token() -> Callable[[], str] | None:
    path = os.environ.get("LEDGER_TOKEN_FILE")
    return None if path is None else lambda: Path(path).read_text().strip()


def roots() -> bytes | None:
    path = os.environ.get("LEDGER_CA_FILE")
    return None if path is None else Path(path).read_bytes()


def print_run(channel: grpc.Channel, session_id: str, after: int) -> None:
    for row in read_events(channel, session_id, after, follow=True, retry_for_s=None):
        print_line(row)
        if row.event_type == "RUN_FINISHED":
            return


def print_line(message: Message) -> None:
    sys.stdout.write(MessageToJson(message, indent=None) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [address, session_id, *rest] if all(map(str.isdecimal, rest)) and len(rest) <= 1:
            try:
                main(address, session_id, int(rest[0]) if rest else 1)
            except LedgerError as error:
                sys.exit(str(error))
            except OSError as error:
                sys.exit(str(error))
        case _:
            sys.exit("usage: example.py ADDRESS SESSION_ID [EPOCH] < events.jsonl")

"""Waits for the messages of people in a session, and answers them.

    .venv/bin/python runner.py ADDRESS SESSION_ID

Kill it at any point and start it again: the new runner ends a run that was cut off.
"""

import json
import sys
import time
from uuid import uuid4

import grpc
from google.protobuf.duration_pb2 import Duration

from ambient.v1.events_pb2 import PushSessionEventRequest
from ambient.v1.messages_pb2 import PushSessionMessageRequest
from ambient.v1.sessions_pb2_grpc import SessionServiceStub
from ambient.v1.turns_pb2 import ClaimTurnRequest, ClaimTurnResponse
from ledger import connect, push


def main(address: str, session_id: str) -> None:
    """Ends only with an error, for example when a later runner has taken over the session."""
    epoch = time.time_ns() // 1_000_000  # Higher at each start, so that it takes over.
    with connect(address) as channel:
        ledger = SessionServiceStub(channel)
        while True:
            run_id = str(uuid4())
            claim = ClaimTurnRequest(session_id=session_id, producer_epoch=epoch, redeliver=True)
            claim.run_started = json.dumps({"runId": run_id})
            # Shorter than the deadline of push. A claim that push repeats has the same runId.
            claim.wait.CopyFrom(Duration(seconds=5))
            turn = push(ledger.ClaimTurn, claim)
            if turn.HasField("run_started"):
                answer(ledger, session_id, run_id, turn)


def answer(
    ledger: SessionServiceStub, session_id: str, run_id: str, turn: ClaimTurnResponse
) -> None:
    mine = {"session_id": session_id, "producer_epoch": turn.producer_epoch}

    def emit(event_type: str, **event: str) -> None:
        request = PushSessionEventRequest(event_type=event_type, payload=json.dumps(event), **mine)
        request.idempotency_key = f"{run_id}/{event_type}"
        push(ledger.PushSessionEvent, request)

    said = "\n".join(text_of(message.payload) for message in turn.messages)
    text = f"You said: {said}"  # Here an agent would think.
    emit("TEXT_MESSAGE_CHUNK", messageId=run_id, role="assistant", delta=text)
    message = PushSessionMessageRequest(event_type="assistant", payload=text, **mine)
    message.idempotency_key = run_id
    push(ledger.PushSessionMessage, message)
    emit("RUN_FINISHED", threadId=session_id, runId=run_id)


def text_of(payload: str) -> str:
    """The payload is a RunAgentInput if the message was typed over AG-UI."""
    try:
        match json.loads(payload):
            case {"messages": [*messages]}:
                return "\n".join(str(message["content"]) for message in messages)
    except ValueError:
        pass
    return payload


if __name__ == "__main__":
    match sys.argv[1:]:
        case [address, session_id]:
            try:
                main(address, session_id)
            except grpc.RpcError as error:
                sys.exit(f"{error.code().name}: {error.details()}")
        case _:
            sys.exit("usage: runner.py ADDRESS SESSION_ID")

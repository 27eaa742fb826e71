"""The calls that have to outlive a connection: a push that is repeated until it is answered, a
stream of events and a watch that go on where they were. Copy what you need.
"""

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from ambient.v1.event_stream_pb2 import (
    Batch,
    Open,
    PushSessionEventsRequest,
    PushSessionEventsResponse,
    RawEvent,
)
from ambient.v1.events_pb2 import SessionEvent, WatchSessionEventsRequest
from ambient.v1.sessions_pb2_grpc import SessionServiceStub

# A stream that lived longer had a token that was accepted, and has ended since.
ACCEPTED_AFTER_S = 1

PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

Row = TypeVar("Row", bound=Message)

CHANNEL_OPTIONS = [
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A watch may be silent for hours, so only a ping finds out that its peer is gone.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def connect(
    address: str, token: Callable[[], str] | None = None, roots: bytes | None = None
) -> grpc.Channel:
    """A connection; the token is asked for before each call and each stream.

    With neither token nor roots it is without TLS, which is for one's own machine: gRPC sends no token
    without. Roots are authorities to trust, in PEM; without them those that gRPC brings along.
    """
    if token is None and roots is None:
        return grpc.insecure_channel(address, CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(roots)
    if token is not None:

        def send(_: grpc.AuthMetadataContext, metadata: grpc.AuthMetadataPluginCallback) -> None:
            metadata((("authorization", f"Bearer {token()}"),), None)

        credentials = grpc.composite_channel_credentials(
            credentials, grpc.metadata_call_credentials(send)
        )
    return grpc.secure_channel(address, credentials, CHANNEL_OPTIONS)


def push(method: Callable[..., Row], request: Message) -> Row:
    """Appends one row. Its idempotency key makes it safe to repeat what was not answered."""
    while True:
        began = time.monotonic()
        try:
            return method(request, timeout=10, wait_for_ready=True)
        except grpc.RpcError as error:
            pause_or_raise(error, began)


def stream_events(
    ledger: SessionServiceStub, session_id: str, payloads: Iterator[str], epoch: int = 0
) -> Iterator[PushSessionEventsResponse]:
    """Sends each event as it comes, and again after a break what was not committed.

    Yields what the service answers, and ends when all is committed. Every event is kept until then;
    a stream that runs for days would forget what `committed` covers.

    With an epoch of your own, `payloads` begins with the first event of that epoch: those that the
    service has already are not sent. With 0 the service gives a new one out, and it stays ours.
    """
    # Nobody else knows an epoch that was given to us, so it was a call of ours, which came late, that
    # replaced a stream. An epoch that we chose can be somebody else's too.
    is_given = epoch == 0
    emitted: list[str] = []  # Event number n is emitted[n - 1].
    taking = Lock()  # The frames of a call that broke may still wait for the next payload.

    def frames(opened: SimpleQueue[int | None]) -> Iterator[PushSessionEventsRequest]:
        yield PushSessionEventsRequest(open=Open(session_id=session_id, producer_epoch=epoch))
        number = opened.get()
        while number is not None:
            with taking:
                if number >= len(emitted):
                    emitted.extend(islice(payloads, number + 1 - len(emitted)))
                events = [RawEvent(payload=payload) for payload in emitted[number : number + 1]]
            if not events:
                return
            yield PushSessionEventsRequest(batch=Batch(first_client_seq=number + 1, events=events))
            number += 1

    while True:
        opened: SimpleQueue[int | None] = SimpleQueue()
        began = time.monotonic()
        try:
            for answer in ledger.PushSessionEvents(frames(opened), wait_for_ready=True):
                if answer.HasField("opened"):
                    epoch = answer.opened.producer_epoch
                    opened.put(answer.opened.last_client_seq)
                yield answer
            return
        except grpc.RpcError as error:
            is_replaced = is_given and error.code() is grpc.StatusCode.ABORTED
            pause_or_raise(error, began, is_replaced)
        finally:
            opened.put(None)  # The frames of this call need not wait any longer.


def watch_events(
    ledger: SessionServiceStub, session_id: str, after_seq: int = 0
) -> Iterator[SessionEvent]:
    """Every row after a number, once and in order, without end."""
    while True:
        began = time.monotonic()
        try:
            request = WatchSessionEventsRequest(session_id=session_id, after_seq=after_seq)
            for row in ledger.WatchSessionEvents(request, wait_for_ready=True):
                after_seq = row.seq + row.event_count - 1
                yield row
        except grpc.RpcError as error:
            pause_or_raise(error, began)


def pause_or_raise(error: grpc.RpcError, began: float, is_replaced: bool = False) -> None:
    """Waits until it is time to try again; where that is no use, the error goes on."""
    accepted = time.monotonic() - began > ACCEPTED_AFTER_S
    is_over = error.code() is grpc.StatusCode.UNAUTHENTICATED and accepted
    trailers = {one.key: one.value for one in error.trailing_metadata() or ()}
    details = Status.FromString(trailers.get("grpc-status-details-bin", b"")).details
    asked = RetryInfo()  # The service sends one where the same call can succeed later.
    is_asked = any(detail.Unpack(asked) for detail in details)
    if not (is_asked or is_over or is_replaced or error.code() in PASSING):
        raise error
    time.sleep(asked.retry_delay.ToMilliseconds() / 1000 + random.uniform(0.05, 0.5))

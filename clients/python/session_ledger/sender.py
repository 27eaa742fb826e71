"""The threads of a writer: one sends events on a stream, one sends messages, one calls callbacks.

Everything that they share is in `Sender`, guarded by `changed`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Literal

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from session_ledger.ambient.v1.event_stream_pb2 import (
    COMPRESSION_OFF,
    COMPRESSION_ON,
    Batch,
    Flush,
    Open,
    PushSessionEventsRequest,
    PushSessionEventsResponse,
    RawEvent,
)
from session_ledger.ambient.v1.messages_pb2 import PushSessionMessageRequest
from session_ledger.connection import LedgerError, Retries, calls_of, failure_of, failure_of_status
from session_ledger.spool import Spool

State = Literal["open", "fenced", "ended", "closed"]

# A frame has at most this number of events and, above one event, this number of bytes.
_FRAME_EVENTS_MAX = 1_000
_FRAME_BYTES_MAX = 256 * 1024
# Streams of a chosen epoch in a row that another call replaced: they prove another writer.
_REPLACED_MAX = 3
_CALL_TIMEOUT_S = 10
_SESSION_IS_GONE = ("SESSION_DELETED", "SESSION_NOT_FOUND", "SESSION_FULL")


@dataclass(frozen=True)
class Problem:
    """What went wrong: `unreachable` and `dropping` may pass, the others are losses.

    `replaced`: a value in a record was printed in another way, because JSON cannot hold it; `reason` is
    its kind, which is told once. `refused`: records that the service, or the writer, does not accept. `lost`: acknowledged events
    that the service's database has lost. `fenced`: a later writer took over. `ended`: the session is
    gone or full, or the token may not write it. `closed`: a record after `close`. `left_behind`:
    `close` did not wait for all records.
    """

    kind: Literal[
        "unreachable",
        "dropping",
        "refused",
        "replaced",
        "lost",
        "fenced",
        "ended",
        "closed",
        "left_behind",
    ]
    message: str = ""
    reason: str = ""
    count: int = 0


class Sender:
    """What the threads share. All members but the constants are guarded by `changed`."""

    def __init__(
        self,
        channel: grpc.Channel,
        session_id: str,
        *,
        epoch: int,
        is_epoch_given: bool,
        replay: bool,
        merge: bool,
        bytes_max: int,
        told: dict[str, Callable[..., object] | None],
    ) -> None:
        self._ledger = calls_of(channel)
        self._session_id = session_id
        self.epoch = epoch
        self._is_epoch_given = is_epoch_given
        self._replay = replay
        self._compression = COMPRESSION_ON if merge else COMPRESSION_OFF
        self._told = told
        self._notes: SimpleQueue[tuple[str, tuple[Any, ...]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._call: Any = None
        self.changed = threading.Condition()
        """Notified whenever something changes."""
        self.spool = Spool(bytes_max)
        self.state: State = "open"
        self.failure: LedgerError | None = None
        """What has ended the writer: it is fenced or ended."""
        self.is_closing = False
        self.listens = False
        self.flush_up_to = 0
        self.last_seq = 0
        # The service's number of the first event in the spool; None until a stream was opened.
        self._front: int | None = None
        self._acknowledged = 0
        self._refused: set[int] = set()
        # Refusals that the service counted up to the last settled event.
        self._refused_before = 0
        self._refused_unseen = 0

    def begin(self) -> None:
        """Wakes the threads, and starts them at the first call. With the lock."""
        if not self._threads:
            for work in (self._send_events, self._send_messages, self._tell_all):
                thread = threading.Thread(target=work, name=f"ledger{work.__name__}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self.changed.notify_all()

    def tell(self, problem: Problem) -> None:
        """Calls `on_problem` in a thread of its own."""
        self._notes.put(("problem", (problem,)))

    def join(self, timeout_s: float) -> None:
        """After `is_closing`: the stream ends by itself, or is cut when the time is over."""
        until = time.monotonic() + timeout_s
        for at, thread in enumerate(self._threads):
            if at == 2:
                self._notes.put(None)
            if thread is threading.current_thread():
                continue
            thread.join(max(0.0, until - time.monotonic()))
            if at == 0 and thread.is_alive() and self._call is not None:
                self._call.cancel()

    def end(self, state: Literal["fenced", "ended"], failure: LedgerError) -> None:
        if self.state != "open":
            return
        self.state = state
        self.failure = failure
        events, messages = self.spool.drop_all()
        self.tell(Problem(state, failure.message, failure.reason, events + messages))
        self.changed.notify_all()

    def _settle(self) -> None:
        """Events up to the acknowledged number leave the spool."""
        if self._front is None:
            return
        while self.spool.events and self._front <= self._acknowledged:
            is_refused = self._front in self._refused
            if is_refused:
                self._refused.discard(self._front)
            elif self._refused_unseen > 0:
                self._refused_unseen -= 1
                is_refused = True
                message = "refused on a stream that broke before the reason came"
                self.tell(Problem("refused", message, "UNKNOWN", 1))
            self._refused_before += is_refused
            self.spool.settle_event(refused=is_refused)
            self._front += 1
        self.changed.notify_all()

    def _opened(self, last: int, refused: int) -> None:
        if self._front is None:
            self._front = 1 if self._replay else last + 1
            self._refused_before = 0 if self._replay else refused
        elif last + 1 < self._front:
            # The database went back. The lost events stay lost, and the numbers go on from there.
            self.tell(Problem("lost", "the database lost them", "", self._front - last - 1))
            self._front = last + 1
            self._refused_before = refused
            self._refused.clear()
        self._acknowledged = last
        seen = sum(1 for number in self._refused if number <= last)
        self._refused_unseen = max(0, refused - self._refused_before - seen)
        self._settle()

    # The threads.

    def _tell_all(self) -> None:
        while (note := self._notes.get()) is not None:
            kind, arguments = note
            told = self._told[kind]
            if told is not None:
                with suppress(Exception):  # An error of a callback is not ours.
                    told(*arguments)

    def _send_events(self) -> None:
        retries = Retries(None)
        replaced = 0
        while True:
            with self.changed:
                self.changed.wait_for(
                    lambda: (
                        self.spool.events or self.is_closing or self.state != "open" or self.listens
                    )
                )
                if self.is_closing or self.state != "open":
                    return
            position = self._acknowledged
            failure = self._stream(retries)
            if self.is_closing:
                return
            is_replaced = failure.reason == "STREAM_REPLACED"
            replaced = replaced + 1 if is_replaced and position == self._acknowledged else 0
            is_rival = self._is_epoch_given and replaced >= _REPLACED_MAX
            self._pause_or_end(failure, retries, is_replaced and not is_rival)

    def _pause_or_end(self, failure: LedgerError, retries: Retries, is_harmless: bool) -> None:
        with self.changed:
            if failure.reason in ("STALE_EPOCH", "STREAM_REPLACED") and not is_harmless:
                self.end("fenced", failure)
            elif not (
                is_harmless
                or failure.may_pass
                or failure.code is grpc.StatusCode.UNAUTHENTICATED
                or failure.reason == "CURSOR_BEYOND_HEAD"
            ):
                self.end("ended", failure)
            else:
                if retries.count == 0 and not is_harmless:
                    self.tell(Problem("unreachable", failure.message, failure.reason))
                pause_s = retries.pause_s(failure)
                self.changed.wait_for(
                    lambda: self.is_closing or self.state != "open", timeout=pause_s
                )

    def _stream(self, retries: Retries) -> LedgerError:
        """One stream to its end."""
        stream = _Stream()
        try:
            self._call = self._ledger.PushSessionEvents(self._frames(stream))
            for answer in self._call:
                retries.succeeded()
                self._answer(stream, answer)
                if self._told["answer"] is not None:
                    self._notes.put(("answer", (answer,)))
        except grpc.RpcError as error:
            return failure_of(error)
        except Exception as error:  # Such as a channel that was closed.
            return LedgerError(grpc.StatusCode.INTERNAL, str(error))
        finally:
            with self.changed:
                stream.is_over = True
                self.changed.notify_all()
        return LedgerError(grpc.StatusCode.UNAVAILABLE, "the stream ended")

    def _answer(self, stream: "_Stream", answer: PushSessionEventsResponse) -> None:
        with self.changed:
            match answer.WhichOneof("frame"):
                case "opened":
                    self.epoch = answer.opened.producer_epoch
                    self.listens = True  # From now on a stream is open until the end.
                    self._opened(answer.opened.last_client_seq, answer.opened.refused)
                    stream.next = self._front
                case "committed":
                    self._acknowledged = answer.committed.last_client_seq
                    self.last_seq = answer.committed.last_seq
                    self._settle()
                case "refused":
                    number, failure = (
                        answer.refused.client_seq,
                        failure_of_status(answer.refused.status),
                    )
                    if number not in self._refused and number >= (self._front or 0):
                        self._refused.add(number)
                        self.tell(Problem("refused", failure.message, failure.reason, 1))
                case "cancel":
                    self._notes.put(("cancel", (answer.cancel.run_id, answer.cancel.reason)))
            self.changed.notify_all()

    def _frames(self, stream: "_Stream") -> Iterator[PushSessionEventsRequest]:
        opening = Open(session_id=self._session_id, producer_epoch=self.epoch)
        opening.compression = self._compression
        yield PushSessionEventsRequest(open=opening)
        while (frame := self._next_frame(stream)) is not None:
            yield frame

    def _next_frame(self, stream: "_Stream") -> PushSessionEventsRequest | None:
        """Waits for something to send. None: the stream ends."""
        with self.changed:
            while True:
                if stream.is_over or self.state not in ("open", "closed"):
                    return None
                if stream.next is not None and self._front is not None:
                    self._settle()  # Events that the service had before they were given again.
                    stream.next = max(stream.next, self._front)
                    first = stream.next
                    events = self._due(first - self._front)
                    if events:
                        stream.next += len(events)
                        return PushSessionEventsRequest(
                            batch=Batch(first_client_seq=first, events=events)
                        )
                    is_all = first - self._front == len(self.spool.events)
                    if is_all and self.flush_up_to > max(stream.flushed, self.spool.events_settled):
                        stream.flushed = self.flush_up_to
                        return PushSessionEventsRequest(flush=Flush())
                if self.is_closing:
                    return None
                self.changed.wait()

    def _due(self, begin: int) -> list[RawEvent]:
        events: list[RawEvent] = []
        size = 0
        spool = self.spool
        for at in range(begin, min(len(spool.events), begin + _FRAME_EVENTS_MAX)):
            record = spool.events[at]
            if record.after_message > spool.messages_settled:
                break
            size += record.bytes
            if events and size > _FRAME_BYTES_MAX:
                break
            occurred_at = Timestamp()
            occurred_at.FromNanoseconds(record.at_ns)
            events.append(RawEvent(payload=record.payload, occurred_at=occurred_at))
        return events

    def _send_messages(self) -> None:
        retries = Retries(None)
        while True:
            with self.changed:
                self.changed.wait_for(
                    lambda: (
                        self.is_closing
                        or self.state != "open"
                        or (
                            self.spool.messages
                            and self.spool.messages[0].after_event <= self.spool.events_settled
                        )
                    )
                )
                if self.is_closing or self.state != "open":
                    return
                record = self.spool.messages[0]
            request = PushSessionMessageRequest(
                session_id=self._session_id,
                event_type=record.event_type,
                payload=record.payload,
                idempotency_key=record.key,
                producer_epoch=self.epoch,
            )
            request.sent_at.FromNanoseconds(record.sent_at_ns)
            try:
                self._ledger.PushSessionMessage(request, timeout=_CALL_TIMEOUT_S)
                failure = None
                retries.succeeded()
            except grpc.RpcError as error:
                failure = failure_of(error)
            except Exception as error:  # Such as a channel that was closed.
                failure = LedgerError(grpc.StatusCode.INTERNAL, str(error))
            self._message_answered(failure, retries)

    def _message_answered(self, failure: LedgerError | None, retries: Retries) -> None:
        with self.changed:
            if self.state != "open":
                return
            is_final = failure is None or not (
                failure.may_pass
                or failure.code is grpc.StatusCode.UNAUTHENTICATED
                or failure.reason in ("STALE_EPOCH", *_SESSION_IS_GONE)
            )
            if is_final:
                self.spool.settle_message(refused=failure is not None)
                if failure is not None:
                    self.tell(Problem("refused", failure.message, failure.reason, 1))
                self.changed.notify_all()
                return
        if failure is not None:
            self._pause_or_end(failure, retries, is_harmless=False)


@dataclass
class _Stream:
    """One call."""

    next: int | None = None
    """The number of the next event to send; None until the service has opened the stream."""
    flushed: int = 0
    is_over: bool = False

"""The records of a writer that wait for the service, and the counts of all records."""

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

# The service's limit of a payload by default: a message with it fits in gRPC's 4 MiB.
PAYLOAD_BYTES_MAX = 4_170_000
# What a record takes in memory beside its text.
_RECORD_BYTES = 128
# The share of the room that only messages may use.
_RESERVE = 1 / 8
# After a drop, events are taken again when this share of the room is free, so that there is one gap.
_FREE_AGAIN = 1 / 4


@dataclass
class Counts:
    """The records of one stream by what became of them; `pending` ones still wait."""

    committed: int = 0
    refused: int = 0
    dropped: int = 0
    pending: int = 0


@dataclass(frozen=True)
class EventRecord:
    payload: str
    bytes: int
    at_ns: int
    after_message: int
    """The number of the `user` message that has to be stored before it; 0: none."""
    is_mark: bool = False
    """A mark of the writer itself, for a gap: it is not counted."""


@dataclass(frozen=True)
class MessageRecord:
    event_type: str
    payload: str
    key: str
    bytes: int
    sent_at_ns: int
    after_event: int
    """The number of the event that has to be settled before it; 0: none."""


@dataclass
class Spool:
    """Not safe for threads: the writer has the lock."""

    bytes_max: int
    events: deque[EventRecord] = field(default_factory=deque)
    messages: deque[MessageRecord] = field(default_factory=deque)
    event_counts: Counts = field(default_factory=Counts)
    message_counts: Counts = field(default_factory=Counts)
    # Records that were taken, marks included. Record number n is settled when `events_settled` >= n.
    events_given: int = 0
    events_settled: int = 0
    messages_given: int = 0
    messages_settled: int = 0
    user_message: int = 0  # The number of the last one.
    bytes: int = 0
    gap: dict[str, Any] | None = None  # What was dropped since the spool became full.

    @property
    def _room(self) -> float:
        return self.bytes_max * (1 - _RESERVE)

    @property
    def is_settled(self) -> bool:
        return not (self.events or self.messages)

    def add_event(self, payload: str) -> bool:
        """False: dropped."""
        size = len(payload.encode())
        if self.gap is not None or self.bytes + size + _RECORD_BYTES > self._room:
            self._drop("events")
            self.event_counts.dropped += 1
            return False
        self._append(payload, size)
        self.event_counts.pending += 1
        return True

    def add_message(self, event_type: str, payload: str, *, key: str, after_event: int = 0) -> bool:
        """False: dropped."""
        size = len(payload.encode()) + _RECORD_BYTES
        if self.bytes + size > self.bytes_max:
            self._drop("messages")
            self.message_counts.dropped += 1
            return False
        self.messages_given += 1
        if event_type == "user":
            self.user_message = self.messages_given
        record = MessageRecord(event_type, payload, key, size, time.time_ns(), after_event)
        self.messages.append(record)
        self.message_counts.pending += 1
        self.bytes += size
        return True

    def settle_event(self, *, refused: bool) -> None:
        """The first event is stored or refused."""
        record = self.events.popleft()
        self.events_settled += 1
        self.bytes -= record.bytes
        if self.gap is not None and self.bytes <= self._room * (1 - _FREE_AGAIN):
            self._end_gap()
        if record.is_mark:
            return
        self.event_counts.pending -= 1
        if refused:
            self.event_counts.refused += 1
        else:
            self.event_counts.committed += 1

    def settle_message(self, *, refused: bool) -> None:
        """The first message is stored or refused."""
        record = self.messages.popleft()
        self.messages_settled += 1
        self.bytes -= record.bytes
        self.message_counts.pending -= 1
        if refused:
            self.message_counts.refused += 1
        else:
            self.message_counts.committed += 1

    def _end_gap(self) -> None:
        """Puts one event where records are missing."""
        value, self.gap = self.gap, None
        mark = {"type": "CUSTOM", "name": "session_ledger.dropped", "value": value}
        payload = json.dumps(mark)
        self._append(payload, len(payload), is_mark=True)

    def drop_all(self) -> tuple[int, int]:
        """The writer has ended. Returns the numbers of lost events and messages."""
        lost = (self.event_counts.pending, self.message_counts.pending)
        for counts in (self.event_counts, self.message_counts):
            counts.dropped += counts.pending
            counts.pending = 0
        self.events_settled = self.events_given
        self.messages_settled = self.messages_given
        self.events.clear()
        self.messages.clear()
        self.bytes = 0
        self.gap = None
        return lost

    def _append(self, payload: str, size: int, *, is_mark: bool = False) -> None:
        self.events_given += 1
        after = self.user_message if self.user_message > self.messages_settled else 0
        size += _RECORD_BYTES
        self.events.append(EventRecord(payload, size, time.time_ns(), after, is_mark))
        self.bytes += size

    def _drop(self, stream: str) -> None:
        if self.gap is None:
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self.gap = {"events": 0, "messages": 0, "since": since}
        self.gap[stream] += 1

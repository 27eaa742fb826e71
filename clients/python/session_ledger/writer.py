"""Writes a session in the background: the agent never waits, and no call raises into its run.

    event(), message() ──► spool ──► stream of events   ──► committed, refused, cancel
                                └──► messages one by one ──► stored, refused

A broken connection is opened again, and the writer continues at the number that the service names, so
each event is stored once and in order. `docs/clients.md` has the rules.
"""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import grpc

from session_ledger.ambient.v1.event_stream_pb2 import PushSessionEventsResponse
from session_ledger.connection import LedgerError
from session_ledger.derive import DerivedMessage, MessageDeriver
from session_ledger.payloads import well_formed
from session_ledger.printing import event_json
from session_ledger.sender import Problem, Sender, State
from session_ledger.spool import PAYLOAD_BYTES_MAX, Counts


@dataclass(frozen=True)
class Stats:
    state: State
    epoch: int
    events: Counts
    messages: Counts
    last_seq: int
    """The session's number of the last acknowledged event."""
    replaced_values: int = 0
    """Values in records that JSON cannot hold, and that were printed in another way."""
    complete: bool = True
    """Nothing waits of the records that were given before `flush` or `close`."""


# The kinds of replaced values that are counted apart.
_KINDS_MAX = 100


def new_epoch() -> int:
    """Above all epochs of earlier writers, and no other writer has it."""
    return (time.time_ns() // 1_000_000 << 20) | random.getrandbits(20)


class SessionWriter:
    """Writes a session. Use it in a `with` statement, or call `close`.

    epoch: the writer's generation; a later writer fences an earlier one. By default from the time.
    replay: the events begin with the first one of the epoch, as after a restart; those that the
        service has are not stored again.
    derive: messages for people are derived from the events; `lifecycle_messages` are those of the start
        and the finish of runs.
    bytes_max: the room for records that wait for the service; above it new ones are dropped.
    merge: consecutive pieces of a text become one row.
    on_problem, on_cancel, on_answer: called in a thread of the writer, one after the other. A cancel
        has the run and the reason (`is_cancelled` tells it too); an answer is a frame of the service.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        session_id: str,
        *,
        epoch: int = 0,
        replay: bool = False,
        derive: bool = True,
        lifecycle_messages: bool = True,
        bytes_max: int = 64 * 1024 * 1024,
        merge: bool = True,
        on_problem: Callable[[Problem], object] | None = None,
        on_cancel: Callable[[str, str], object] | None = None,
        on_answer: Callable[[PushSessionEventsResponse], object] | None = None,
    ) -> None:
        if not 0 <= epoch < 2**63:
            raise ValueError("epoch must be 0 to 2^63 - 1")
        if bytes_max < 4_096:
            raise ValueError("bytes_max must be at least 4096")
        self.session_id = session_id
        self._cancelled_run: str | None = None
        self._on_cancel = on_cancel
        self._sender = Sender(
            channel,
            session_id,
            epoch=epoch or new_epoch(),
            is_epoch_given=epoch > 0,
            replay=replay,
            merge=merge,
            bytes_max=bytes_max,
            told={"problem": on_problem, "cancel": self._cancelled, "answer": on_answer},
        )
        self._changed = self._sender.changed
        self._spool = self._sender.spool
        self._deriver = MessageDeriver(lifecycle=lifecycle_messages) if derive else None
        self._has_told_closed = False
        self._replaced: Counter[str] = Counter()

    def __enter__(self) -> "SessionWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def event(self, event: object) -> None:
        """One AG-UI event: an object, a model of ag_ui.core, or JSON text. Never raises, never waits."""
        payload = self._printed(event, self._spool.event_counts, event_json)
        if payload is None:
            return
        with self._changed:
            if self._is_open(self._spool.event_counts):
                self._take(lambda: self._spool.add_event(payload))
                for one in self._derived(payload):
                    self._add_message(
                        one.event_type, one.payload, one.key, self._spool.events_given
                    )

    def message(self, event_type: str, payload: object, *, key: str | None = None) -> None:
        """One message, beside the derived ones: a text, or an object. Never raises, never waits.

        A message whose key is stored is not stored again. Events given after a `user` message are
        sent after it is stored.
        """
        text = self._printed(payload, self._spool.message_counts, _message_text)
        if text is None:
            return
        with self._changed:
            if self._is_open(self._spool.message_counts):
                self._add_message(event_type, text, key or str(uuid.uuid4()), 0)

    def listen(self, run_id: str) -> None:
        """For a run that a claim has begun: keeps a stream open from now on, to hear cancels.

        The stream takes the epoch, so call it after the claim.
        """
        with self._changed:
            if self._deriver is not None:
                self._deriver.begin_run(run_id)  # No RUN_STARTED is given.
            self._sender.listens = True
            if self._sender.state == "open":
                self._sender.begin()

    def is_cancelled(self, run_id: str) -> bool:
        """Whether somebody has cancelled this run, which is the newest one of the session."""
        return self._cancelled_run == run_id

    def _cancelled(self, run_id: str, reason: str) -> None:
        self._cancelled_run = run_id
        if self._on_cancel is not None:
            self._on_cancel(run_id, reason)

    def flush(self, timeout_s: float = 10) -> Stats:
        """Waits until all earlier records are stored, refused or dropped. Never raises."""
        spool = self._spool
        with self._changed:
            events, messages = spool.events_given, spool.messages_given
            self._sender.flush_up_to = events
            self._changed.notify_all()
            complete = self._changed.wait_for(
                lambda: spool.events_settled >= events and spool.messages_settled >= messages,
                max(0.0, timeout_s),
            )
            return self._stats(complete=complete)

    def close(self, timeout_s: float = 10) -> Stats:
        """Flushes and ends. May be called again."""
        stats = self.flush(timeout_s)
        with self._changed:
            if self._sender.state == "open":
                self._sender.state = "closed"
            was_closing, self._sender.is_closing = self._sender.is_closing, True
            self._changed.notify_all()
        left = stats.events.pending + stats.messages.pending
        if not was_closing:
            if left > 0:
                message = f"{left} records were not stored"
                self._sender.tell(Problem("left_behind", message, count=left))
            self._sender.join(timeout_s if left == 0 else 0)
        return replace(stats, state=self._sender.state)

    @property
    def stats(self) -> Stats:
        with self._changed:
            return self._stats(complete=self._spool.is_settled)

    @property
    def failure(self) -> LedgerError | None:
        """What has ended the writer: it was fenced, or the service accepts nothing more from it."""
        return self._sender.failure

    @property
    def epoch(self) -> int:
        return self._sender.epoch

    def _printed(self, value: object, counts: Counts, printed: Callable[..., str]) -> str | None:
        replaced: Counter[str] = Counter()
        try:
            text = printed(value, replaced, chars_max=PAYLOAD_BYTES_MAX)
            if replaced:
                self._count_replaced(replaced)
            if len(text) <= PAYLOAD_BYTES_MAX and len(text.encode()) <= PAYLOAD_BYTES_MAX:
                return text
            reason = f"a payload has at most {PAYLOAD_BYTES_MAX} bytes"
        except Exception as error:  # Whatever the agent's object raises.
            reason = str(error)
        with self._changed:
            counts.refused += 1
            if self._sender.state == "open":
                self._sender.begin()  # The thread that tells of it.
        self._sender.tell(Problem("refused", reason, "UNPRINTABLE", 1))
        return None

    def _count_replaced(self, replaced: Counter[str]) -> None:
        """Tells each kind once."""
        with self._changed:
            first = [what for what in replaced if what not in self._replaced]
            # The names of types are the agent's: their number has a limit.
            for what, count in replaced.items():
                is_known = what in self._replaced or len(self._replaced) < _KINDS_MAX
                self._replaced[what if is_known else "other"] += count
        for what in first[:_KINDS_MAX]:
            message = f"a value was printed in another way, because JSON cannot hold it: {what}"
            self._sender.tell(Problem("replaced", message, what, replaced[what]))

    def _is_open(self, counts: Counts) -> bool:
        if self._sender.state == "open":
            return True
        counts.dropped += 1
        if self._sender.state == "closed" and not self._has_told_closed:
            self._has_told_closed = True
            self._sender.tell(Problem("closed", "a record was given after close"))
        return False

    def _take(self, add: Callable[[], bool]) -> None:
        was_full = self._spool.gap is not None
        if add():
            self._sender.begin()
        elif not was_full:
            self._sender.tell(Problem("dropping", "the service is away and the room is full"))

    def _derived(self, payload: str) -> list[DerivedMessage]:
        try:
            return [] if self._deriver is None else self._deriver.next(payload)
        except Exception:  # A defect of ours must not end the agent's run.
            return []

    def _add_message(self, event_type: str, payload: str, key: str, after_event: int) -> None:
        self._take(
            lambda: self._spool.add_message(event_type, payload, key=key, after_event=after_event)
        )

    def _stats(self, *, complete: bool) -> Stats:
        events, messages = replace(self._spool.event_counts), replace(self._spool.message_counts)
        sender = self._sender
        replaced = sum(self._replaced.values())
        return Stats(
            sender.state, sender.epoch, events, messages, sender.last_seq, replaced, complete
        )


def _message_text(value: object, replaced: Counter[str], *, chars_max: int) -> str:
    """Any text, or an object as an event is one. Half a surrogate pair becomes U+FFFD."""
    if isinstance(value, str):
        return well_formed(value)
    return event_json(value, replaced, chars_max=chars_max)

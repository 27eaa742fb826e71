"""A session's rows as iterators that survive lost connections."""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from session_ledger.ambient.v1.events_pb2 import (
    ListSessionEventsRequest,
    SessionEvent,
    WatchSessionEventsRequest,
)
from session_ledger.ambient.v1.messages_pb2 import (
    ListSessionMessagesRequest,
    SessionMessage,
    WatchSessionMessagesRequest,
)
from session_ledger.connection import Retries, calls_of, failure_of, has_token_ended, push

_PAGE_ROWS = 1_000

Row = TypeVar("Row", SessionEvent, SessionMessage)


def read_events(
    channel: grpc.Channel,
    session_id: str,
    after: int = 0,
    *,
    expand: bool = False,
    follow: bool = False,
    retry_for_s: float | None = 60,
) -> Iterator[SessionEvent]:
    """The events after a number, each once and in order; with `follow` without end.

    Without `expand`, events that were merged are one row. The `after` to return with is
    `last_seq_of` the last row that you processed. Raises a LedgerError; lost connections are opened
    again for `retry_for_s`, None for ever.
    """
    ledger = calls_of(channel)

    def page(after: int) -> tuple[list[SessionEvent], int | None]:
        request = ListSessionEventsRequest(
            session_id=session_id, after_seq=after, page_size=_PAGE_ROWS, expand=expand
        )
        answer = push(ledger.ListSessionEvents, request, retry_for_s=retry_for_s)
        return list(answer.items), answer.next_after_seq if answer.has_more else None

    def watch(after: int) -> Any:
        request = WatchSessionEventsRequest(session_id=session_id, after_seq=after, expand=expand)
        return ledger.WatchSessionEvents(request)

    return _follow(watch, after, retry_for_s) if follow else _pages(page, after)


def read_messages(
    channel: grpc.Channel,
    session_id: str,
    after: int = 0,
    *,
    follow: bool = False,
    retry_for_s: float | None = 60,
) -> Iterator[SessionMessage]:
    """The messages after a number, as `read_events` does it."""
    ledger = calls_of(channel)

    def page(after: int) -> tuple[list[SessionMessage], int | None]:
        request = ListSessionMessagesRequest(
            session_id=session_id, after_seq=after, page_size=_PAGE_ROWS
        )
        answer = push(ledger.ListSessionMessages, request, retry_for_s=retry_for_s)
        return list(answer.items), answer.next_after_seq if answer.has_more else None

    def watch(after: int) -> Any:
        request = WatchSessionMessagesRequest(session_id=session_id, after_seq=after)
        return ledger.WatchSessionMessages(request)

    return _follow(watch, after, retry_for_s) if follow else _pages(page, after)


def last_seq_of(row: SessionEvent | SessionMessage) -> int:
    """The cursor to return with after this row."""
    if isinstance(row, SessionEvent):
        return row.seq + row.event_count - 1
    return row.seq


def _pages(page: Callable[[int], tuple[list[Row], int | None]], after: int) -> Iterator[Row]:
    position: int | None = after
    while position is not None:
        rows, position = page(position)
        yield from rows


def _follow(watch: Callable[[int], Any], after: int, retry_for_s: float | None) -> Iterator[Any]:
    retries = Retries(retry_for_s)
    while True:
        began = time.monotonic()
        call = watch(after)
        try:
            call.initial_metadata()  # Comes when the service has accepted the watch.
            if call.is_active():
                retries.succeeded()
            for row in call:
                after = last_seq_of(row)
                yield row
            return
        except grpc.RpcError as error:
            failure = failure_of(error)
        finally:
            call.cancel()  # The caller has left the loop.
        if not (failure.may_pass or has_token_ended(failure, began)):
            raise failure
        time.sleep(retries.pause_s(failure))

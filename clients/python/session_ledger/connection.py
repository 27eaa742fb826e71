"""Connections, failures of calls, and the pauses before a call is made again."""

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

# A stream that lived longer had a token that was accepted, and has ended since.
_ACCEPTED_AFTER_S = 1

_PAUSE_MIN_S = 0.1
_PAUSE_MAX_S = 5

Row = TypeVar("Row", bound=Message)

_CHANNEL_OPTIONS = [
    # gRPC would wait up to two minutes between attempts; the calls here pause themselves.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A watch may be silent for hours, so only a ping finds out that its peer is gone.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Channels of one address would share a connection.
    ("grpc.use_local_subchannel_pool", 1),
    # With the largest payload that a service can be configured to take, 16 MiB.
    ("grpc.max_receive_message_length", 16_801_520),
]


def connect(
    address: str,
    token: Callable[[], str] | None = None,
    roots: bytes | None = None,
    *,
    key: bytes | None = None,
    certificate: bytes | None = None,
) -> grpc.Channel:
    """A connection; the token is asked for before each call and each stream.

    With neither token nor roots it is without TLS, which is for your own machine: gRPC sends no token
    without TLS. Roots are authorities to trust, in PEM; without them those that gRPC brings along.
    Key and certificate are for a service that asks for a client certificate.
    """
    if token is None and roots is None and certificate is None:
        return grpc.insecure_channel(address, _CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(roots, key, certificate)
    if token is not None:
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.metadata_call_credentials(_Token(token))
        )
    return grpc.secure_channel(address, credentials, _CHANNEL_OPTIONS)


class _Token(grpc.AuthMetadataPlugin):
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def __call__(
        self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback
    ) -> None:
        callback((("authorization", f"Bearer {self._token()}"),), None)


class LedgerError(Exception):
    """A call that did not return OK."""

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        """A name of the service's closed list, such as STALE_EPOCH; empty: gRPC itself failed."""
        self.retry_after_s = retry_after_s
        """Set when the service says that the same call can succeed later."""

    @property
    def may_pass(self) -> bool:
        """The same call can succeed later."""
        return self.code in _PASSING or self.retry_after_s is not None


def failure_of(error: grpc.RpcError) -> LedgerError:
    """With the details of the service's status."""
    if not isinstance(error, grpc.Call):
        return LedgerError(grpc.StatusCode.UNKNOWN, str(error))
    trailers = {one.key: one.value for one in error.trailing_metadata() or ()}
    details = trailers.get("grpc-status-details-bin", b"")
    code = error.code() or grpc.StatusCode.UNKNOWN
    message = error.details() or code.name
    return _failure(code, message, Status.FromString(details) if details else Status())


def failure_of_status(status: Status) -> LedgerError:
    """Of one event of a stream."""
    codes = (code for code in grpc.StatusCode if code.value[0] == status.code)
    return _failure(next(codes, grpc.StatusCode.UNKNOWN), status.message, status)


def _failure(code: grpc.StatusCode, message: str, status: Status) -> LedgerError:
    info, asked = ErrorInfo(), RetryInfo()
    reason, retry_after_s = "", None
    for detail in status.details:
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(asked):
            retry_after_s = asked.retry_delay.ToMilliseconds() / 1000
    return LedgerError(code, message, reason=reason, retry_after_s=retry_after_s)


class Retries:
    """The failures in a row of one call. None for the time: the calls are repeated without end."""

    def __init__(self, retry_for_s: float | None) -> None:
        self._retry_for_s = retry_for_s
        self._since: float | None = None
        self.count = 0
        """The number of failures in a row."""

    def succeeded(self) -> None:
        self._since = None
        self.count = 0

    def pause_s(self, failure: LedgerError) -> float:
        """How long to wait before the next attempt. Raises the failure when no time is left."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        most = min(_PAUSE_MAX_S, _PAUSE_MIN_S * 2**self.count)
        pause_s = max(failure.retry_after_s or 0.0, random.uniform(most / 2, most))
        self.count = min(self.count + 1, 10)
        if self._retry_for_s is not None and now - self._since + pause_s > self._retry_for_s:
            raise failure
        return pause_s


def push(
    method: Callable[..., Row],
    request: Message,
    *,
    timeout_s: float = 10,
    retry_for_s: float | None = None,
) -> Row:
    """Makes a unary call until it is answered. An idempotency key makes it safe to repeat a push."""
    retries = Retries(retry_for_s)
    while True:
        try:
            return method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            failure = failure_of(error)
        if not failure.may_pass:
            raise failure
        time.sleep(retries.pause_s(failure))


def has_token_ended(failure: LedgerError, began: float) -> bool:
    """True for a stream whose token was accepted when it began: a new token may be accepted."""
    is_over = time.monotonic() - began > _ACCEPTED_AFTER_S
    return failure.code is grpc.StatusCode.UNAUTHENTICATED and is_over


def calls_of(channel: grpc.Channel) -> Any:
    """All calls of the contract, with the requests of `session_ledger.ambient.v1`, by `push` or once."""
    from session_ledger.ambient.v1.sessions_pb2_grpc import SessionServiceStub

    return SessionServiceStub(channel)  # type: ignore[no-untyped-call]

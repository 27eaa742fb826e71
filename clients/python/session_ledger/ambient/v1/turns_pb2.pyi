import datetime

from session_ledger.ambient.v1 import events_pb2 as _events_pb2
from session_ledger.ambient.v1 import messages_pb2 as _messages_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClaimTurnRequest(_message.Message):
    __slots__ = ("session_id", "producer_epoch", "up_to_seq", "messages_max", "run_started", "wait", "envelope_tokens", "redeliver")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    UP_TO_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    RUN_STARTED_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    producer_epoch: int
    up_to_seq: int
    messages_max: int
    run_started: str
    wait: _duration_pb2.Duration
    envelope_tokens: int
    redeliver: bool
    def __init__(self, session_id: _Optional[str] = ..., producer_epoch: _Optional[int] = ..., up_to_seq: _Optional[int] = ..., messages_max: _Optional[int] = ..., run_started: _Optional[str] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., envelope_tokens: _Optional[int] = ..., redeliver: bool = ...) -> None: ...

class ClaimTurnResponse(_message.Message):
    __slots__ = ("run_started", "messages", "waiting", "producer_epoch", "lost_run_id")
    RUN_STARTED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOST_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_started: _events_pb2.SessionEvent
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.SessionMessage]
    waiting: int
    producer_epoch: int
    lost_run_id: str
    def __init__(self, run_started: _Optional[_Union[_events_pb2.SessionEvent, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[_messages_pb2.SessionMessage, _Mapping]]] = ..., waiting: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., lost_run_id: _Optional[str] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("session_id", "run_id", "reason")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    reason: str
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

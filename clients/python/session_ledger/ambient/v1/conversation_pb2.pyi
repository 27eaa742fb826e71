import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATUS_UNSPECIFIED: _ClassVar[RunStatus]
    RUN_STATUS_RUNNING: _ClassVar[RunStatus]
    RUN_STATUS_FINISHED: _ClassVar[RunStatus]
    RUN_STATUS_ERROR: _ClassVar[RunStatus]
    RUN_STATUS_INTERRUPTED: _ClassVar[RunStatus]
    RUN_STATUS_STALLED: _ClassVar[RunStatus]
    RUN_STATUS_CANCELLED: _ClassVar[RunStatus]
    RUN_STATUS_UNANSWERED: _ClassVar[RunStatus]
RUN_STATUS_UNSPECIFIED: RunStatus
RUN_STATUS_RUNNING: RunStatus
RUN_STATUS_FINISHED: RunStatus
RUN_STATUS_ERROR: RunStatus
RUN_STATUS_INTERRUPTED: RunStatus
RUN_STATUS_STALLED: RunStatus
RUN_STATUS_CANCELLED: RunStatus
RUN_STATUS_UNANSWERED: RunStatus

class GetTranscriptRequest(_message.Message):
    __slots__ = ("session_id", "up_to_seq")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UP_TO_SEQ_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    up_to_seq: int
    def __init__(self, session_id: _Optional[str] = ..., up_to_seq: _Optional[int] = ...) -> None: ...

class Transcript(_message.Message):
    __slots__ = ("session_id", "up_to_seq", "up_to_message_seq", "messages", "state", "state_too_large", "interrupts", "branches")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UP_TO_SEQ_FIELD_NUMBER: _ClassVar[int]
    UP_TO_MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_TOO_LARGE_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTS_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    up_to_seq: int
    up_to_message_seq: int
    messages: str
    state: str
    state_too_large: bool
    interrupts: str
    branches: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session_id: _Optional[str] = ..., up_to_seq: _Optional[int] = ..., up_to_message_seq: _Optional[int] = ..., messages: _Optional[str] = ..., state: _Optional[str] = ..., state_too_large: bool = ..., interrupts: _Optional[str] = ..., branches: _Optional[_Iterable[int]] = ...) -> None: ...

class GiveFeedbackRequest(_message.Message):
    __slots__ = ("session_id", "message_id", "kind", "comment", "trace_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    message_id: str
    kind: str
    comment: str
    trace_id: str
    def __init__(self, session_id: _Optional[str] = ..., message_id: _Optional[str] = ..., kind: _Optional[str] = ..., comment: _Optional[str] = ..., trace_id: _Optional[str] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("session_id", "page_size", "page_token")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    page_size: int
    page_token: str
    def __init__(self, session_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "parent_run_id", "status", "first_seq", "last_seq", "started_at", "ended_at", "raw_events", "rows", "payload_bytes")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    RAW_EVENTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    parent_run_id: str
    status: RunStatus
    first_seq: int
    last_seq: int
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    raw_events: int
    rows: int
    payload_bytes: int
    def __init__(self, run_id: _Optional[str] = ..., parent_run_id: _Optional[str] = ..., status: _Optional[_Union[RunStatus, str]] = ..., first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., raw_events: _Optional[int] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

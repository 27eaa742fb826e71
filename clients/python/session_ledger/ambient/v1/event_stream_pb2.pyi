import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNSPECIFIED: _ClassVar[Compression]
    COMPRESSION_ON: _ClassVar[Compression]
    COMPRESSION_OFF: _ClassVar[Compression]
COMPRESSION_UNSPECIFIED: Compression
COMPRESSION_ON: Compression
COMPRESSION_OFF: Compression

class PushSessionEventsRequest(_message.Message):
    __slots__ = ("open", "batch", "flush")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    open: Open
    batch: Batch
    flush: Flush
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., flush: _Optional[_Union[Flush, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("session_id", "producer_epoch", "compression", "max_age_ms", "max_text_bytes", "stop_on_refused")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STOP_ON_REFUSED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    producer_epoch: int
    compression: Compression
    max_age_ms: int
    max_text_bytes: int
    stop_on_refused: bool
    def __init__(self, session_id: _Optional[str] = ..., producer_epoch: _Optional[int] = ..., compression: _Optional[_Union[Compression, str]] = ..., max_age_ms: _Optional[int] = ..., max_text_bytes: _Optional[int] = ..., stop_on_refused: bool = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("first_client_seq", "events")
    FIRST_CLIENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    first_client_seq: int
    events: _containers.RepeatedCompositeFieldContainer[RawEvent]
    def __init__(self, first_client_seq: _Optional[int] = ..., events: _Optional[_Iterable[_Union[RawEvent, _Mapping]]] = ...) -> None: ...

class RawEvent(_message.Message):
    __slots__ = ("event_type", "payload", "occurred_at")
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    event_type: str
    payload: str
    occurred_at: _timestamp_pb2.Timestamp
    def __init__(self, event_type: _Optional[str] = ..., payload: _Optional[str] = ..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Flush(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PushSessionEventsResponse(_message.Message):
    __slots__ = ("opened", "committed", "refused", "cancel")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    committed: Committed
    refused: Refused
    cancel: Cancel
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("last_client_seq", "max_unacknowledged_bytes", "producer_epoch", "refused")
    LAST_CLIENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKNOWLEDGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    last_client_seq: int
    max_unacknowledged_bytes: int
    producer_epoch: int
    refused: int
    def __init__(self, last_client_seq: _Optional[int] = ..., max_unacknowledged_bytes: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., refused: _Optional[int] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("last_client_seq", "last_seq", "first_seq")
    LAST_CLIENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    last_client_seq: int
    last_seq: int
    first_seq: int
    def __init__(self, last_client_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., first_seq: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("client_seq", "status")
    CLIENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    client_seq: int
    status: _status_pb2.Status
    def __init__(self, client_seq: _Optional[int] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("run_id", "reason", "message_seq")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    message_seq: int
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ..., message_seq: _Optional[int] = ...) -> None: ...

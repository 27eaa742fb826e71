import datetime

from session_ledger.ambient.v1 import common_pb2 as _common_pb2
from session_ledger.ambient.v1 import conversation_pb2 as _conversation_pb2
from session_ledger.ambient.v1 import event_stream_pb2 as _event_stream_pb2
from session_ledger.ambient.v1 import events_pb2 as _events_pb2
from session_ledger.ambient.v1 import feed_pb2 as _feed_pb2
from session_ledger.ambient.v1 import messages_pb2 as _messages_pb2
from session_ledger.ambient.v1 import search_pb2 as _search_pb2
from session_ledger.ambient.v1 import turns_pb2 as _turns_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_STATE_UNSPECIFIED: _ClassVar[SessionState]
    SESSION_STATE_RUNNING: _ClassVar[SessionState]
    SESSION_STATE_WAITING_FOR_RUNNER: _ClassVar[SessionState]
    SESSION_STATE_WAITING_FOR_PERSON: _ClassVar[SessionState]
    SESSION_STATE_FAILED: _ClassVar[SessionState]
    SESSION_STATE_CANCELLED: _ClassVar[SessionState]
    SESSION_STATE_IDLE: _ClassVar[SessionState]

class SessionOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_ORDER_UNSPECIFIED: _ClassVar[SessionOrder]
    SESSION_ORDER_ACTIVITY: _ClassVar[SessionOrder]
    SESSION_ORDER_WAITING: _ClassVar[SessionOrder]
SESSION_STATE_UNSPECIFIED: SessionState
SESSION_STATE_RUNNING: SessionState
SESSION_STATE_WAITING_FOR_RUNNER: SessionState
SESSION_STATE_WAITING_FOR_PERSON: SessionState
SESSION_STATE_FAILED: SessionState
SESSION_STATE_CANCELLED: SessionState
SESSION_STATE_IDLE: SessionState
SESSION_ORDER_UNSPECIFIED: SessionOrder
SESSION_ORDER_ACTIVITY: SessionOrder
SESSION_ORDER_WAITING: SessionOrder

class Session(_message.Message):
    __slots__ = ("metadata", "name", "prompt", "created_by_user_id", "llm_model", "parent_session_id", "labels", "annotations", "project_id", "phase", "start_time", "completion_time", "agent_id", "last_activity_at", "capabilities", "message_seq", "event_seq", "rows", "payload_bytes", "open_run_id", "turn_seq", "waiting", "failure", "hold", "forked_at_seq", "forked_at_message_seq", "forks", "state", "state_since", "questions", "facts")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_USER_ID_FIELD_NUMBER: _ClassVar[int]
    LLM_MODEL_FIELD_NUMBER: _ClassVar[int]
    PARENT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TIME_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ACTIVITY_AT_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    EVENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_SEQ_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    FORKED_AT_SEQ_FIELD_NUMBER: _ClassVar[int]
    FORKED_AT_MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    FORKS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_SINCE_FIELD_NUMBER: _ClassVar[int]
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    metadata: _common_pb2.ObjectReference
    name: str
    prompt: str
    created_by_user_id: str
    llm_model: str
    parent_session_id: str
    labels: str
    annotations: str
    project_id: str
    phase: str
    start_time: _timestamp_pb2.Timestamp
    completion_time: _timestamp_pb2.Timestamp
    agent_id: str
    last_activity_at: _timestamp_pb2.Timestamp
    capabilities: str
    message_seq: int
    event_seq: int
    rows: int
    payload_bytes: int
    open_run_id: str
    turn_seq: int
    waiting: int
    failure: RunFailure
    hold: str
    forked_at_seq: int
    forked_at_message_seq: int
    forks: _containers.RepeatedScalarFieldContainer[str]
    state: SessionState
    state_since: _timestamp_pb2.Timestamp
    questions: _containers.RepeatedCompositeFieldContainer[Question]
    facts: SessionFacts
    def __init__(self, metadata: _Optional[_Union[_common_pb2.ObjectReference, _Mapping]] = ..., name: _Optional[str] = ..., prompt: _Optional[str] = ..., created_by_user_id: _Optional[str] = ..., llm_model: _Optional[str] = ..., parent_session_id: _Optional[str] = ..., labels: _Optional[str] = ..., annotations: _Optional[str] = ..., project_id: _Optional[str] = ..., phase: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., completion_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., agent_id: _Optional[str] = ..., last_activity_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., capabilities: _Optional[str] = ..., message_seq: _Optional[int] = ..., event_seq: _Optional[int] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., open_run_id: _Optional[str] = ..., turn_seq: _Optional[int] = ..., waiting: _Optional[int] = ..., failure: _Optional[_Union[RunFailure, _Mapping]] = ..., hold: _Optional[str] = ..., forked_at_seq: _Optional[int] = ..., forked_at_message_seq: _Optional[int] = ..., forks: _Optional[_Iterable[str]] = ..., state: _Optional[_Union[SessionState, str]] = ..., state_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., questions: _Optional[_Iterable[_Union[Question, _Mapping]]] = ..., facts: _Optional[_Union[SessionFacts, _Mapping]] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("id", "run_id", "seq", "message", "reason", "tool_name", "tool_arguments", "interrupt")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    INTERRUPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    run_id: str
    seq: int
    message: str
    reason: str
    tool_name: str
    tool_arguments: str
    interrupt: str
    def __init__(self, id: _Optional[str] = ..., run_id: _Optional[str] = ..., seq: _Optional[int] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., tool_name: _Optional[str] = ..., tool_arguments: _Optional[str] = ..., interrupt: _Optional[str] = ...) -> None: ...

class SessionFacts(_message.Message):
    __slots__ = ("last_text", "last_role", "runs", "duration", "input_tokens", "output_tokens", "models", "tool_calls", "failed_tool_calls", "tools")
    LAST_TEXT_FIELD_NUMBER: _ClassVar[int]
    LAST_ROLE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    last_text: str
    last_role: str
    runs: int
    duration: _duration_pb2.Duration
    input_tokens: int
    output_tokens: int
    models: _containers.RepeatedScalarFieldContainer[str]
    tool_calls: int
    failed_tool_calls: int
    tools: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, last_text: _Optional[str] = ..., last_role: _Optional[str] = ..., runs: _Optional[int] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., models: _Optional[_Iterable[str]] = ..., tool_calls: _Optional[int] = ..., failed_tool_calls: _Optional[int] = ..., tools: _Optional[_Iterable[str]] = ...) -> None: ...

class RunFailure(_message.Message):
    __slots__ = ("run_id", "seq", "message", "code", "at")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    seq: int
    message: str
    code: str
    at: _timestamp_pb2.Timestamp
    def __init__(self, run_id: _Optional[str] = ..., seq: _Optional[int] = ..., message: _Optional[str] = ..., code: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("name", "prompt", "llm_model", "parent_session_id", "labels", "annotations", "project_id", "agent_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    LLM_MODEL_FIELD_NUMBER: _ClassVar[int]
    PARENT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    prompt: str
    llm_model: str
    parent_session_id: str
    labels: str
    annotations: str
    project_id: str
    agent_id: str
    def __init__(self, name: _Optional[str] = ..., prompt: _Optional[str] = ..., llm_model: _Optional[str] = ..., parent_session_id: _Optional[str] = ..., labels: _Optional[str] = ..., annotations: _Optional[str] = ..., project_id: _Optional[str] = ..., agent_id: _Optional[str] = ...) -> None: ...

class ForkSessionRequest(_message.Message):
    __slots__ = ("session_id", "at_seq", "at_message_seq", "new_id", "idempotency_key")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AT_SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEW_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    at_seq: int
    at_message_seq: int
    new_id: str
    idempotency_key: str
    def __init__(self, session_id: _Optional[str] = ..., at_seq: _Optional[int] = ..., at_message_seq: _Optional[int] = ..., new_id: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class UpdateSessionRequest(_message.Message):
    __slots__ = ("id", "name", "labels", "annotations")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    labels: str
    annotations: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., labels: _Optional[str] = ..., annotations: _Optional[str] = ...) -> None: ...

class UpdateSessionStatusRequest(_message.Message):
    __slots__ = ("id", "phase", "start_time", "completion_time", "capabilities", "agent_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TIME_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    phase: str
    start_time: _timestamp_pb2.Timestamp
    completion_time: _timestamp_pb2.Timestamp
    capabilities: str
    agent_id: str
    def __init__(self, id: _Optional[str] = ..., phase: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., completion_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., capabilities: _Optional[str] = ..., agent_id: _Optional[str] = ...) -> None: ...

class DeleteSessionRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class EraseSessionRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class HoldSessionRequest(_message.Message):
    __slots__ = ("id", "reason", "release")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    id: str
    reason: str
    release: bool
    def __init__(self, id: _Optional[str] = ..., reason: _Optional[str] = ..., release: bool = ...) -> None: ...

class EraseSessionResponse(_message.Message):
    __slots__ = ("messages", "events")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    messages: int
    events: int
    def __init__(self, messages: _Optional[int] = ..., events: _Optional[int] = ...) -> None: ...

class DeleteSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("page", "size", "running", "waiting", "query", "order_by", "labels", "project_id", "phase", "failures", "parent_session_id", "page_token", "state", "agent_id", "active_after", "active_before", "facts")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    PARENT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_AFTER_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    page: int
    size: int
    running: bool
    waiting: bool
    query: str
    order_by: SessionOrder
    labels: _containers.ScalarMap[str, str]
    project_id: str
    phase: str
    failures: bool
    parent_session_id: str
    page_token: str
    state: SessionState
    agent_id: str
    active_after: _timestamp_pb2.Timestamp
    active_before: _timestamp_pb2.Timestamp
    facts: bool
    def __init__(self, page: _Optional[int] = ..., size: _Optional[int] = ..., running: bool = ..., waiting: bool = ..., query: _Optional[str] = ..., order_by: _Optional[_Union[SessionOrder, str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., project_id: _Optional[str] = ..., phase: _Optional[str] = ..., failures: bool = ..., parent_session_id: _Optional[str] = ..., page_token: _Optional[str] = ..., state: _Optional[_Union[SessionState, str]] = ..., agent_id: _Optional[str] = ..., active_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., active_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., facts: bool = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("items", "metadata", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Session]
    metadata: _common_pb2.ListMeta
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., metadata: _Optional[_Union[_common_pb2.ListMeta, _Mapping]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchSessionsRequest(_message.Message):
    __slots__ = ("running", "waiting", "labels", "project_id", "state", "state_frames")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_FRAMES_FIELD_NUMBER: _ClassVar[int]
    running: bool
    waiting: bool
    labels: _containers.ScalarMap[str, str]
    project_id: str
    state: SessionState
    state_frames: bool
    def __init__(self, running: bool = ..., waiting: bool = ..., labels: _Optional[_Mapping[str, str]] = ..., project_id: _Optional[str] = ..., state: _Optional[_Union[SessionState, str]] = ..., state_frames: bool = ...) -> None: ...

class SessionWatchEvent(_message.Message):
    __slots__ = ("type", "session", "resource_id", "watch_state")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    WATCH_STATE_FIELD_NUMBER: _ClassVar[int]
    type: _common_pb2.EventType
    session: Session
    resource_id: str
    watch_state: _common_pb2.WatchState
    def __init__(self, type: _Optional[_Union[_common_pb2.EventType, str]] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., resource_id: _Optional[str] = ..., watch_state: _Optional[_Union[_common_pb2.WatchState, str]] = ...) -> None: ...

class IssueSessionTokenRequest(_message.Message):
    __slots__ = ("session_id", "role", "ttl")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    role: str
    ttl: _duration_pb2.Duration
    def __init__(self, session_id: _Optional[str] = ..., role: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class IssueSessionTokenResponse(_message.Message):
    __slots__ = ("token", "expires_at")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    token: str
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, token: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

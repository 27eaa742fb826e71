"""The messages that people read, derived from the events of an agent: docs/dual-push.md has the table.

The result depends only on the events so far, so a restarted runner that gives its events again derives
the same messages under the same keys. No input makes it raise.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from session_ledger.payloads import (
    PAYLOAD_BYTES_MAX,
    assistant_payload,
    custom_payload,
    error_payload,
    lifecycle_payload,
    member_of,
    no_constant,
    tool_result_payload,
    tool_use_payload,
    well_formed,
)

_KEY_BYTES_MAX = 128
# Bases of keys that are counted separately in one run.
_COUNTED_MAX = 10_000
# Above these bounds the oldest open construct ends as if its END had come.
_OPEN_MAX = 1_000
_OPEN_CHARS_MAX = 24 * 1_048_576
# These events end no chunk run.
_END_NO_CHUNKS = {
    "REASONING_ENCRYPTED_VALUE",
    "ACTIVITY_SNAPSHOT",
    "ACTIVITY_DELTA",
    "SUBAGENT_STARTED",
    "RAW",
}
_KINDS = {"TEXT_MESSAGE": "text", "TOOL_CALL": "tool_call", "REASONING_MESSAGE": "reasoning"}
_IDS = {"text": "messageId", "tool_call": "toolCallId", "reasoning": "messageId"}
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
Event = dict[str, Any]


@dataclass(frozen=True)
class DerivedMessage:
    event_type: str
    payload: str
    key: str
    """The idempotency key: the same in each derivation of the run."""


@dataclass
class _Construct:
    kind: str
    id: str
    owner: str | None
    is_assistants: bool
    name: str | None
    parts: list[str] = field(default_factory=list)
    chars: int = 0

    @property
    def key(self) -> tuple[str, str, str | None]:
        return (self.kind, self.id, self.owner)


def _said(kind: str, given: str, owner: str | None, event: Event) -> _Construct:
    """What a START says, or a chunk that stands for one."""
    is_assistants = kind != "text" or _text(event, "role") in (None, "assistant")
    return _Construct(kind, given, owner, is_assistants, _text(event, "toolCallName"))


class MessageDeriver:
    def __init__(self, *, lifecycle: bool = True) -> None:
        self._lifecycle = lifecycle
        self._open: dict[tuple[str, str, str | None], _Construct] = {}
        self._chars = 0
        # The construct of the last chunk of each subagent, and of the agent itself.
        self._lanes: dict[str | None, _Construct] = {}
        self._run_id: str | None = None
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._derived: list[DerivedMessage] = []

    def next(self, payload: str) -> list[DerivedMessage]:
        """Takes the next event, as JSON; returns the messages that it completes, mostly none."""
        try:
            event = json.loads(payload, parse_constant=no_constant)
        except (ValueError, RecursionError):
            return []
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            return []
        for one in _ungrouped(event):
            self._take(one, payload)
        derived, self._derived = self._derived, []
        return derived

    def begin_run(self, run_id: str | None) -> None:
        """A run begins, by its RUN_STARTED or by a claim, which has stored that."""
        self._break_off()
        if run_id is None or run_id != self._run_id:
            self._run_id = run_id
            self._counts.clear()
            self._total = 0

    def _take(self, event: Event, payload: str) -> None:
        kind_name, _, does = event["type"].rpartition("_")
        kind = _KINDS.get(kind_name)
        if kind is None or does == "RESULT":
            self._whole(event, payload)
        elif does == "CHUNK":
            self._chunk(kind, event)
        else:
            self._end_lane(_text(event, "subagentRunId"))
            self._part(kind, does, event)

    def _whole(self, event: Event, payload: str) -> None:
        if event["type"].startswith("RUN_") or event["type"] == "MESSAGES_SNAPSHOT":
            for owner in list(self._lanes):
                self._end_lane(owner)
        match event["type"]:
            case "RUN_STARTED":
                self.begin_run(_text(event, "runId"))
                self._lifecycle_of("run_started")
            case "RUN_FINISHED":
                for construct in list(self._open.values()):
                    self._tell(construct)
                self._lifecycle_of("run_finished")
            case "RUN_ERROR":
                self._break_off()
                self._error(event)
            case type_ if type_ not in _END_NO_CHUNKS:
                self._end_lane(_text(event, "subagentRunId"))
                if type_ == "TOOL_CALL_RESULT":
                    self._result(event)
                elif type_ == "CUSTOM":
                    self._custom(event, payload)

    def _chunk(self, kind: str, event: Event) -> None:
        owner, given = _text(event, "subagentRunId"), _text(event, _IDS[kind])
        known = self._lane_of(kind, given, owner)
        if known is None:
            self._end_lane(owner)
            if kind == "tool_call" and given is None:
                return  # No result can refer to a call without an id.
            known = _said(kind, given or "", owner, event)
            self._lanes[owner] = known
            if kind != "reasoning":
                self._start(known)
        if kind != "reasoning":
            self._go_on(known, event)

    def _lane_of(self, kind: str, given: str | None, owner: str | None) -> _Construct | None:
        def fits(one: _Construct | None) -> bool:
            return one is not None and one.kind == kind and given in (None, one.id)

        own = self._lanes.get(owner)
        if fits(own):
            return own
        if owner is not None:
            return None
        # Without its owner, the chunk can continue the construct of another one, if one fits.
        others = [one for one in self._lanes.values() if fits(one)]
        return others[0] if len(others) == 1 or (others and given is not None) else None

    def _part(self, kind: str, does: str, event: Event) -> None:
        given, owner = _text(event, _IDS[kind]), _text(event, "subagentRunId")
        if given is None or kind == "reasoning":
            return
        if does == "START":
            self._start(_said(kind, given, owner, event))
        elif does in ("CONTENT", "ARGS"):
            # A fragment without a START belongs to the assistant.
            self._go_on(_Construct(kind, given, owner, True, None), event)
        elif does == "END":
            self._tell(self._find(kind, given, owner))

    def _start(self, said: _Construct) -> None:
        """A second START of an open construct changes only the name."""
        known = self._open.get(said.key)
        if known is None:
            self._begin(said)
        else:
            known.name = said.name or known.name

    def _find(self, kind: str, given: str, owner: str | None) -> _Construct | None:
        own = self._open.get((kind, given, owner))
        if own is not None or owner is not None:
            return own
        alike = [one for one in self._open.values() if (one.kind, one.id) == (kind, given)]
        return alike[0] if len(alike) == 1 else None

    def _begin(self, said: _Construct) -> _Construct:
        construct = replace(said, parts=[])
        self._open[said.key] = construct
        self._make_room()
        return construct

    def _go_on(self, said: _Construct, event: Event) -> None:
        construct = self._find(said.kind, said.id, said.owner) or self._begin(said)
        delta = _text(event, "delta") or ""
        if construct.is_assistants and delta:
            construct.parts.append(delta)
            construct.chars += len(delta)
            self._chars += len(delta)
            self._make_room()

    def _make_room(self) -> None:
        while len(self._open) > _OPEN_MAX or (self._chars > _OPEN_CHARS_MAX and self._open):
            self._tell(next(iter(self._open.values())))

    def _end_lane(self, owner: str | None) -> None:
        lane = self._lanes.pop(owner, None)
        if lane is not None:
            self._tell(self._open.get(lane.key))

    def _break_off(self) -> None:
        """An open message ends as it is, an incomplete tool call is dropped."""
        for construct in list(self._open.values()):
            if construct.kind == "text":
                self._tell(construct)
        self._open.clear()
        self._chars = 0

    def _tell(self, construct: _Construct | None) -> None:
        if construct is None:
            return
        del self._open[construct.key]
        self._chars -= construct.chars
        if not construct.is_assistants:
            return
        owner = "" if construct.owner is None else f"{construct.owner}/"
        own_id = f"{owner}{construct.id}"
        if construct.kind == "tool_call":
            payload = tool_use_payload(construct.name, construct.id, "".join(construct.parts))
            self._add("tool_use", own_id, payload)
        elif payload := assistant_payload("".join(construct.parts)):
            self._add("assistant", own_id, payload)

    def _result(self, event: Event) -> None:
        call_id = _text(event, "toolCallId")
        # Agents without a framework use `result`, which no version of the protocol has.
        content = event.get("content")
        content = event.get("result") if content is None else content
        if call_id is not None and content is not None:
            self._add("tool_result", call_id, tool_result_payload(call_id, content))

    def _custom(self, event: Event, payload: str) -> None:
        name = _text(event, "name")
        if name is not None:
            shown = custom_payload(name, member_of(payload, "value"))
            self._add("error" if "error" in name.lower() else "system", name, shown)

    def _error(self, event: Event) -> None:
        message = _text(event, "message")
        message = event.get("error") if message is None else message
        self._add("error", "run_error", error_payload(message, event.get("code")))

    def _lifecycle_of(self, event: str) -> None:
        if self._lifecycle:
            self._add("lifecycle", event, lifecycle_payload(event))

    def _add(self, event_type: str, own_id: str, payload: str) -> None:
        if len(payload.encode()) > PAYLOAD_BYTES_MAX:
            return
        base = f"{self._run_id or ''}:{event_type}:{own_id}"
        name = _fitted(base)
        self._total += 1
        count = self._counts[name] + 1
        if count == 1 and len(self._counts) >= _COUNTED_MAX:
            count = self._total  # Above all earlier numbers.
        else:
            self._counts[name] = count
        key = f"{base}:{count}"
        if self._run_id is None:
            key += f":{_digest(payload)[:16]}"
        self._derived.append(DerivedMessage(event_type, payload, _fitted(key)))


def _ungrouped(event: Event) -> Iterator[Event]:
    """The events that one event stands for: itself, or START, fragment and END of a group."""
    yield event
    fragments = {"TEXT_MESSAGE_START": "TEXT_MESSAGE_CONTENT", "TOOL_CALL_START": "TOOL_CALL_ARGS"}
    fragment = fragments.get(event["type"])
    if fragment is None or "fragment_count" not in event:
        return
    delta = event.get("accumulated_content")
    yield {**event, "type": fragment, "delta": delta if isinstance(delta, str) else ""}
    end = event.get("end_event")
    if isinstance(end, dict):
        yield {**event, **end, "type": event["type"].replace("_START", "_END")}


def _text(event: Event, name: str) -> str | None:
    """Names may be in snake_case, as Python runners spell them."""
    value = event.get(name)
    value = event.get(_CAPITAL.sub("_", name).lower()) if value is None else value
    return value if isinstance(value, str) else None


def _fitted(key: str) -> str:
    is_plain = key == well_formed(key) and "\0" not in key
    if is_plain and len(key.encode()) <= _KEY_BYTES_MAX:
        return key
    return f"sha256:{_digest(key)}"


def _digest(text: str) -> str:
    return hashlib.sha256(well_formed(text).encode()).hexdigest()

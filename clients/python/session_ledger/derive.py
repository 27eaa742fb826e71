"""The messages that people read, derived from the events of an agent: docs/dual-push.md has the table.

The result depends only on the events so far, so a restarted runner that gives its events again derives
the same messages under the same keys. No input makes it raise.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# The service's limit of a message by default, in bytes; a longer one is cut.
_PAYLOAD_BYTES_MAX = 1_048_576
_RESULT_CHARS_MAX = 2_000
_KEY_BYTES_MAX = 128
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
_SPACE = re.compile(r"(?<!^)(?=[A-Z])")

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
    text: str = ""


class MessageDeriver:
    def __init__(self, *, lifecycle: bool = True) -> None:
        self._lifecycle = lifecycle
        self._open: dict[tuple[str, str, str | None], _Construct] = {}
        self._chars = 0
        # The construct of the last chunk of each subagent, and of the agent itself.
        self._lanes: dict[str | None, _Construct] = {}
        self._run_id: str | None = None
        self._counts: Counter[str] = Counter()
        self._derived: list[DerivedMessage] = []

    def next(self, payload: str) -> list[DerivedMessage]:
        """Takes the next event, as JSON; returns the messages that it completes, mostly none."""
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError):
            return []
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            return []
        for one in _ungrouped(event):
            self._take(one)
        derived, self._derived = self._derived, []
        return derived

    def _take(self, event: Event) -> None:
        kind_name, _, does = event["type"].rpartition("_")
        kind = _KINDS.get(kind_name)
        if kind is None or does == "RESULT":
            self._whole(event)
        elif does == "CHUNK":
            self._chunk(kind, event)
        else:
            self._end_lane(_text(event, "subagentRunId"))
            self._part(kind, does, event)

    def _whole(self, event: Event) -> None:
        match event["type"]:
            case "RUN_STARTED":
                self._break_off()
                run_id = _text(event, "runId")
                if run_id is None or run_id != self._run_id:
                    self._run_id = run_id
                    self._counts.clear()
                self._lifecycle_of("run_started")
            case "RUN_FINISHED":
                for construct in list(self._open.values()):
                    self._tell(construct)
                self._lanes.clear()
                self._lifecycle_of("run_finished")
            case "RUN_ERROR":
                self._break_off()
                self._error(event)
            case "MESSAGES_SNAPSHOT":
                for construct in self._lanes.values():
                    self._tell(construct)
                self._lanes.clear()
            case type_ if type_ not in _END_NO_CHUNKS:
                self._end_lane(_text(event, "subagentRunId"))
                if type_ == "TOOL_CALL_RESULT":
                    self._result(event)
                elif type_ == "CUSTOM":
                    self._custom(event)

    def _chunk(self, kind: str, event: Event) -> None:
        owner, given = _text(event, "subagentRunId"), _text(event, _IDS[kind])
        known = self._lane_of(kind, given, owner)
        if known is None:
            self._end_lane(owner)
            if kind == "tool_call" and given is None:
                return  # No result can refer to a call without an id.
            known = self._begin(kind, given or "", owner, event)
            self._lanes[owner] = known
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
        construct = self._find(kind, given, owner)
        if does == "START":
            own = self._open.get((kind, given, owner))
            if own is None:
                self._begin(kind, given, owner, event)
            else:
                own.name = _text(event, "toolCallName") or own.name
        elif does in ("CONTENT", "ARGS"):
            # A fragment without a START belongs to the assistant.
            self._go_on(construct or self._begin(kind, given, owner, {}), event)
        elif does == "END" and construct is not None:
            self._tell(construct)

    def _find(self, kind: str, given: str, owner: str | None) -> _Construct | None:
        own = self._open.get((kind, given, owner))
        if own is not None or owner is not None:
            return own
        alike = [one for one in self._open.values() if (one.kind, one.id) == (kind, given)]
        return alike[0] if len(alike) == 1 else None

    def _begin(self, kind: str, given: str, owner: str | None, event: Event) -> _Construct:
        known = self._open.get((kind, given, owner))
        if known is not None:
            return known
        is_assistants = kind != "text" or _text(event, "role") in (None, "assistant")
        name = _text(event, "toolCallName")
        construct = _Construct(kind, given, owner, is_assistants, name)
        self._open[(kind, given, owner)] = construct
        self._make_room()
        return construct

    def _go_on(self, construct: _Construct, event: Event) -> None:
        delta = _text(event, "delta") or ""
        if construct.is_assistants and construct.kind != "reasoning":
            construct.text += delta
            self._chars += len(delta)
            self._make_room()

    def _make_room(self) -> None:
        while len(self._open) > _OPEN_MAX or (self._chars > _OPEN_CHARS_MAX and self._open):
            self._tell(next(iter(self._open.values())))

    def _end_lane(self, owner: str | None) -> None:
        construct = self._lanes.pop(owner, None)
        if construct is not None:
            self._tell(construct)

    def _break_off(self) -> None:
        """An open message ends as it is, an incomplete tool call is dropped."""
        for construct in list(self._open.values()):
            if construct.kind == "text":
                self._tell(construct)
        self._open.clear()
        self._lanes.clear()
        self._chars = 0

    def _tell(self, construct: _Construct) -> None:
        key = (construct.kind, construct.id, construct.owner)
        if self._open.get(key) is not construct:
            return
        del self._open[key]
        self._chars -= len(construct.text)
        if construct.kind == "reasoning" or not construct.is_assistants:
            return
        owner = "" if construct.owner is None else f"{construct.owner}/"
        own_id = f"{owner}{construct.id}"
        if construct.kind == "tool_call":
            tool = _quoted((construct.name or "unknown").replace("\0", "\ufffd"))
            members = {"tool": tool, "tool_call_id": _quoted(construct.id)}
            shown = _cut(construct.text, _PAYLOAD_BYTES_MAX // 6)
            input_ = _input_of(shown) if shown is construct.text else _raw(shown)
            self._add("tool_use", own_id, _printed({**members, "input": input_}))
        elif construct.text.strip():
            text = _well_formed(construct.text).replace("\0", "\ufffd")
            if len(text.encode()) > _PAYLOAD_BYTES_MAX:
                text = _cut(text, _PAYLOAD_BYTES_MAX // 4 - 100)
            self._add("assistant", own_id, text)

    def _result(self, event: Event) -> None:
        call_id = _text(event, "toolCallId")
        # Agents without a framework use `result`, which no version of the protocol has.
        content = event.get("content")
        content = event.get("result") if content is None else content
        if call_id is None or content is None:
            return
        result = _quoted(_cut(_result_text(content), _RESULT_CHARS_MAX))
        self._add(
            "tool_result", call_id, _printed({"tool_call_id": _quoted(call_id), "result": result})
        )

    def _custom(self, event: Event) -> None:
        name = _text(event, "name")
        if name is None:
            return
        value = _json(event["value"]) if "value" in event else ""
        if len(value.encode()) > _PAYLOAD_BYTES_MAX // 2:
            value = _quoted(_cut(value, _RESULT_CHARS_MAX))
        event_type = "error" if "error" in name.lower() else "system"
        self._add(event_type, name, _printed({"custom_event": _quoted(name), "value": value}))

    def _error(self, event: Event) -> None:
        error, code = event.get("error"), event.get("code")
        message = _text(event, "message")
        if message is None:
            message = "unknown error" if error is None else _shown(error)
        said = {"error": _quoted(_cut(message, _PAYLOAD_BYTES_MAX // 12))}
        payload = _printed({**said, "code": "" if code is None else _quoted(_shown(code))})
        self._add("error", "run_error", payload)

    def _lifecycle_of(self, event: str) -> None:
        if self._lifecycle:
            self._add("lifecycle", event, _printed({"event": _quoted(event)}))

    def _add(self, event_type: str, own_id: str, payload: str) -> None:
        if len(payload.encode()) > _PAYLOAD_BYTES_MAX:
            return
        base = f"{self._run_id or ''}:{event_type}:{own_id}"
        self._counts[_fitted(base)] += 1
        key = f"{base}:{self._counts[_fitted(base)]}"
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
    value = event.get(_SPACE.sub("_", name).lower()) if value is None else value
    return value if isinstance(value, str) else None


def _input_of(text: str) -> str:
    if text == "":
        return ""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _raw(text)
    # The agent's own JSON: numbers keep their digits.
    own = _well_formed(text.strip(" \t\n\r"))
    return own if isinstance(value, dict) else f'{{"value":{own}}}'


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _raw(text: str) -> str:
    return f'{{"raw":{_quoted(text)}}}'


def _result_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _json(content)
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    """Parts that are not text are named and not shown."""
    if not isinstance(part, dict):
        return _json(part)
    if isinstance(part.get("text"), str):
        return str(part["text"])
    return f"[{part['type']}]" if isinstance(part.get("type"), str) else "[not text]"


def _printed(members: dict[str, str]) -> str:
    """Empty members are left out."""
    shown = [f'"{name}":{value}' for name, value in members.items() if value != ""]
    return "{" + ",".join(shown) + "}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return _well_formed(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


_quoted: Callable[[str], str] = _json


def _well_formed(text: str) -> str:
    """Half a surrogate pair becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _cut(text: str, chars_max: int) -> str:
    """At most so many UTF-16 units, and a note about the rest."""
    if len(text) * 2 <= chars_max:
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    total = len(units) // 2
    if total <= chars_max:
        return text
    kept = units[: chars_max * 2].decode("utf-16-le", "ignore")
    length = len(kept.encode("utf-16-le")) // 2
    return f"{kept}… [cut after {length} of {total} characters]"


def _fitted(key: str) -> str:
    is_plain = key == _well_formed(key) and "\0" not in key
    if is_plain and len(key.encode()) <= _KEY_BYTES_MAX:
        return key
    return f"sha256:{_digest(key)}"


def _digest(text: str) -> str:
    return hashlib.sha256(_well_formed(text).encode()).hexdigest()

"""Records the runs of a Pydantic AI agent: `pip install session-ledger[pydantic-ai]`.

    with connect(address) as channel, SessionWriter(channel, "s1") as writer:
        agent.run_sync(prompt, capabilities=[LedgerCapability(writer)])

Nothing in the agent changes, except that it streams. Messages, thinking, tool calls and results become
events as they come. In a claimed turn give it the Turn. A run that somebody cancels ends with
RunCancelled, at its next event.
"""

from contextlib import suppress
from dataclasses import fields
from typing import Any

from pydantic_ai import (
    AgentRunResult,
    AgentStreamEvent,
    DeferredToolRequests,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPartDelta,
)
from pydantic_ai.capabilities import AbstractCapability, WrapRunHandler
from pydantic_ai.messages import BaseToolCallPart, CustomEvent, ToolResultEvent

from session_ledger.recording import Recorder, shown
from session_ledger.turns import Turn
from session_ledger.writer import SessionWriter


class LedgerCapability(AbstractCapability[Any]):
    """One for each session, because a session has one run at a time."""

    def __init__(self, target: SessionWriter | Turn) -> None:
        self._recorder = Recorder(target)
        self._count = 0
        # The ids of the parts of the model's answer, by their index.
        self._parts: dict[int, str] = {}
        # Calls whose arguments came as text.
        self._streamed: set[str] = set()

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        self._count += 1
        run_id = str(ctx.run_id or f"{self._recorder.target.session_id}/{self._count}")
        if isinstance(ctx.prompt, str):
            self._recorder.user_message(ctx.prompt, f"{run_id}/prompt")
        self._recorder.run_started(self._recorder.target.session_id, run_id)
        try:
            result = await handler()
        except BaseException as error:  # A cancelled task too.
            self._recorder.run_failed(error)
            raise
        self._recorder.run_finished(_outcome_of(result.output))
        return result

    async def on_event(self, ctx: RunContext[Any], *, event: AgentStreamEvent) -> None:
        with suppress(Exception):  # A defect of ours must not end the agent's run.
            self._take(event)
        self._recorder.check()

    def _take(self, event: AgentStreamEvent) -> None:
        match event:
            case PartStartEvent(index=index, part=part):
                self._count += 1
                self._parts[index] = getattr(part, "tool_call_id", f"{id(self)}/{self._count}")
                self._start(self._parts[index], part)
            case PartDeltaEvent(index=index, delta=delta) if index in self._parts:
                self._go_on(self._parts[index], delta)
            case PartEndEvent(index=index, part=part) if index in self._parts:
                self._end(self._parts.pop(index), part)
            case ToolResultEvent():
                self._recorder.tool_result(event.tool_call_id, _result_of(event.part))
            case CustomEvent():
                self._recorder.event(type="CUSTOM", name=event.name, value=_members_of(event))

    def _start(self, own_id: str, part: object) -> None:
        match part:
            case TextPart(content=text):
                self._recorder.text(own_id, text)
            case ThinkingPart(content=text):
                self._recorder.reasoning(own_id, text)
            case BaseToolCallPart(tool_name=name, args=args):
                self._arguments(own_id, name, args)

    def _go_on(self, own_id: str, delta: object) -> None:
        match delta:
            case TextPartDelta(content_delta=text):
                self._recorder.text(own_id, text)
            case ThinkingPartDelta(content_delta=str(text)):
                self._recorder.reasoning(own_id, text)
            case ToolCallPartDelta(args_delta=args):
                self._arguments(own_id, "", args)

    def _arguments(self, call_id: str, name: str, args: object) -> None:
        """Arguments that are an object can still change: they are recorded at the end."""
        text = args if isinstance(args, str) else ""
        if text:
            self._streamed.add(call_id)
        self._recorder.tool_call(call_id, name, text)

    def _end(self, own_id: str, part: object) -> None:
        if isinstance(part, BaseToolCallPart) and own_id not in self._streamed:
            self._recorder.tool_call(own_id, part.tool_name, _args_of(part))
        self._streamed.discard(own_id)
        self._recorder.end(own_id)


def _members_of(event: CustomEvent) -> dict[str, object]:
    return {one.name: getattr(event, one.name) for one in fields(event)}


def _result_of(part: Any) -> str:
    try:
        return str(part.model_response_str())
    except Exception:  # Pydantic cannot print it.
        return shown(part.content)


def _args_of(part: BaseToolCallPart) -> str:
    try:
        return part.args_as_json_str()
    except Exception:
        return shown(part.args)


def _outcome_of(output: object) -> dict[str, object]:
    if not isinstance(output, DeferredToolRequests):
        return {"type": "success"}
    calls = [call.tool_call_id for call in (*output.approvals, *output.calls)]
    asked = [{"id": one, "reason": "tool_call", "toolCallId": one} for one in calls]
    return {"type": "interrupt", "interrupts": asked}

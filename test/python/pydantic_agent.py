"""Agents with fake models, recorded: `pydantic_agent.py ADDRESS PREFIX`; a session is PREFIX-CASE."""

import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)
from pydantic_ai.models.test import TestModel

from session_ledger import RunCancelled, SessionWriter, calls_of, connect
from session_ledger.ambient.v1.sessions_pb2 import GetSessionRequest
from session_ledger.ambient.v1.turns_pb2 import CancelRunRequest
from session_ledger.pydantic_ai import LedgerCapability


def weather(city: str) -> str:
    """The weather of a city."""
    if city == "Atlantis":
        raise LookupError("no such city")
    return f"Sunny in {city}"


def model_for(city: str) -> FunctionModel:
    """Thinks, calls the tool, and answers."""

    async def stream(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls]:
        if any(isinstance(message, ModelResponse) for message in messages):
            for word in ("It is", " sunny in", f" {city}."):
                yield word
            return
        yield {0: DeltaThinkingPart(content="A tool ")}
        yield {0: DeltaThinkingPart(content="knows.")}
        yield {1: DeltaToolCall(name="weather", json_args='{"city":', tool_call_id="call-1")}
        yield {1: DeltaToolCall(json_args=f'"{city}"}}')}

    return FunctionModel(stream_function=stream)


def run(recording: LedgerCapability, case: str) -> None:
    if case == "test_model":
        agent = Agent(TestModel(custom_output_text="Done."), tools=[weather])
        agent.run_sync("What is the weather?", capabilities=[recording])
    elif case == "approve":
        guarded = Agent(model_for("Oslo"), output_type=[str, DeferredToolRequests])
        guarded.tool_plain(requires_approval=True)(weather)
        guarded.run_sync("What is the weather?", capabilities=[recording])
    else:
        agent = Agent(model_for("Atlantis" if case == "fail" else "Oslo"), tools=[weather])
        with suppress(LookupError):
            agent.run_sync("What is the weather?", capabilities=[recording])


def cancel_of(channel: grpc.Channel, session_id: str) -> None:
    """A run that is cancelled while its model speaks."""
    with SessionWriter(channel, session_id) as writer:

        async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
            yield "on "
            writer.flush()
            calls = calls_of(channel)
            run_id = calls.GetSession(GetSessionRequest(id=session_id)).open_run_id
            calls.CancelRun(CancelRunRequest(session_id=session_id, run_id=run_id))
            while True:
                yield "on "

        agent = Agent(FunctionModel(stream_function=stream))
        try:
            agent.run_sync("Go on", capabilities=[LedgerCapability(writer)])
        except RunCancelled:
            return
    raise AssertionError("the agent was not stopped")


def main(address: str, prefix: str) -> None:
    with connect(address) as channel:
        for case in ("run", "test_model", "fail", "approve"):
            with SessionWriter(channel, f"{prefix}-{case}", on_problem=print) as writer:
                run(LedgerCapability(writer), case)
        cancel_of(channel, f"{prefix}-cancel")


if __name__ == "__main__":
    main(*sys.argv[1:])

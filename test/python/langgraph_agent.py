"""Graphs with a fake model, recorded: `langgraph_agent.py ADDRESS PREFIX`; a session is PREFIX-CASE."""

import asyncio
import json
import logging
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolCall
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from session_ledger import RunCancelled, SessionWriter, Turns, calls_of, connect
from session_ledger.ambient.v1.turns_pb2 import CancelRunRequest
from session_ledger.langchain import LedgerCallbackHandler


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    dispatch_custom_event("looked_up", {"city": city})
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"Sunny in {city}"


@tool
def ask(question: str) -> str:
    """Asks the person."""
    return str(interrupt({"question": question}))


class StreamingModel(GenericFakeChatModel):
    """The package's fake model, which streams tool calls too."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        answer = next(self.messages)
        assert isinstance(answer, AIMessage)
        parts: list[AIMessageChunk] = []
        for at, call in enumerate(answer.tool_calls):
            text = json.dumps(call["args"])
            begin = tool_call_chunk(name=call["name"], args=text[:5], id=call["id"], index=at)
            rest = tool_call_chunk(name=None, args=text[5:], id=None, index=at)
            parts += [AIMessageChunk(content="", tool_call_chunks=[one]) for one in (begin, rest)]
        parts += [
            AIMessageChunk(content=part) for part in re.split(r"(?= )", str(answer.content)) if part
        ]
        manager = kwargs.get("run_manager")
        for part in parts:
            chunk = ChatGenerationChunk(message=part)
            if manager is not None:
                manager.on_llm_new_token(str(part.content), chunk=chunk)
            yield chunk


def graph_of(*answers: AIMessage) -> Any:
    model = StreamingModel(messages=iter(answers))

    def agent(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    def route(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([weather, ask], handle_tool_errors=False))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route, ["tools", END])
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=InMemorySaver())


def calling(name: str, **args: str) -> AIMessage:
    call = ToolCall(name=name, args=args, id=f"call-{name}", type="tool_call")
    return AIMessage(content="", tool_calls=[call])


def asked(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def invoke(handler: LedgerCallbackHandler) -> None:
    graph = graph_of(calling("weather", city="Oslo"), AIMessage("It is sunny in Oslo."))
    graph.invoke(asked("What is the weather?"), config_of(handler))


def stream(handler: LedgerCallbackHandler) -> None:
    graph = graph_of(calling("weather", city="Oslo"), AIMessage("It is sunny in Oslo."))
    inputs = asked("What is the weather?")
    for _ in graph.stream(inputs, config_of(handler), stream_mode="messages"):
        pass


def astream(handler: LedgerCallbackHandler) -> None:
    async def run() -> None:
        graph = graph_of(calling("weather", city="Oslo"), AIMessage("It is sunny in Oslo."))
        inputs = asked("What is the weather?")
        async for _ in graph.astream(inputs, config_of(handler), stream_mode="messages"):
            pass

    asyncio.run(run())


def fail(handler: LedgerCallbackHandler) -> None:
    graph = graph_of(calling("weather", city="Atlantis"))
    try:
        graph.invoke(asked("What is the weather?"), config_of(handler))
    except ValueError:
        pass


def resume(handler: LedgerCallbackHandler) -> None:
    graph = graph_of(calling("ask", question="Which city?"), AIMessage("Oslo it is."))
    graph.invoke(asked("Choose a city"), config_of(handler))
    graph.invoke(Command(resume="Oslo"), config_of(handler))


def config_of(handler: LedgerCallbackHandler) -> RunnableConfig:
    return {"callbacks": [handler], "configurable": {"thread_id": "thread-1"}}


CASES: dict[str, Callable[[LedgerCallbackHandler], None]] = {
    "invoke": invoke,
    "stream": stream,
    "astream": astream,
    "fail": fail,
    "resume": resume,
}


def turn_of(channel: grpc.Channel, session_id: str) -> None:
    """The run of a claimed turn, with its message."""
    with SessionWriter(channel, session_id) as person:
        person.message("user", "What is the weather?")
    graph = graph_of(calling("weather", city="Oslo"), AIMessage("It is sunny in Oslo."))
    with Turns(channel, session_id) as turns:
        turn = turns.next(30)
        assert turn is not None
        graph.invoke(asked(turn.texts[0]), config_of(LedgerCallbackHandler(turn)))
        turn.finish()


class EndlessModel(GenericFakeChatModel):
    """Speaks until somebody stops it."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        while True:
            yield ChatGenerationChunk(message=AIMessageChunk(content="on "))


def cancel_of(channel: grpc.Channel, session_id: str, tokens: int = 3) -> None:
    """A run that is cancelled while its model speaks; it ends with the cancel and nothing else."""
    # LangChain warns of what a handler raises.
    logging.getLogger("langchain_core").setLevel(logging.ERROR)
    run_id = uuid.uuid4()
    model = EndlessModel(messages=iter(()))
    spoken = 0
    with SessionWriter(channel, session_id) as writer:

        def agent(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            nonlocal spoken
            for _ in model.stream(state["messages"], config):
                spoken += 1
                if spoken == tokens:
                    writer.flush()
                    request = CancelRunRequest(session_id=session_id, run_id=str(run_id))
                    calls_of(channel).CancelRun(request)
            return {"messages": []}

        graph = (
            StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent").compile()
        )
        config = config_of(LedgerCallbackHandler(writer))
        config["run_id"] = run_id
        try:
            graph.invoke({"messages": [HumanMessage("Go on")]}, config)
        except RunCancelled:
            return
    raise AssertionError("the graph was not stopped")


def main(address: str, prefix: str) -> None:
    with connect(address) as channel:
        for name, case in CASES.items():
            with SessionWriter(channel, f"{prefix}-{name}", on_problem=print) as writer:
                case(LedgerCallbackHandler(writer))
        turn_of(channel, f"{prefix}-turn")
        cancel_of(channel, f"{prefix}-cancel")


if __name__ == "__main__":
    main(*sys.argv[1:])

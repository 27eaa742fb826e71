"""A graph of LangGraph, recorded by callbacks: the graph knows nothing of the ledger."""

import os
import time

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from session_ledger import SessionWriter, connect, read_messages
from session_ledger.langchain import LedgerCallbackHandler

model = GenericFakeChatModel(messages=iter([AIMessage("It is noon.")]))


def agent(state: MessagesState) -> MessagesState:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("agent", agent)
graph.add_edge(START, "agent")
graph.add_edge("agent", END)

address = os.environ.get("LEDGER_GRPC", "127.0.0.1:9000")
session = f"langgraph-{time.time_ns()}"
with connect(address) as channel:
    with SessionWriter(channel, session) as writer:
        inputs: MessagesState = {"messages": [HumanMessage("What is the time?")]}
        graph.compile().invoke(inputs, {"callbacks": [LedgerCallbackHandler(writer)]})
    for message in read_messages(channel, session):
        if message.event_type != "lifecycle":
            print(f"{message.event_type}: {message.payload}")

"""Records LangChain runnables and LangGraph graphs: `pip install session-ledger[langchain]`.

    with connect(address) as channel, SessionWriter(channel, "s1") as writer:
        graph.invoke(inputs, {"callbacks": [LedgerCallbackHandler(writer)]})

Nothing in the graph changes. A run becomes a run of the session, a node a step; messages, reasoning, tool
calls and results become events as they come. In a claimed turn give the handler the Turn.

A run that somebody cancels ends with RunCancelled, at the next token or when the next part of it begins.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from session_ledger.recording import Recorder, shown
from session_ledger.turns import Turn
from session_ledger.writer import SessionWriter


class LedgerCallbackHandler(BaseCallbackHandler):
    """One for each session, because a session has one run at a time."""

    # Otherwise LangChain calls it from a pool of threads, in any order.
    run_inline = True

    def __init__(self, target: SessionWriter | Turn) -> None:
        self._recorder = Recorder(target)
        self._root: UUID | None = None
        # By LangChain's id: the names of nodes, the ids of messages, and of called tools.
        self._nodes: dict[UUID, str] = {}
        self._message_ids: dict[UUID, str] = {}
        self._calls: dict[UUID, str] = {}
        # A chunk names its call by the index only.
        self._indexed: dict[tuple[UUID, int], tuple[str, str]] = {}
        # Calls that were recorded, also in earlier runs: an interrupted call runs again.
        self._known: set[str] = set()
        # Questions of a graph, by their ids: nodes raise them.
        self._interrupts: dict[str, dict[str, object]] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        about = metadata or {}
        self._begin(run_id, about, inputs)
        node = about.get("langgraph_node")
        if node is not None and kwargs.get("name") == node and run_id != self._root:
            self._nodes[run_id] = str(node)
            self._recorder.step_started(str(node))

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._leave_node(run_id)
        self._finish(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._leave_node(run_id)
        self._fail(run_id, error)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._begin(run_id, metadata or {}, {"messages": messages[0] if messages else []})

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._begin(run_id, metadata or {}, {})

    def on_llm_new_token(
        self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any
    ) -> None:
        self._check()
        message = getattr(chunk, "message", None)
        if message is not None:
            self._parts(run_id, message)
            for part in getattr(message, "tool_call_chunks", ()):
                self._call_chunk(run_id, part)
        elif isinstance(token, str):
            self._recorder.text(self._message_id(run_id, None), token, str(run_id))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        was_streamed = run_id in self._message_ids
        for generation in (one for batch in response.generations for one in batch[:1]):
            message = getattr(generation, "message", None)
            if not was_streamed and message is not None:
                self._parts(run_id, message)
            elif not was_streamed:
                text_id = self._message_id(run_id, None)
                self._recorder.text(text_id, generation.text, str(run_id))
            for call in getattr(message, "tool_calls", ()):
                self._whole_call(run_id, call)
        self._leave_model(run_id)
        self._finish(run_id)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._leave_model(run_id)
        self._fail(run_id, error)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._begin(run_id, metadata or {}, {})
        call_id = kwargs.get("tool_call_id") or str(run_id)
        self._calls[run_id] = call_id
        if call_id not in self._known:  # No model asked for it.
            name = str(kwargs.get("name") or (serialized or {}).get("name") or "tool")
            self._whole_call(run_id, {"id": call_id, "name": name, "args": inputs or input_str})
            self._recorder.end(call_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._result(run_id, getattr(output, "content", output))
        self._finish(run_id)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        # An interrupt is no result: the tool runs again when it is answered.
        if not _is_interrupt(error):
            self._result(run_id, f"{type(error).__name__}: {error}")
        self._fail(run_id, error)

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self._recorder.event(type="CUSTOM", name=name, value={} if data is None else data)

    def _begin(self, run_id: UUID, metadata: dict[str, Any], inputs: Any) -> None:
        """The first run that is seen is the run of the session."""
        if self._root is not None:
            return self._check()
        self._root = run_id
        self.raise_error = False
        messages = inputs.get("messages") if isinstance(inputs, dict) else None
        for at, text in enumerate(_last_of_person(messages)):
            self._recorder.user_message(text, f"{run_id}/{at}")
        thread_id = metadata.get("thread_id") or self._recorder.target.session_id
        self._recorder.run_started(str(thread_id), str(run_id))

    def _check(self) -> None:
        """LangChain logs what a handler raises, and goes on, unless the handler says otherwise."""
        self.raise_error = self._recorder.is_cancelled
        self._recorder.check()

    def _finish(self, run_id: UUID) -> None:
        if run_id != self._root:
            return
        asked = list(self._interrupts.values())
        self._forget()
        if asked:
            self._recorder.run_finished({"type": "interrupt", "interrupts": asked})
        else:
            self._recorder.run_finished({"type": "success"})

    def _fail(self, run_id: UUID, error: BaseException) -> None:
        if _is_interrupt(error):
            for one in _interrupts_in(error):
                self._interrupts[one.id] = _question(one)
            self._finish(run_id)
        elif run_id == self._root:
            self._forget()
            self._recorder.run_failed(error)

    def _forget(self) -> None:
        self._root = None
        for held in (self._nodes, self._message_ids, self._calls, self._indexed, self._interrupts):
            held.clear()

    def _leave_node(self, run_id: UUID) -> None:
        node = self._nodes.pop(run_id, None)
        if node is not None:
            self._recorder.step_finished(node)

    def _leave_model(self, run_id: UUID) -> None:
        self._recorder.end_of(str(run_id))
        self._message_ids.pop(run_id, None)

    def _message_id(self, run_id: UUID, given: str | None) -> str:
        return self._message_ids.setdefault(run_id, given or str(run_id))

    def _parts(self, run_id: UUID, message: BaseMessage) -> None:
        """The text and the reasoning of a message, or of a piece of it."""
        own_id, owner = self._message_id(run_id, message.id), str(run_id)
        content: Any = message.content
        for part in [content] if isinstance(content, str) else content:
            thought = _reasoning_in(part)
            self._recorder.reasoning(f"{own_id}/reasoning", thought, owner)
            text = part if isinstance(part, str) else part.get("text", "") if not thought else ""
            if text:
                self._recorder.end(f"{own_id}/reasoning")
                self._recorder.text(own_id, text, owner)
        # Models without content blocks have it here.
        given = message.additional_kwargs.get("reasoning_content")
        if isinstance(given, str):
            self._recorder.reasoning(f"{own_id}/reasoning", given, owner)

    def _call_chunk(self, run_id: UUID, part: Any) -> None:
        place = (run_id, part.get("index") or 0)
        if part.get("id"):
            self._indexed[place] = (part["id"], part.get("name") or "tool")
        if place in self._indexed:
            call_id, name = self._indexed[place]
            self._known.add(call_id)
            self._recorder.tool_call(
                call_id,
                name,
                part.get("args") or "",
                parent=self._message_ids.get(run_id),
                owner=str(run_id),
            )

    def _whole_call(self, run_id: UUID, call: Any) -> None:
        call_id = call.get("id") or str(run_id)
        if call_id in self._known:
            return
        self._known.add(call_id)
        self._recorder.tool_call(
            call_id,
            call["name"],
            shown(call["args"]),
            parent=self._message_ids.get(run_id),
            owner=str(run_id),
        )

    def _result(self, run_id: UUID, content: object) -> None:
        call_id = self._calls.pop(run_id, None)
        if call_id is not None:
            self._recorder.tool_result(call_id, shown(content))


def _is_interrupt(error: BaseException) -> bool:
    """LangGraph is no dependency: `GraphInterrupt` and its base class are known by name."""
    return any(one.__name__ == "GraphBubbleUp" for one in type(error).__mro__)


def _interrupts_in(error: BaseException) -> Sequence[Any]:
    given = next(iter(error.args), ())
    return [one for one in given if hasattr(one, "id")] if isinstance(given, Sequence) else []


def _question(interrupt: Any) -> dict[str, object]:
    about = {"value": interrupt.value}
    return {"id": interrupt.id, "reason": "langgraph:interrupt", "metadata": about}


def _last_of_person(messages: object) -> Sequence[str]:
    """What a person said since the last answer."""
    texts: list[str] = []
    for message in reversed(messages if isinstance(messages, (list, tuple)) else [messages]):
        match message:
            case BaseMessage(type="human"):
                texts.append(str(message.text))
            case ("user" | "human", str(text)) | {"role": "user" | "human", "content": str(text)}:
                texts.append(text)
            case _:
                break
    return texts[::-1]


def _reasoning_in(part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") not in ("reasoning", "thinking"):
        return ""
    return str(part.get("reasoning") or part.get("thinking") or "")

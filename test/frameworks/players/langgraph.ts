import type { CallbackManagerForLLMRun } from "@langchain/core/callbacks/manager";
import { AIMessage, AIMessageChunk, type BaseMessage, ToolMessage } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import type { RunnableConfig } from "@langchain/core/runnables";
import { FakeStreamingChatModel } from "@langchain/core/utils/testing";
import {
  Annotation,
  Command,
  END,
  interrupt,
  MemorySaver,
  MessagesAnnotation,
  START,
  StateGraph,
} from "@langchain/langgraph";
import { LangGraphBridge } from "@session-ledger/runner/langgraph";
import { type Player, type Probe, type Step, steps, TOOL, toolOf, answerOf } from "./script.ts";

/** The package's own model leaves out the chunks of calls. */
class ScriptedModel extends FakeStreamingChatModel {
  readonly #step: Step;

  constructor(step: Step) {
    super({});
    this.#step = step;
  }

  override async *_streamResponseChunks(
    _messages: BaseMessage[],
    _options: this["ParsedCallOptions"],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    for (const message of chunksOf(this.#step)) {
      const chunk = new ChatGenerationChunk({ message, text: message.text });
      yield chunk;
      await runManager?.handleLLMNewToken(chunk.text, undefined, undefined, undefined, undefined, {
        chunk,
      });
    }
    if (this.#step.fails !== undefined) throw new Error(this.#step.fails);
  }
}

function chunksOf({ beats }: Step): AIMessageChunk[] {
  const calls = beats.flatMap((beat) => ("call" in beat ? [beat.call] : []));
  const chunks = beats.map((beat) => {
    if ("text" in beat) return new AIMessageChunk(beat.text);
    if ("think" in beat) {
      return new AIMessageChunk({ content: [{ type: "thinking", thinking: beat.think }] });
    }
    const callId = "call" in beat ? beat.call : beat.of;
    const begin = "call" in beat ? { id: beat.call, name: TOOL, args: "" } : { args: beat.args };
    const tool_call_chunks = [{ ...begin, index: calls.indexOf(callId) }];
    return new AIMessageChunk({ content: "", tool_call_chunks });
  });
  const usage_metadata = { input_tokens: 7, output_tokens: 5, total_tokens: 12 };
  return [...chunks, Object.assign(new AIMessageChunk(""), { usage_metadata })];
}

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  steps: Annotation<number>({ reducer: (_, next) => next, default: () => 0 }),
});

export const LANGGRAPH: Player = {
  name: "langgraph",
  bridge(list, probe) {
    const next = steps(list);
    let step: Step = { beats: [] };
    const agent = async (state: typeof State.State, config: RunnableConfig) => {
      step = next();
      refuseUnanswered(state.messages);
      const message = await new ScriptedModel(step).invoke(state.messages, config);
      const messages = [message, ...(step.isTacit === true ? await answers(config, message) : [])];
      return { messages, steps: state.steps + 1 };
    };
    const answers = ({ signal }: RunnableConfig, last?: BaseMessage) => {
      const calls = AIMessage.isInstance(last) ? (last.tool_calls ?? []) : [];
      return Promise.all(
        calls.map(async ({ id = "" }) => {
          const content = await answerTo(step, id, { signal, probe });
          return new ToolMessage({ content, tool_call_id: id });
        }),
      );
    };
    const tools = async ({ messages }: typeof State.State, config: RunnableConfig) => ({
      messages: await answers(config, messages.at(-1)),
    });
    const graph = new StateGraph(State)
      .addNode("agent", agent)
      .addNode("tools", tools)
      .addEdge(START, "agent")
      .addConditionalEdges("agent", ({ messages }) => {
        const last = messages.at(-1);
        if (ToolMessage.isInstance(last)) return "agent";
        return AIMessage.isInstance(last) && (last.tool_calls ?? []).length > 0 ? "tools" : END;
      })
      .addEdge("tools", "agent")
      .compile({ checkpointer: new MemorySaver() });
    return new LangGraphBridge({ graph, Command });
  },
};

/** As the APIs of models do. */
function refuseUnanswered(messages: readonly BaseMessage[]): void {
  const answered = new Set(
    messages.map((message) => (ToolMessage.isInstance(message) ? message.tool_call_id : "")),
  );
  const calls = messages.flatMap((message) =>
    AIMessage.isInstance(message) ? (message.tool_calls ?? []) : [],
  );
  const open = calls.filter(({ id = "" }) => !answered.has(id));
  if (open.length > 0) throw new Error("a call has no result");
}

async function answerTo(
  step: Step,
  callId: string,
  watched: { readonly signal: AbortSignal | undefined; readonly probe: Probe | undefined },
): Promise<string> {
  const tool = toolOf(step, callId);
  if ("asks" in tool) {
    const answer: unknown = interrupt({ reason: "approval", message: "May the agent look it up?" });
    if (JSON.stringify(answer) !== JSON.stringify({ approved: true })) return "refused";
  }
  return await answerOf(tool, callId, watched);
}

/**
 * The AI SDK (`ai`): the full stream of `streamText`, or of an agent, as AG-UI events.
 *
 *   new AiSdkBridge(({ messages, abortSignal }) => streamText({ model, tools, messages, abortSignal }))
 *
 * A tool that needs an approval ends the run with an interrupt, whose id is the id of the tool call; the
 * run that brings the answer executes or refuses the call. Sources and files become activities, which
 * stay in the conversation.
 */
import {
  type Adapter,
  capabilitiesOf,
  type FrameworkCapabilities,
  PlatformBridge,
  type PlatformContext,
  type RunInput,
} from "../bridge.ts";
import { type AiSdkMessage, aiSdkMessages } from "./ai-sdk-messages.ts";
import { type AiSdkPart, AiSdkRun } from "./ai-sdk-run.ts";
import { reportOmitted } from "./history.ts";

/** The arguments of your function. */
export interface AiSdkCall {
  /** The conversation, without system messages: instructions belong to the call. */
  readonly messages: AiSdkMessage[];
  readonly abortSignal: AbortSignal;
  readonly input: RunInput;
  readonly context: PlatformContext;
}

export type { AiSdkPart } from "./ai-sdk-run.ts";

/** The result of `streamText` and `agent.stream`. `stream` is the newer name of `fullStream`. */
export interface AiSdkResult {
  readonly stream?: AsyncIterable<AiSdkPart>;
  readonly fullStream?: AsyncIterable<AiSdkPart>;
}

type Start = (call: AiSdkCall) => AiSdkResult | PromiseLike<AiSdkResult>;

export class AiSdkBridge extends PlatformBridge {
  readonly #start: Start;
  readonly #capabilities: FrameworkCapabilities;

  constructor(start: Start, capabilities: Partial<FrameworkCapabilities> = {}) {
    super();
    this.#start = start;
    this.#capabilities = capabilitiesOf({
      framework: "ai-sdk",
      agentFeatures: ["interrupt"],
      thinking: true,
      ...capabilities,
    });
  }

  override capabilities(): FrameworkCapabilities {
    return this.#capabilities;
  }

  override createAdapter(context: PlatformContext): Adapter {
    const start = this.#start;
    const { notes } = this;
    return {
      run: async function* (input, abortSignal) {
        const messages = aiSdkMessages(input, reportOmitted(notes, "the AI SDK", input));
        const { stream, fullStream } = await start({ messages, abortSignal, input, context });
        const parts = stream ?? fullStream;
        if (parts === undefined)
          throw new TypeError("the result has neither stream nor fullStream");
        yield* new AiSdkRun(input).events(parts);
      },
    };
  }
}

/**
 * Any agent of `@ag-ui/client`, of both of its generations: HttpAgent, the agents of LangGraph, Mastra
 * and others, and your own subclass of AbstractAgent.
 *
 *   new AguiBridge(({ sessionId }) => new HttpAgent({ url, threadId: sessionId }))
 */
import {
  type Adapter,
  capabilitiesOf,
  type FrameworkCapabilities,
  type ObservableEvents,
  PlatformBridge,
  type PlatformContext,
} from "../bridge.ts";

/** The part of `AbstractAgent` that the bridge uses. */
export interface AguiAgent {
  run(input: object): ObservableEvents;
  abortRun?(): void;
}

export class AguiBridge extends PlatformBridge {
  readonly #make: (context: PlatformContext) => AguiAgent;
  readonly #capabilities: FrameworkCapabilities;

  constructor(
    make: (context: PlatformContext) => AguiAgent,
    capabilities: Partial<FrameworkCapabilities> = {},
  ) {
    super();
    this.#make = make;
    this.#capabilities = capabilitiesOf({ framework: "ag-ui", ...capabilities });
  }

  override capabilities(): FrameworkCapabilities {
    return this.#capabilities;
  }

  override createAdapter(context: PlatformContext): Adapter {
    let current: AguiAgent | undefined;
    return {
      run: (input, signal) => {
        const agent = (current ??= this.#make(context));
        const abort = (): void => {
          agent.abortRun?.();
          // An HttpAgent stays aborted: the next run needs another one.
          current = undefined;
        };
        signal.addEventListener("abort", abort, { once: true });
        return agent.run(input);
      },
    };
  }
}

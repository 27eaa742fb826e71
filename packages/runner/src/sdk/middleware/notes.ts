/**
 * Adds what the bridge tells beside the agent's events (`bridge.notes`): lines for developers, and
 * CUSTOM events of the platform. They come behind RUN_STARTED and before each later event of a run,
 * never behind its end, where AG-UI allows none.
 *
 * A note would end a construct of CHUNKs, so none comes before a CHUNK.
 */
import type { AgentEvent } from "../bridge.ts";
import { agentCapabilities } from "../capabilities.ts";
import type { Middleware } from "./middleware.ts";

export interface NotesOptions {
  /** Removes secrets: the notes were not in the events that the redaction has seen. */
  readonly mask?: ((event: AgentEvent) => AgentEvent) | undefined;
  /**
   * True: the first run of a session in this process tells the capabilities, for pages that watch
   * already. The service tells them to each client that joins.
   */
  readonly capabilities?: boolean;
}

export function notes({ mask = same, capabilities = false }: NotesOptions = {}): Middleware {
  return async function* withNotes(events, { bridge, sessionId }) {
    const isFirst = capabilities && !bridge.notes.knows(sessionId);
    let hasBegun = false;
    for await (const event of events) {
      if (hasBegun && !event.type.endsWith("_CHUNK")) yield* waiting();
      yield event;
      if (event.type !== "RUN_STARTED") continue;
      hasBegun = true;
      if (isFirst) {
        const value = agentCapabilities(bridge.capabilities());
        yield { type: "CUSTOM", name: "ambient:capabilities", value };
      }
      yield* waiting();
    }

    function waiting(): readonly AgentEvent[] {
      return bridge.notes.take(sessionId).map(mask);
    }
  };
}

function same(event: AgentEvent): AgentEvent {
  return event;
}

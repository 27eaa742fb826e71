/**
 * Adds the events of `bridge.notes` to a run: after RUN_STARTED, or before a later event, never
 * after its end. None comes before a CHUNK, whose construct it would end.
 */
import type { AgentEvent } from "../bridge.ts";
import { agentCapabilities } from "../capabilities.ts";
import type { Middleware } from "./middleware.ts";

export interface DeveloperEventsOptions {
  /** Removes secrets: the notes were not in the events that the redaction has seen. */
  readonly mask?: ((event: AgentEvent) => AgentEvent) | undefined;
  /** True: the first run of a session in this process sends the capabilities to watching pages. */
  readonly capabilities?: boolean;
}

export function developerEvents({
  mask = same,
  capabilities = false,
}: DeveloperEventsOptions = {}): Middleware {
  return async function* withNotes(events, { bridge, sessionId }) {
    const isFirst = capabilities && !bridge.notes.hasServed(sessionId);
    let hasStarted = false;
    for await (const event of events) {
      if (hasStarted && !event.type.endsWith("_CHUNK")) yield* waiting();
      yield event;
      if (event.type !== "RUN_STARTED") continue;
      hasStarted = true;
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

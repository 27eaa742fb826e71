import { expect, test } from "vitest";
import type { AgentEvent } from "@session-ledger/runner/internal/sdk/bridge";
import {
  type Middleware,
  through,
} from "@session-ledger/runner/internal/sdk/middleware/middleware";
import { runContext } from "../../../test/support/echo-bridge.ts";

const CONTEXT = runContext();

async function* eventsOf(events: readonly AgentEvent[]): AsyncGenerator<AgentEvent> {
  yield* events;
}

async function listOf(events: AsyncIterable<AgentEvent>): Promise<readonly AgentEvent[]> {
  const list: AgentEvent[] = [];
  for await (const event of events) list.push(event);
  return list;
}

/** Adds its name and the run to each event. */
function signing(name: string): Middleware {
  return async function* sign(events, { runId }) {
    for await (const event of events) {
      yield { ...event, signed: [event["signed"], `${name}@${runId}`].flat() };
    }
  };
}

test("events pass through the list of middleware in its order", async () => {
  const events = through([signing("a"), signing("b")], eventsOf([{ type: "X" }]), CONTEXT);
  expect(await listOf(events)).toEqual([{ type: "X", signed: [undefined, "a@r", "b@r"] }]);
  expect(await listOf(through([], eventsOf([{ type: "X" }]), CONTEXT))).toEqual([{ type: "X" }]);
});

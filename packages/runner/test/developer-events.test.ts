/** Notes of a bridge in the events of its runs, read by AG-UI's own verification. */
import { type BaseEvent, verifyEvents } from "@ag-ui/client";
import { from, lastValueFrom, toArray } from "rxjs";
import { describe, expect, test } from "vitest";
import type { AgentEvent } from "@session-ledger/runner/internal/sdk/bridge";
import { developerEvents } from "@session-ledger/runner/internal/sdk/middleware/developer-events";
import { DeveloperEvents } from "@session-ledger/runner/internal/sdk/developer-events";
import { runContext } from "../../../test/support/echo-bridge.ts";

const STARTED = { type: "RUN_STARTED", threadId: "s", runId: "r" };
const FINISHED = { type: "RUN_FINISHED", threadId: "s", runId: "r" };
const CAPABILITIES = {
  type: "CUSTOM",
  name: "ambient:capabilities",
  value: expect.objectContaining({ tools: { supported: true } }),
};
const SWITCHED = { type: "CUSTOM", name: "ambient:model_switched", value: 1 };

/** The events with notes; `between` runs before the event of its place is made. */
async function withNotes(
  events: readonly AgentEvent[],
  {
    context = runContext(),
    between = new Map<number, () => void>(),
    mask = undefined as ((event: AgentEvent) => AgentEvent) | undefined,
  } = {},
): Promise<readonly AgentEvent[]> {
  async function* agent(): AsyncGenerator<AgentEvent> {
    for (const [at, event] of events.entries()) {
      between.get(at)?.();
      yield event;
    }
  }
  const list: AgentEvent[] = [];
  for await (const event of developerEvents({ mask, capabilities: true })(agent(), context))
    list.push(event);
  const seen: unknown[] = JSON.parse(JSON.stringify(list));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- It is what it is to verify.
  await lastValueFrom(from(seen as BaseEvent[]).pipe(verifyEvents(false), toArray()));
  return list;
}

describe("notes", () => {
  test("of the setup come in the first run, behind RUN_STARTED and the capabilities", async () => {
    const context = runContext();
    context.bridge.notes.developer("Workspace validated");
    const [started, capabilities, start, content, end, finished] = await withNotes(
      [STARTED, FINISHED],
      { context },
    );
    expect([started, capabilities, finished]).toEqual([STARTED, CAPABILITIES, FINISHED]);
    const messageId = start?.["messageId"];
    expect([start, content, end]).toEqual([
      { type: "TEXT_MESSAGE_START", messageId, role: "developer" },
      { type: "TEXT_MESSAGE_CONTENT", messageId, delta: "Workspace validated" },
      { type: "TEXT_MESSAGE_END", messageId },
    ]);
    expect(await withNotes([STARTED, FINISHED], { context })).toEqual([STARTED, FINISHED]);
  });

  test("of a run come before its next event, and later ones in the next run", async () => {
    const context = runContext();
    const note = () => context.bridge.notes.custom("ambient:model_switched", 1);
    const raw = { type: "RAW", event: 1 };
    const between = new Map([[2, note]]);
    expect(await withNotes([STARTED, raw, raw, FINISHED], { context, between })).toEqual([
      STARTED,
      CAPABILITIES,
      raw,
      SWITCHED,
      raw,
      FINISHED,
    ]);
    note();
    expect(await withNotes([STARTED, FINISHED], { context })).toEqual([
      STARTED,
      SWITCHED,
      FINISHED,
    ]);
  });

  test("do not cut a message of CHUNKs", async () => {
    const context = runContext();
    const note = () => context.bridge.notes.custom("ambient:model_switched", 1);
    const chunk = (delta: string) => ({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta });
    const between = new Map([[2, note]]);
    const events = [STARTED, chunk("a"), chunk("b"), FINISHED];
    const list = await withNotes(events, { context, between });
    expect(list).toEqual([STARTED, CAPABILITIES, chunk("a"), chunk("b"), SWITCHED, FINISHED]);
  });

  test("come before RUN_ERROR too, and are masked", async () => {
    const context = runContext();
    context.bridge.notes.custom("ambient:setup_error", "secret");
    const failed = { type: "RUN_ERROR", message: "x" };
    const mask = ({ type }: AgentEvent) => ({ type, name: "masked", value: 0 });
    const list = await withNotes([STARTED, failed], { context, mask });
    expect(list).toEqual([
      STARTED,
      CAPABILITIES,
      { type: "CUSTOM", name: "masked", value: 0 },
      failed,
    ]);
  });
});

describe("the waiting notes", () => {
  test("for all sessions go to each one that was run, or else to the first", () => {
    const waiting = new DeveloperEvents();
    waiting.custom("ambient:setup_error", 1);
    waiting.custom("ambient:setup_error", 2, "b");
    const valuesFor = (sessionId: string) => waiting.take(sessionId).map(({ value }) => value);
    expect(valuesFor("a")).toEqual([1]);
    expect(valuesFor("b")).toEqual([2]);
    waiting.custom("ambient:setup_error", 3);
    waiting.forget("b");
    expect([valuesFor("a"), valuesFor("b"), valuesFor("a")]).toEqual([[3], [], []]);
  });

  test("are bounded, and the oldest ones are dropped whole", () => {
    const waiting = new DeveloperEvents();
    for (let line = 0; line < 50; line += 1) waiting.developer(`line ${line}`);
    const events = waiting.take("a");
    expect(events.length).toBeLessThanOrEqual(100);
    expect(events.length % 3).toBe(0);
    expect(events[0]?.type).toBe("TEXT_MESSAGE_START");
    expect(events.at(-2)).toMatchObject({ delta: "line 49" });
  });
});

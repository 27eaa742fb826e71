/** The watch calls: their refusals, starts, filters and state frames. */
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  type SessionEvent,
  type WatchSessionEventsRequest,
  WatchSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import {
  type SessionMessage,
  type WatchSessionMessagesRequest,
  WatchSessionMessagesRequestSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { ServiceError } from "@session-ledger/base/errors";
import { Budget, CALL_BYTES, CallMemory } from "../../src/base/budget.ts";
import type { CallContext } from "../../src/contract/context.ts";
import { createWatchHandlers } from "../../src/handlers/watch.ts";
import type { LiveLimits } from "../../src/live/limits.ts";
import { settled } from "../support/slow-table.ts";
import { watching } from "../support/watching.ts";

const STATE_NAMES = new Map<number, string>(
  Object.entries(WatchState).map(([name, value]) => [value, name]),
);

type EventsInit = Partial<Omit<WatchSessionEventsRequest, "$typeName">>;
type MessagesInit = Partial<Omit<WatchSessionMessagesRequest, "$typeName">>;

function serving(sessionPolicy: "auto" | "strict" = "auto", limits: Partial<LiveLimits> = {}) {
  const parts = watching(limits);
  const reader = { resolved: 0 };
  const handlers = createWatchHandlers(
    {
      live: parts.live,
      reader: {
        resolveCursor: (request) => {
          reader.resolved += 1;
          return parts.table.resolveCursor(request);
        },
      },
    },
    { sessionPolicy },
  );
  return {
    ...parts,
    reader,
    events: (init: EventsInit) =>
      new Call((context) =>
        handlers.watchSessionEvents(create(WatchSessionEventsRequestSchema, init), context),
      ),
    messages: (init: MessagesInit) =>
      new Call((context) =>
        handlers.watchSessionMessages(create(WatchSessionMessagesRequestSchema, init), context),
      ),
  };
}

/** A caller that reads all the time. */
class Call<M extends SessionEvent | SessionMessage> {
  readonly controller = new AbortController();
  readonly got: M[] = [];
  /** The error that ended the call; `null` for OK. */
  ended: unknown;

  constructor(begin: (context: CallContext) => AsyncIterable<M>) {
    this.#read(
      begin({ principal: ANONYMOUS, hasEnded: false, signal: this.controller.signal }),
    ).then(
      () => (this.ended = null),
      (error: unknown) => (this.ended = error),
    );
  }

  get seqs(): readonly bigint[] {
    return this.got.map(({ seq }) => seq);
  }

  /** Rows by number, frames by name and number. */
  get story(): readonly string[] {
    return this.got.map(({ watchState, seq }) =>
      watchState === WatchState.UNSPECIFIED ? `${seq}` : `${STATE_NAMES.get(watchState)} ${seq}`,
    );
  }

  async #read(messages: AsyncIterable<M>): Promise<void> {
    for await (const message of messages) this.got.push(message);
  }
}

describe("an unknown session", () => {
  test("is NOT_FOUND at once under the strict policy", async () => {
    const { messages, live } = serving("strict");
    const call = messages({ sessionId: "s" });
    await settled();
    expect(call.ended).toMatchObject({ code: "not_found", reason: "SESSION_NOT_FOUND" });
    expect(live.counts()).toMatchObject({ watchers: 0, sessions: 0 });
  });

  test("is watched under the automatic policy, and delivers its first rows", async () => {
    const { table, messages, live } = serving();
    const call = messages({ sessionId: "s", stateFrames: true });
    await settled();
    expect(call.ended).toBeUndefined();
    live.onCommit([table.message("s")]);
    await settled();
    expect(call.story).toEqual(["LIVE 0", "1"]);
  });

  test("ends a snapshot at once", async () => {
    const call = serving().events({ sessionId: "s", snapshotOnly: true });
    await settled();
    expect([call.got, call.ended]).toEqual([[], null]);
  });
});

describe("the start of a watch", () => {
  test("accepts a cursor of another replica that is above the local head only", async () => {
    const { table, events, live } = serving();
    const first = events({ sessionId: "s" });
    await settled();
    live.onCommit([table.event("s")]);
    table.event("s"); // Committed on another instance, without a hint to this one.
    const second = events({ sessionId: "s", afterSeq: 2n });
    await settled();
    expect(second.ended).toBeUndefined();
    live.onCommit([table.event("s")]);
    await settled();
    expect([first.seqs, second.seqs]).toEqual([[1n, 2n, 3n], [3n]]);
  });

  test("needs the table only for a cursor between rows of a merged stream", async () => {
    const { table, events, reader } = serving();
    table.event("s", { eventCount: 3 });
    table.event("s");
    for (const afterSeq of [-1n, 0n, 4n]) events({ sessionId: "s", afterSeq });
    await settled();
    expect(reader.resolved).toBe(0);
    events({ sessionId: "s", afterSeq: 3n });
    await settled();
    expect(reader.resolved).toBe(1);
  });
});

describe("a snapshot", () => {
  test("ends with OK at the head of its start, also when more rows are committed", async () => {
    const { table, events, live } = serving("auto", { pageRowsMax: 2 });
    for (let count = 0; count < 5; count += 1) table.event("s");
    table.fast = false;
    const call = events({ sessionId: "s", snapshotOnly: true, stateFrames: true });
    table.pending[0]?.answer("now");
    await settled();
    live.onCommit([table.event("s"), table.event("s")]);
    table.fast = true;
    table.pending[0]?.answer("now");
    await settled();
    expect(call.story).toEqual(["CATCHING_UP 0", "1", "2", "3", "4", "5", "LIVE 5"]);
    expect(call.ended).toBeNull();
    expect(live.counts().watchers).toBe(0);
  });
});

describe("filters", () => {
  test("select by type and by run, for past and live rows", async () => {
    const { table, events, live } = serving();
    const push = () => [
      table.event("s", { eventType: "RUN_STARTED", runId: "r1" }),
      table.event("s", { eventType: "CUSTOM", runId: "r1", eventCount: 4 }),
      table.event("s", { eventType: "CUSTOM" }),
      table.event("s", { eventType: "RUN_STARTED", runId: "r2" }),
    ];
    push();
    const byType = events({ sessionId: "s", eventTypes: ["RUN_STARTED", "RUN_ERROR"] });
    const byRun = events({ sessionId: "s", runId: "r1" });
    const byBoth = events({ sessionId: "s", runId: "r1", eventTypes: ["CUSTOM"] });
    await settled();
    live.onCommit(push());
    await settled();
    expect(byType.seqs).toEqual([1n, 7n, 8n, 14n]);
    expect(byRun.seqs).toEqual([1n, 2n, 8n, 9n]);
    expect(byBoth.seqs).toEqual([2n, 9n]);
  });

  test("do not hold the cursor back: state frames show the examined number", async () => {
    const { table, events, live } = serving("auto", { pageRowsMax: 2 });
    for (const eventType of ["A", "B", "B", "B", "A"]) table.event("s", { eventType });
    const call = events({ sessionId: "s", eventTypes: ["A"], stateFrames: true });
    await settled();
    live.onCommit([table.event("s", { eventType: "B", eventCount: 3 })]);
    await settled();
    expect(call.story).toEqual([
      "CATCHING_UP 0",
      "1",
      "CATCHING_UP 2",
      "CATCHING_UP 4",
      "5",
      "LIVE 5",
      "LIVE 8",
    ]);
  });

  test("add no frames when state frames are off", async () => {
    const { table, events } = serving();
    table.event("s", { eventType: "B" });
    const call = events({ sessionId: "s", eventTypes: ["A"] });
    await settled();
    expect(call.got).toEqual([]);
  });
});

describe("a delivered message", () => {
  test("has an empty id when it is a frame", async () => {
    const call = serving().messages({ sessionId: "s", stateFrames: true });
    await settled();
    expect(call.got).toMatchObject([
      { id: "", sessionId: "s", seq: 0n, payload: "", watchState: WatchState.LIVE },
    ]);
  });

  test("is one shared object for all watchers of the window", async () => {
    const { table, events, live } = serving();
    const calls = [1, 2, 3].map(() => events({ sessionId: "s" }));
    await settled();
    live.onCommit([table.event("s", { fragments: new Uint8Array([10, 1, 2]) })]);
    await settled();
    const [first, ...others] = calls.map(({ got }) => got[0]);
    expect(first?.fragments?.lengths).toEqual([2]);
    for (const other of others) expect(other).toBe(first);
  });
});

test("an ended watch gets the reason, and a watch whose caller left ends without one", async () => {
  const { messages, live } = serving();
  const [left, ended] = [messages({ sessionId: "s" }), messages({ sessionId: "s" })];
  await settled();
  left.controller.abort();
  ended.controller.abort(new ServiceError("unavailable", "SHUTTING_DOWN", "stopping"));
  await settled();
  expect(left.ended).toBeNull();
  expect(ended.ended).toMatchObject({ reason: "SHUTTING_DOWN" });
  expect(live.counts().watchers).toBe(0);
});

test("a watch ends with SERVER_BUSY when the page that was read ahead has no room", async () => {
  const { live, table } = watching({ pageRowsMax: 2 });
  for (let count = 0; count < 4; count += 1) table.event("s");
  const handlers = createWatchHandlers({ live, reader: table }, { sessionPolicy: "auto" });
  const controller = new AbortController();
  // One page takes 2,056 bytes.
  const memory = new CallMemory(
    new Budget({ max: 2 * (CALL_BYTES + 3_000) }),
    {},
    { end: (error) => controller.abort(error), includedBytes: 0 },
  );
  const { signal } = controller;
  const context = { principal: ANONYMOUS, hasEnded: false, signal, memory };
  const rows = handlers.watchSessionEvents(
    create(WatchSessionEventsRequestSchema, { sessionId: "s", snapshotOnly: true }),
    context,
  );
  const got: bigint[] = [];
  const read = (async () => {
    for await (const { seq } of rows) {
      got.push(seq);
      await settled();
    }
  })();
  await expect(read).rejects.toMatchObject({ reason: "SERVER_BUSY" });
  expect(got).toEqual([1n, 2n]);
});

/**
 * The frames for an AG-UI client, over a log in memory: where a join begins, that no event is lost
 * or repeated on the way to the tail, and when an answer ends. test/e2e/agui.test.ts does the same
 * with real clients over HTTP.
 */
import { Semaphore } from "../../src/base/semaphore.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { setImmediate as turnOfEventLoop } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { type JsonObject, parseObject } from "@session-ledger/agui/json";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { ServiceError } from "@session-ledger/base/errors";
import type { AguiFrame } from "../../src/conversation/event-writer.ts";
import { createAguiJoin } from "../../src/conversation/join.ts";
import { AGUI_LIMITS, type AguiOptions, type AguiRequest } from "../../src/conversation/attach.ts";
import { clientMessagesIn } from "../../src/conversation/client-messages.ts";
import type { CallContext } from "../../src/contract/context.ts";
import { TRANSCRIPT_LIMITS, Transcripts } from "../../src/conversation/transcripts.ts";
import type { LiveLimits } from "../../src/live/limits.ts";
import type { EventRow } from "../../src/store/rows.ts";
import { mergeFragments } from "../support/merging.ts";
import { foldReader } from "../support/folding.ts";
import { callOf } from "../support/callers.ts";
import { databaseAway, ManualTimers, settled, type SlowTable } from "../support/slow-table.ts";
import { watching } from "../support/watching.ts";
import { content, end, finished, start, started, state, text } from "../support/agui-events.ts";

const STALE_MS = 600_000;
const WAIT_MS = 30_000;
const BEGAN_MICROS = 1_700_000_000_000_000n;

interface Setting {
  readonly options?: Partial<AguiOptions>;
  readonly limits?: Partial<LiveLimits>;
  readonly capabilities?: string;
}

function joining({ options = {}, limits = {}, capabilities }: Setting = {}) {
  const parts = watching(limits);
  const { live, table, metrics } = parts;
  const timers = new ManualTimers();
  const time = { micros: BEGAN_MICROS, ms: 0 };
  const clock = { nowMicros: () => time.micros, monotonicMs: () => time.ms };
  const transcripts = new Transcripts(
    { reader: foldReader(table), metrics, pastTurns: new Semaphore({ atOnce: 1 }) },
    { ...TRANSCRIPT_LIMITS, bytesMax: 100_000_000 },
  );
  const join = createAguiJoin(
    { live, transcripts, clock, timers, metrics, capabilitiesOf: async () => capabilities },
    {
      sessionPolicy: "auto",
      runStaleAfterMs: STALE_MS,
      runWaitMs: WAIT_MS,
      ...AGUI_LIMITS,
      ...options,
    },
  );
  const open = (request: Partial<AguiRequest> = {}, call?: CallContext): Answer =>
    new Answer((signal) => join({ ...REQUEST, ...request }, call ?? new Call(signal)));
  /** Commits events here, as ingest does. */
  const push = (...events: readonly JsonObject[]): void => {
    live.onCommit(events.map((event) => add(table, event, time.micros)));
  };
  /** Adds events to the table before a client joins. */
  const stored = (...events: readonly JsonObject[]): void => {
    for (const event of events) add(table, event, time.micros);
  };
  return { ...parts, liveTimers: parts.timers, timers, time, transcripts, open, push, stored };
}

const REQUEST: AguiRequest = {
  sessionId: "s",
  protocolVersion: "1.0",
  messages: [],
  answers: undefined,
  follow: false,
  canWait: true,
  replay: "snapshot",
};

/** Like a call of HTTP: the signal is a getter, so a copy of the object's own fields has none. */
class Call implements CallContext {
  readonly principal = ANONYMOUS;
  readonly hasEnded = false;
  readonly #signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  get signal(): AbortSignal {
    return this.#signal;
  }
}

function add(table: SlowTable, event: JsonObject, createdAtMicros: bigint): EventRow {
  const eventType = String(event["type"]);
  return table.event("s", { eventType, payload: JSON.stringify(event), createdAtMicros });
}

/** Adds the rows that a runner that compresses pushes of these events. */
function addMerged(table: SlowTable, events: readonly { readonly type: string }[]): EventRow[] {
  const raw = events.map((event) => ({ eventType: event.type, payload: JSON.stringify(event) }));
  return mergeFragments(raw).map(({ fragments: index, ...row }) => {
    const fragments = index && toBinary(FragmentsSchema, create(FragmentsSchema, index));
    return table.event("s", { ...row, ...(fragments && { fragments }) });
  });
}

/** A client that reads all the time, until standStill(). */
class Answer {
  readonly controller = new AbortController();
  readonly frames: AguiFrame[] = [];
  /** The error that ended the answer; `null` for a normal end. */
  ended: unknown;
  #still: PromiseWithResolvers<void> | undefined;

  constructor(begin: (signal: AbortSignal) => AsyncIterable<AguiFrame>) {
    this.#read(begin(this.controller.signal)).then(
      () => (this.ended = null),
      (error: unknown) => (this.ended = error),
    );
  }

  get events(): readonly JsonObject[] {
    return this.frames.flatMap((frame) =>
      "data" in frame ? [parseObject(String(frame.data))] : [],
    );
  }

  get types(): readonly unknown[] {
    return this.events.map(({ type }) => type);
  }

  get ids(): readonly string[] {
    return this.frames.flatMap((frame) => ("data" in frame ? [frame.id] : []));
  }

  get comments(): readonly string[] {
    return this.frames.flatMap((frame) => ("comment" in frame ? [frame.comment] : []));
  }

  /** The messages and state of a client that began empty. */
  get shown(): Shown {
    return reduced(this.events);
  }

  standStill(): void {
    this.#still = Promise.withResolvers();
  }

  goOn(): void {
    this.#still?.resolve();
    this.#still = undefined;
  }

  async #read(frames: AsyncIterable<AguiFrame>): Promise<void> {
    for await (const frame of frames) {
      this.frames.push(frame);
      await this.#still?.promise;
    }
  }
}

interface Shown {
  readonly messages: readonly JsonObject[];
  readonly state: unknown;
}

function reduced(events: readonly JsonObject[], transcript = new Transcript()): Shown {
  for (const event of events) transcript.apply(event);
  const { state: last = {} } = transcript;
  return structuredClone({ messages: transcript.messages(), state: last });
}

/** Waits long enough for a fold, which lets other work run between two slices. */
async function quiet(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await settled();
}

/** The user's message, which the first event of a run repeats. */
const inputOf = (runId: string, more: JsonObject = {}) => ({
  threadId: "t",
  runId,
  state: {},
  tools: [],
  context: [],
  forwardedProps: {},
  messages: [{ id: "u", role: "user", content: "hi" }],
  ...more,
});
const failed = { type: "RUN_ERROR", message: "broke" };
const OWNS = { "@ag-ui/client": { authoritativeActivityTypes: null } };
const interrupted = { type: "interrupt", interrupts: [{ id: "i1", reason: "ask" }] };

describe("an open run", () => {
  test("is joined in the middle of a message and followed to its end", async () => {
    const { stored, push, open, live } = joining();
    const before = [started("r1", { input: inputOf("r1") })];
    stored(...before, state({ a: 1 }), start("m1"), content("m1", "Hel"));
    const answer = open();
    await quiet();
    expect(answer.types).toEqual([
      "RUN_STARTED",
      "MESSAGES_SNAPSHOT",
      "STATE_SNAPSHOT",
      "TEXT_MESSAGE_START",
    ]);
    expect(answer.events[0]).toEqual(started("r1")); // Its messages are in the snapshot.
    expect(answer.ids).toEqual(["4", "4", "4", "4"]);
    expect(answer.comments).toEqual(["watch_state LIVE 4"]);
    push(content("m1", "lo"));
    push(end("m1"), { type: "STATE_DELTA", delta: [{ op: "add", path: "/b", value: 2 }] });
    push(finished(), started("r2"));
    await quiet();
    expect(answer.events.slice(4)).toEqual([
      content("m1", "lo"),
      end("m1"),
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/b", value: 2 }] },
      finished(),
    ]);
    expect(answer.ended).toBeNull();
    expect(answer.shown).toMatchObject({
      messages: [{ id: "u" }, { id: "m1", content: "Hello" }],
      state: { a: 1, b: 2 },
    });
    expect(live.counts().watchers).toBe(0);
  });

  test("does not show an open message again that a snapshot removed", async () => {
    const { stored, push, open } = joining();
    stored(started(), start("m1"), content("m1", "gone"), start("m2"));
    stored({
      type: "MESSAGES_SNAPSHOT",
      messages: [{ id: "m2", role: "assistant", content: "b" }],
    });
    const answer = open();
    await quiet();
    expect(answer.events.map(({ type, messageId }) => [type, messageId])).toEqual([
      ["RUN_STARTED", undefined],
      ["TEXT_MESSAGE_START", "m1"],
      ...Array.from({ length: 4 }, () => ["MESSAGES_SNAPSHOT", undefined]),
      ["TEXT_MESSAGE_START", "m2"],
    ]);
    push(content("m2", "c"), end("m1"), end("m2"), finished());
    await quiet();
    expect(answer.shown).toMatchObject({ messages: [{ id: "m2", content: "bc" }] });
    expect(answer.shown.messages).toHaveLength(1);
  });

  test("loses and repeats no row between the start of the watch and the fold", async () => {
    const { stored, push, open, table } = joining();
    stored(started(), ...text("m1", "one"));
    table.fast = false;
    const answer = open();
    await quiet();
    push(...text("m2", "two")); // While the head is asked for.
    table.pending[0]?.answer("began");
    await quiet();
    push(...text("m3", "three")); // While the log is read.
    table.fast = true;
    table.pending[0]?.answer("began");
    await quiet();
    push(...text("m4", "four"), finished());
    await quiet();
    expect(answer.ended).toBeNull();
    const texts = ["one", "two", "three", "four"].map((one) => ({ content: one }));
    expect(answer.shown).toMatchObject({ messages: texts });
  });

  test("is one watch, with one question for the head", async () => {
    const { stored, open, live, table } = joining({
      limits: { watchersMax: 1, watchersPerSessionMax: 1 },
    });
    stored(started());
    const answer = open();
    await quiet();
    expect(answer.types).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    expect({ watchers: live.counts().watchers, heads: table.headsRead }).toEqual({
      watchers: 1,
      heads: 1,
    });
    const other = open();
    await quiet();
    expect(other.ended).toMatchObject({ reason: "TOO_MANY_WATCHERS" });
    answer.controller.abort();
    await quiet();
    expect(live.counts()).toMatchObject({ watchers: 0, sessions: 0 });
  });

  test("is sent with its end when it ends while the client joins", async () => {
    const { stored, push, open, table } = joining();
    stored(started(), start("m1"));
    table.fast = false;
    const answer = open();
    table.pending[0]?.answer("now");
    await quiet();
    push(end("m1"), finished());
    table.fast = true;
    table.pending[0]?.answer("now");
    await quiet();

    expect(answer.types).toEqual([
      "RUN_STARTED",
      "MESSAGES_SNAPSHOT",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_END",
      "RUN_FINISHED",
    ]);
    expect(answer.ended).toBeNull();
  });

  test("is followed by the run that replaces it", async () => {
    const { stored, push, open } = joining();
    stored(started("r1"), start("m1"));
    const answer = open();
    await quiet();
    push(started("r2"));
    push(finished("r2"));
    await quiet();
    expect(answer.types.slice(3)).toEqual(["RUN_ERROR", "RUN_STARTED", "RUN_FINISHED"]);
    expect(answer.ended).toBeNull();
  });
});

describe("a run that has ended", () => {
  test("is sent with its end, and then the answer ends", async () => {
    const { stored, open, live } = joining();
    stored(started("r1"), ...text("m1", "old"), finished("r1"));
    stored(started("r2"), ...text("m2", "new"), finished("r2", { result: 7 }));
    const answer = open();
    await quiet();
    expect(answer.events).toMatchObject([
      started("r2"),
      { messages: [{ content: "old" }, { content: "new" }] },
      { type: "RUN_FINISHED", runId: "r2", result: 7 },
    ]);
    expect(answer.ended).toBeNull();
    expect(live.counts().watchers).toBe(0);
  });

  test("is sent with its error, and opens nothing again", async () => {
    const { stored, open } = joining();
    stored(started(), start("m1"), content("m1", "half"), failed);
    const answer = open();
    await quiet();
    expect(answer.types).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_ERROR"]);
    expect(answer.ended).toBeNull();
  });

  test("is sent as its RUN_ERROR alone when it failed before it began", async () => {
    const { stored, push, open } = joining();
    stored(failed);
    const [answer, following] = [open(), open({ follow: true })];
    await quiet();
    expect([answer.events, answer.ended]).toEqual([[failed], null]);
    push(started());
    await quiet();
    expect(following.types).toEqual(["RUN_ERROR", "RUN_STARTED", "MESSAGES_SNAPSHOT"]);
  });

  test("ends the answer of a waiting client when it fails before it began", async () => {
    const { push, open } = joining();
    const answer = open();
    await quiet();
    push(failed);
    await quiet();
    expect([answer.events, answer.ended]).toEqual([[failed], null]);
  });

  test("shows pending interrupts, but no answered ones", async () => {
    const { stored, open } = joining();
    stored(started("r1"), finished("r1", { outcome: interrupted }));
    const asking = open();
    await quiet();
    expect(asking.events.at(-1)).toEqual(finished("r1", { outcome: interrupted }));
    const resume = [{ interruptId: "i1", status: "resolved" }];
    stored(started("r2", { input: inputOf("r2", { resume }) }));
    for (const replay of ["snapshot", "events"] as const) {
      const answered = open({ replay });
      await quiet();
      expect(JSON.stringify(answered.events)).not.toContain('"i1","reason"');
      answered.controller.abort();
    }
  });
});

describe("the question of a graph", () => {
  const question = { type: "CUSTOM", name: "on_interrupt", value: '"Sure?"' };
  const other = { type: "CUSTOM", name: "on_progress", value: 1 };

  test("waits for who joins, also a client that follows, until the next run begins", async () => {
    const { stored, push, open, table, live } = joining();
    stored(started("r1"), question, other, finished("r1"));
    const [answer, following] = [open(), open({ follow: true })];
    await quiet();
    for (const { events } of [answer, following])
      expect(events.slice(-2)).toEqual([question, finished("r1")]);
    // A message between two runs comes in a run, which begins without a question.
    const [payload, eventType] = ["typed past it", "user"];
    live.onCommit([table.message("s", { eventType, payload })]);
    await quiet();
    expect(following.types.slice(-2)).toEqual(["CUSTOM", "RUN_FINISHED"]);
    push(started("r2"), finished("r2"));
    await quiet();
    const late = open();
    await quiet();
    expect(late.types).not.toContain("CUSTOM");
  });

  test.each([
    { type: "RUN_ERROR", message: "failed" },
    finished("r1", { outcome: { type: "cancelled" } }),
  ])("of a run that ended with %o waits for nobody", async (last) => {
    const { stored, open } = joining();
    stored(started("r1"), question, last);
    const answer = open();
    await quiet();
    expect(answer.types).not.toContain("CUSTOM");
  });
});

describe("a session without a run", () => {
  test("keeps a client waiting, also when the session does not exist", async () => {
    const { push, open } = joining();
    const answer = open();
    await quiet();
    expect([answer.types, answer.comments]).toEqual([
      [],
      ["session s does not exist yet, and this answer ends after 30 s", "watch_state LIVE 0"],
    ]);
    push(started("r1", { input: inputOf("r1") }), ...text("m1", "one"), finished("r1"));
    await quiet();
    expect(answer.ended).toBeNull();
    expect(answer.shown).toMatchObject({ messages: [{ id: "u" }, { content: "one" }] });
  });

  // Regression: the wait had no end, so a mistyped id hung a client for ever.
  test.each(["snapshot", "events"] as const)(
    "ends the answer with an error after RUN_WAIT when it does not exist: %s",
    async (replay) => {
      const { push, open, time, timers, live } = joining();
      const [answer, following] = [open({ replay }), open({ replay, follow: true })];
      await quiet();
      time.micros += 29_999_000n;
      timers.fireAll();
      await quiet();
      expect([answer.types, answer.ended]).toEqual([[], undefined]);
      time.micros += 1_000n;
      timers.fireAll();
      await quiet();
      expect(answer.events).toMatchObject([{ type: "RUN_ERROR", code: "NO_RUN" }]);
      expect([answer.ended, following.ended]).toEqual([null, undefined]);
      expect([live.counts().watchers, timers.pending]).toEqual([1, []]);
      expect(following.comments[0]).toBe("session s does not exist yet");
      push(started(), finished());
      await quiet();
      expect(following.types.at(-1)).toBe("RUN_FINISHED");
    },
  );

  test.each(["snapshot", "events"] as const)(
    "ends the answer after RUN_WAIT when only events outside of runs arrive: %s",
    async (replay) => {
      const { stored, push, open, time, timers } = joining();
      stored(...text("m0", "early"));
      const answer = open({ replay });
      for (let second = 0; second < 30; second += 10) {
        await quiet();
        expect(answer.ended).toBeUndefined();
        push(...text(`m${second + 1}`, "more"));
        await quiet();
        time.micros += 10_000_000n;
        timers.fireAll();
      }
      await quiet();
      expect([answer.types, answer.ended]).toEqual([[], null]);
      const waits = "session s has no run yet, and this answer ends after 30 s";
      expect(answer.comments).toContain(waits);
    },
  );

  test("gets the time limit of a run once its first run begins", async () => {
    const { push, open, time, timers } = joining({ options: { runWaitMs: 3_600_000 } });
    const answer = open();
    await quiet();
    time.micros += 1_800_000_000n;
    push(started());
    await quiet();
    expect(timers.pending.map(({ delayMs }) => delayMs)).toEqual([STALE_MS]);
    time.micros += 600_000_000n;
    timers.fireAll();
    await quiet();
    expect(answer.events.at(-1)).toMatchObject({ code: "STALLED" });
  });

  test("replaces the client's messages of another session at its first run", async () => {
    const { push, open } = joining();
    const accepted = clientMessagesIn([{ id: "x", role: "assistant" }], { field: "messages" });
    const answer = open({ messages: accepted });
    await quiet();
    push(started(), ...text("m1", "new"), finished());
    await quiet();
    const transcript = new Transcript();
    transcript.apply({ type: "MESSAGES_SNAPSHOT", messages: [{ id: "x", role: "assistant" }] });
    expect(reduced(answer.events, transcript).messages).toMatchObject([{ content: "new" }]);
  });

  test("sends its earlier events with its first run", async () => {
    const { stored, push, open } = joining();
    stored(...text("m0", "early"), state({ a: 1 }));
    const answer = open();
    await quiet();
    expect(answer.types).toEqual([]);
    push(started(), finished());
    await quiet();
    expect(answer.shown).toMatchObject({ messages: [{ content: "early" }], state: { a: 1 } });
    expect(answer.types.at(-1)).toBe("RUN_FINISHED");
    expect(answer.ended).toBeNull();
  });

  test.each(["snapshot", "events"] as const)(
    "ends the answer at once for a client that does not wait: %s",
    async (replay) => {
      const { stored, open } = joining();
      const unknown = open({ canWait: false, replay });
      await quiet();
      expect([unknown.types, unknown.ended]).toEqual([[], null]);
      stored(...text("m0", "early"));
      const answer = open({ canWait: false, replay });
      await quiet();
      expect([answer.types, answer.ended]).toEqual([[], null]);
    },
  );

  test("is NOT_FOUND under the strict policy, and always when it is deleted", async () => {
    const { table, stored, open, live, transcripts } = joining({
      options: { sessionPolicy: "strict" },
    });
    const unknown = open();
    await quiet();
    expect(unknown.ended).toMatchObject({ reason: "SESSION_NOT_FOUND" });
    stored(started(), finished());
    open();
    await quiet();
    expect(transcripts.counts().sessions).toBe(1);
    table.deleted.add("s");
    const deleted = open();
    await quiet();
    expect(deleted.ended).toMatchObject({ reason: "SESSION_DELETED" });
    expect(transcripts.counts().sessions).toBe(0);
    expect(live.counts().watchers).toBe(0);
  });
});

describe("capabilities", () => {
  const capabilities = '{"transport":{"streaming":true}}';

  test("come with the first run of a session that had none", async () => {
    const { open, push } = joining({ capabilities });
    const answer = open();
    await quiet();
    expect(answer.types).toEqual([]);
    push(started("r1"));
    await quiet();
    expect(answer.types).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT", "CUSTOM"]);
  });

  test("come once in a replay, after its first snapshot", async () => {
    const { open, stored } = joining({ capabilities });
    stored(started("r1"), finished("r1"), custom(1), started("r2"), finished("r2"));
    const answer = open({ replay: "events" });
    await quiet();
    expect(answer.types).toEqual([
      "RUN_STARTED",
      "MESSAGES_SNAPSHOT",
      "CUSTOM",
      "RUN_FINISHED",
      "RUN_STARTED",
      "MESSAGES_SNAPSHOT",
      "RUN_FINISHED",
    ]);
  });
});

describe("feedback", () => {
  const given = {
    type: "META",
    metaType: "thumbs_up",
    payload: { messageId: "m1", userId: "ann" },
    metadata: { session: { feedback: { by: "static:ann" } } },
  };
  const metadata = { session: { feedback: [{ by: "static:ann", kind: "thumbs_up" }] } };

  test("between two runs comes to a client that follows with the next run", async () => {
    const { open, stored, push } = joining();
    stored(started("r1"), ...text("m1", "hello"), finished("r1"));
    const answer = open({ follow: true });
    await quiet();
    const before = answer.types.length;
    push(given);
    await quiet();
    expect(answer.types).toHaveLength(before);
    push(started("r2"));
    await quiet();
    expect(answer.types.slice(before)).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    expect(answer.events.at(-1)).toMatchObject({ messages: [{ id: "m1", metadata }] });
  });

  test("before a run is in the snapshot of a replay that the run begins with", async () => {
    const { open, stored } = joining();
    stored(started("r1"), ...text("m1", "hello"), finished("r1"), given, started("r2"));
    const answer = open({ replay: "events" });
    await quiet();
    expect(answer.types.slice(-2)).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    expect(answer.events.at(-1)).toMatchObject({ messages: [{ id: "m1", metadata }] });
  });
});

describe("a stalled run", () => {
  const seconds = (count: number): bigint => BigInt(count) * 1_000_000n;

  test("is reported as stalled after its snapshot, and the answer ends", async () => {
    const { stored, open, time, live, timers } = joining();
    stored(started(), start("m1"));
    time.micros += seconds(600);
    const [answer, following] = [open(), open({ follow: true })];
    await quiet();
    for (const { types, events, ended } of [answer, following]) {
      expect(types).toEqual([
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "TEXT_MESSAGE_START",
        "RUN_ERROR",
      ]);
      expect(events.at(-1)).toMatchObject({ code: "STALLED" });
      expect(ended).toBeNull();
    }
    expect(live.counts().watchers).toBe(0);
    expect(timers.pending).toEqual([]);
  });

  test("is reported at the limit and not before", async () => {
    const { stored, open, time, timers } = joining();
    stored(started());
    time.micros += seconds(599);
    const answer = open();
    await quiet();
    expect(answer.ended).toBeUndefined();
    expect(timers.pending.map(({ delayMs }) => delayMs)).toEqual([1_000]);
    time.micros += seconds(1);
    timers.fireAll();
    await quiet();
    expect(answer.events.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "STALLED" });
    expect(answer.ended).toBeNull();
  });

  test("is put off by every row, with one timer for all of them", async () => {
    const { stored, push, open, time, timers } = joining();
    stored(started());
    const answer = open();
    await quiet();
    for (let count = 0; count < 5; count += 1) {
      time.micros += seconds(100);
      push({ type: "CUSTOM", name: "n", value: count });
      await quiet();
      expect(timers.pending).toHaveLength(1);
    }
    time.micros += seconds(100);
    timers.fireAll();
    await quiet();
    expect(answer.ended).toBeUndefined();
    expect(timers.pending.map(({ delayMs }) => delayMs)).toEqual([500_000]);
    push(finished());
    await quiet();
    expect(answer.ended).toBeNull();
    expect(timers.pending).toEqual([]);
  });

  test("is not reported to a slow reader that has rows left to read", async () => {
    const { stored, push, open, time, timers } = joining();
    stored(started());
    const answer = open();
    await quiet();
    answer.standStill();
    push({ type: "CUSTOM", name: "n", value: 1 }, { type: "CUSTOM", name: "n", value: 2 });
    await quiet();
    time.micros += seconds(600);
    timers.fireAll();
    await quiet();
    answer.goOn();
    await quiet();
    expect(answer.types).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT", "CUSTOM", "CUSTOM"]);
    expect(answer.ended).toBeUndefined();
  });

  test("is not reported while the database cannot be read", async () => {
    const { stored, open, time, timers, table, live, ...parts } = joining();
    stored(started());
    const answer = open();
    await quiet();
    table.failure = databaseAway();
    live.onHint("s", { ...table.head("s"), eventSeq: 9n });
    await quiet();
    expect(answer.comments.at(-1)).toMatch(/DEGRADED/);
    time.micros += seconds(600);
    timers.fireAll();
    await quiet();
    expect(answer.ended).toBeUndefined();
    answer.controller.abort();
    await quiet();
    expect(parts.transcripts.counts().folding).toBe(0);
  });

  test.each(["snapshot", "events"] as const)(
    "is measured from the end of an outage: %s",
    async (replay) => {
      const { stored, open, time, timers, table, live, liveTimers } = joining();
      stored(started());
      const answer = open({ replay });
      await quiet();
      table.failure = databaseAway();
      live.onHint("s", { ...table.head("s"), eventSeq: 9n });
      await quiet();
      expect(answer.comments.at(-1)).toMatch(/DEGRADED/);
      time.micros += seconds(2_800);
      timers.fireAll();
      await quiet();
      table.failure = undefined;
      liveTimers.fireAll();
      await quiet();
      expect(answer.comments.at(-1)).toMatch(/LIVE/);
      expect([answer.types.includes("RUN_ERROR"), answer.ended]).toEqual([false, undefined]);
      time.micros += seconds(599);
      timers.fireAll();
      await quiet();
      expect(answer.ended).toBeUndefined();
      time.micros += seconds(1);
      timers.fireAll();
      await quiet();
      expect(answer.events.at(-1)).toMatchObject({ code: "STALLED" });
    },
  );

  test("is never reported between runs", async () => {
    const { stored, open, time, timers } = joining();
    stored(started(), finished());
    time.micros += seconds(9_000);
    const answer = open({ follow: true });
    await quiet();
    expect(timers.pending).toEqual([]);
    expect(answer.ended).toBeUndefined();
  });

  test("is measured from now when its times are in the future", async () => {
    const { stored, open, timers, time } = joining();
    time.micros += seconds(3_600);
    stored(started());
    time.micros -= seconds(3_600);
    open();
    await quiet();
    expect(timers.pending.map(({ delayMs }) => delayMs)).toEqual([STALE_MS]);
  });

  test("waits no longer than the longest timer", async () => {
    const { stored, open, timers } = joining({ options: { runStaleAfterMs: 2_592_000_000 } });
    stored(started());
    open();
    await quiet();
    expect(timers.pending.map(({ delayMs }) => delayMs)).toEqual([2_147_483_647]);
  });
});

describe("a replay", () => {
  const log = [
    started("r1"),
    ...text("m1", "one"),
    finished("r1"),
    started("r2"),
    start("m2"),
    content("m2", "a"),
    content("m2", "b"),
    end("m2"),
  ];

  test("sends every event from the beginning, continues live and ends with the run", async () => {
    const { stored, push, open, live } = joining({ limits: { pageRowsMax: 3 } });
    stored(...log);
    const answer = open({ replay: "events" });
    await quiet();
    const [first, snapshot, ...rest] = answer.events;
    expect(snapshot).toMatchObject({ type: "MESSAGES_SNAPSHOT", messages: [] });
    expect([first, ...rest]).toEqual(log);
    expect(answer.ended).toBeUndefined();
    push(...text("m3", "live"), finished("r2"), started("r3"));
    await quiet();
    expect(answer.events.slice(-4)).toEqual([...text("m3", "live"), finished("r2")]);
    expect(answer.ended).toBeNull();
    expect(live.counts().watchers).toBe(0);
  });

  test("of ended runs ends with the log, or continues with follow", async () => {
    const { stored, push, open } = joining();
    stored(...log, finished("r2"), ...text("m4", "after"));
    const [answer, following] = [
      open({ replay: "events" }),
      open({ replay: "events", follow: true }),
    ];
    await quiet();
    expect(answer.ended).toBeNull();
    expect(answer.types.at(-1)).toBe("RUN_FINISHED");
    push(started("r3"));
    await quiet();
    expect(following.types.slice(-2)).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    expect(following.shown).toMatchObject({
      messages: ["one", "ab", "after"].map((one) => ({ content: one })),
    });
  });

  test("expands merged rows", async () => {
    const { open, table } = joining();
    addMerged(table, log);
    const answer = open({ replay: "events", follow: true });
    await quiet();
    expect(answer.events.toSpliced(1, 1)).toEqual(log);
    expect(answer.ids).toEqual(["1", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
  });

  // Regression: a million withheld events never reached a sender, and blocked all other work.
  test("lets other work run while it sends nothing", async () => {
    const { open, table } = joining();
    const eventCount = 300_000;
    const lengths = [...Array.from({ length: eventCount - 1 }, () => 1), 3];
    const index = create(FragmentsSchema, { lengths, timestampDeltasMs: [] });
    const payload = JSON.stringify(content("m", "ab"));
    const fragments = toBinary(FragmentsSchema, index);
    table.event("s", { eventType: "TEXT_MESSAGE_CONTENT", payload, eventCount, fragments });
    const answer = open({ replay: "events", canWait: false });
    await expect.poll(() => table.pagesRead).toBeGreaterThan(0);
    let others = 0;
    while (answer.ended === undefined) {
      await turnOfEventLoop();
      others += 1;
    }
    expect(others).toBeGreaterThan(10);
  });

  test("replaces an activity at its first snapshot, and only at the first", async () => {
    const { stored, open } = joining();
    const activity = { messageId: "a", activityType: "plan" };
    const first = { type: "ACTIVITY_SNAPSHOT", ...activity, content: { n: 1 }, replace: false };
    const later = { ...first, content: { n: 2 } };
    stored(started(), first, later, { type: "MESSAGES_SNAPSHOT", messages: [], metadata: OWNS });
    stored(later, finished());
    const answer = open({ replay: "events" });
    await quiet();
    const replaces = answer.events
      .filter(({ type }) => type === "ACTIVITY_SNAPSHOT")
      .map(({ replace }) => replace);
    expect(replaces).toEqual([true, false, true]);
    expect(answer.shown.messages).toMatchObject([{ id: "a", content: { n: 2 } }]);
  });

  test("is refused above the limit, until another replay ends", async () => {
    const { stored, open } = joining({ options: { replaysMax: 1 } });
    stored(...log);
    const request = { replay: "events" } as const;
    const slow = joined(open(request));
    await quiet();
    const second = open(request);
    await quiet();
    expect(slow.ended).toBeUndefined();
    expect(second.ended).toMatchObject({ code: "overloaded" });
    slow.controller.abort();
    slow.goOn();
    await quiet();
    const third = open(request);
    await quiet();
    expect(third.ended).toBeUndefined();

    function joined(answer: Answer): Answer {
      answer.standStill();
      return answer;
    }
  });

  test("leave one for another caller, and a caller with half of them gets no more", async () => {
    const { stored, open, metrics } = joining({ options: { replaysMax: 3 } });
    stored(...log);
    const greedy = [callOf("greedy"), callOf("greedy")];
    for (const call of greedy) {
      open({ replay: "events" }, call).standStill();
      await quiet();
    }
    const refused = open({ replay: "events" }, callOf("greedy"));
    const other = open({ replay: "events" }, callOf("other"));
    await quiet();
    expect(refused.ended).toMatchObject({ reason: "TOO_MANY_WATCHERS" });
    expect(other.ended).toBeUndefined();
    expect(other.events).toEqual(expect.arrayContaining(log));
    expect(greedy.map(({ signal }) => signal.aborted)).toEqual([false, false]);
    expect(await metrics.text()).toContain('shared_limit_refused_total{limit="replays"} 1');
  });

  // Regression: eight viewers that had long been live blocked all other replays.
  test("that is live holds no slot, and still sends every event of a row", async () => {
    const { stored, push, open, table, live } = joining({ options: { replaysMax: 1 } });
    stored(...log);
    const request = { replay: "events", follow: true } as const;
    const viewers = [];
    for (let count = 0; count < 3; count += 1) {
      viewers.push(open(request));
      await quiet();
    }
    for (const { ended } of viewers) expect(ended).toBeUndefined();
    const tokens = [content("m3", "a"), content("m3", "b"), content("m3", "c")];
    push(start("m3"));
    live.onCommit(addMerged(table, tokens));
    push(end("m3"), finished("r2"), state({ a: 1 }), ...text("m4", "between"), started("r3"));
    push(finished("r3"));
    await quiet();
    for (const viewer of viewers) {
      const at = viewer.events.findIndex(({ messageId }) => messageId === "m3");
      expect(viewer.events.slice(at, at + 4)).toEqual([start("m3"), ...tokens]);
      expect(viewer.shown).toMatchObject({
        messages: ["one", "ab", "abc", "between"].map((one) => ({ content: one })),
        state: { a: 1 },
      });
      expect(viewer.types.at(-1)).toBe("RUN_FINISHED");
    }
  });

  // Bug: each replay held the whole session in memory, without a limit.
  test("is ended when it holds too many bytes", async () => {
    const { stored, push, open } = joining({ options: { replayBytesMax: 2_000 } });
    stored(started("r1"), ...text("m1", "short"));
    const live = open({ replay: "events" });
    await quiet();
    push(...text("m2", "x".repeat(2_000)));
    const answer = open({ replay: "events" });
    await quiet();
    expect(answer.ended).toMatchObject({ reason: "TRANSCRIPT_TOO_LARGE" });
    expect([live.ended, live.types.at(-1)]).toEqual([undefined, "TEXT_MESSAGE_END"]); // Holds nothing.
  });
});

describe("a snapshot above the size of a frame", () => {
  const options = { snapshotLengthMax: 200 };
  const long = "x".repeat(150);

  test("is replaced by the rows from the beginning", async () => {
    const { stored, push, open } = joining({ options });
    stored(started("r1"), ...text("m1", long), finished("r1"), started("r2"), ...text("m2", long));
    const answer = open();
    await quiet();
    for (const event of answer.events) expect(JSON.stringify(event).length).toBeLessThan(250);
    expect(answer.shown).toMatchObject({ messages: [{ content: long }, { content: long }] });
    push(finished("r2"));
    await quiet();
    expect(answer.ended).toBeNull();
    const again = new Transcript();
    reduced(answer.events, again);
    expect(reduced(answer.events, again)).toEqual(answer.shown);
  });

  test("is replaced by rows when its state is too large as well, also for a connected client", async () => {
    const { stored, push, open } = joining({ options });
    stored(started("r1"), finished("r1"));
    const answer = open({ follow: true });
    await quiet();
    push(state({ long: long + long }), ...text("m1", long));
    push(started("r2"), ...text("m2", long));
    await quiet();
    // Rows between runs cannot be sent as they are, and are too large for a snapshot.
    expect(answer.types.slice(3)).toEqual([
      "RUN_STARTED",
      "MESSAGES_SNAPSHOT",
      "STATE_SNAPSHOT",
      "RUN_FINISHED",
      "RUN_STARTED",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_END",
    ]);
  });
});

describe("an answer to a message", () => {
  const taking = (runId: string, last: number) =>
    started(runId, { metadata: { session: { consumed: { first: last, last } } } });

  test("is over at once when the run that took the message has ended", async () => {
    const { stored, open } = joining();
    stored(taking("r1", 3), ...text("m1", "one"), finished("r1"));
    const answer = open({ answers: 2n });
    await quiet();
    expect([answer.shown.messages.length, answer.ended]).toEqual([1, null]);
  });

  test("ends with NO_RUNNER after RUN_WAIT without an open run, however long the run before was", async () => {
    const { stored, push, open, time, timers } = joining();
    stored(started("r1"));
    const answer = open({ answers: 2n });
    await quiet();
    time.micros += 300_000_000n;
    timers.fireAll();
    push(finished("r1"));
    await quiet();
    time.micros += 29_999_000n;
    timers.fireAll();
    await quiet();
    expect([answer.types.at(-1), answer.ended]).toEqual(["RUN_FINISHED", undefined]);
    time.micros += 1_000n;
    timers.fireAll();
    await quiet();
    expect(answer.events.slice(-2)).toMatchObject([
      { type: "RUN_STARTED" },
      { type: "RUN_ERROR", code: "NO_RUNNER" },
    ]);
    expect([answer.ended, timers.pending]).toEqual([null, []]);
  });

  test.each(["snapshot", "events"] as const)(
    "comes event by event when the session is above the size of a frame: %s",
    async (replay) => {
      const { stored, push, open } = joining({ options: { snapshotLengthMax: 200 } });
      const long = "x".repeat(250);
      stored(started("r1"), ...text("m1", long), finished("r1"));
      const answer = open({ answers: 1n, replay });
      await quiet();
      expect(answer.ended).toBeUndefined();
      push(taking("r2", 1), ...text("m2", "two"));
      await quiet();
      expect(answer.shown.messages).toMatchObject([{ content: long }, { content: "two" }]);
      expect(answer.ended).toBeUndefined();
      push(finished("r2"));
      await quiet();
      expect(answer.ended).toBeNull();
    },
  );
});

describe("an ended answer", () => {
  test("gives the reason, unless the client has left", async () => {
    const { stored, open, live } = joining();
    stored(started());
    const [stopped, left] = [open(), open()];
    await quiet();
    stopped.controller.abort(new ServiceError("unavailable", "SHUTTING_DOWN", "stopping"));
    left.controller.abort();
    await quiet();
    expect([stopped.ended, left.ended]).toMatchObject([{ reason: "SHUTTING_DOWN" }, {}]);
    expect(left.ended).toBeNull();
    const deleted = open();
    await quiet();
    live.onDelete("s");
    await quiet();
    expect(deleted.ended).toMatchObject({ reason: "SESSION_DELETED" });
    expect(live.counts().watchers).toBe(0);
  });

  test("is refused when the log cannot be read, and leaves no watcher behind", async () => {
    const { stored, open, table, live } = joining();
    stored(started());
    table.fast = false;
    const answer = open();
    table.pending[0]?.answer("now");
    await quiet();
    table.pending[0]?.fail(new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "down"));
    await quiet();
    expect(answer.ended).toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
    expect([answer.frames, live.counts().watchers]).toEqual([[], 0]);
  });
});

test("a client gets the events of the generation that it names", async () => {
  const { stored, open } = joining();
  const outcome = { type: "cancelled" };
  stored(started(), { type: "SUBAGENT_STARTED", subagentRunId: "a", name: "helper" });
  stored({ type: "SUBAGENT_FINISHED", subagentRunId: "a" }, { ...finished(), outcome });
  const [newer, older] = [
    open({ replay: "events" }),
    open({ replay: "events", protocolVersion: undefined }),
  ];
  await quiet();
  for (const { types } of [newer, older]) expect(types).toContain("SUBAGENT_STARTED");
  expect(newer.events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome });
  expect(older.events.at(-1)).toEqual(finished());
});

function custom(value: number) {
  return { type: "CUSTOM", name: "n", value };
}

/**
 * The page has the messages and events of a session in the order of the service, for commits within
 * one millisecond, for imports, whose rows share one time, and for a clock of the database that
 * steps back.
 *
 * Method: commits of both streams are drawn. Each row goes to the service's own merging, and, as an
 * item of a page, to the page. Every row is a message of its own, so the transcript shows the order.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { inOrder } from "../../src/conversation/merging.ts";
import type { TranscriptRow } from "../../src/store/pages.ts";
import type { TranscriptMessageRow } from "../../src/store/transcript-messages.ts";
import { SessionLog } from "@session-ledger/react/internal/model/log";
import { Scrub } from "@session-ledger/react/internal/model/scrub";
import type {
  EventItem,
  LogSource,
  MessageItem,
} from "@session-ledger/react/internal/model/source";
import { properties } from "../support/random.ts";

interface Commit {
  readonly isTalk: boolean;
  readonly recordedMicros: number;
  readonly createdMicros: number;
}

interface Numbered extends Commit {
  readonly seq: number;
  readonly id: string;
}

const START_MICROS = 1_795_000_000_000_000;
/** UUIDv7 of a process whose clock says anything. */
const idOf = (at: number): string => `01a200f6-75a7-7000-8000-${String(at).padStart(12, "0")}`;

function numbered(commits: readonly Commit[], isTalk: boolean): readonly Numbered[] {
  const own = commits.flatMap((commit, at) =>
    commit.isTalk === isTalk ? [{ ...commit, id: idOf(at) }] : [],
  );
  return own.map((commit, at) => ({ ...commit, seq: at + 1 }));
}

const payloadOf = ({ id }: Numbered): string =>
  JSON.stringify({ type: "TEXT_MESSAGE_CHUNK", messageId: id, role: "assistant", delta: "x" });

async function serviceOrder(commits: readonly Commit[]): Promise<readonly string[]> {
  const [talk, events] = [numbered(commits, true), numbered(commits, false)];
  const base = ({ seq, recordedMicros, createdMicros }: Numbered) => {
    const numbers = { seq: BigInt(seq), eventCount: 1 as const };
    return { ...numbers, payload: "", recordedMicros, createdMicros };
  };
  const idByRow = new Map<object, string>();
  const logged = events.map((one): TranscriptRow => {
    const fields = { eventType: "CUSTOM", conformant: true, newestMicros: undefined };
    const row = { stream: "events" as const, ...base(one), ...fields };
    idByRow.set(row, one.id);
    return row;
  });
  const messages = talk.map((one): TranscriptMessageRow => {
    const times = { createdAtMicros: BigInt(one.createdMicros), sentAtMicros: undefined };
    const fields = { eventType: "user", sender: undefined, idempotencyKey: undefined };
    const row = { stream: "messages" as const, id: one.id, ...base(one), ...times, ...fields };
    idByRow.set(row, one.id);
    return row;
  });
  const slices = inOrder({
    events: (async function* slice() {
      yield { rows: logged, seq: BigInt(logged.length) };
    })(),
    messages: (async function* slice() {
      yield { rows: messages, seq: BigInt(messages.length) };
    })(),
    upTo: { events: BigInt(logged.length), messages: BigInt(messages.length) },
  });
  const ids: string[] = [];
  for await (const { rows } of slices) for (const row of rows) ids.push(idByRow.get(row) ?? "");
  return ids;
}

const timeOf = (micros: number): string => {
  const fraction = String(micros % 1_000).padStart(3, "0");
  return new Date(Math.floor(micros / 1_000)).toISOString().replace("Z", `${fraction}Z`);
};

function sourceOf(commits: readonly Commit[]): LogSource {
  const times = ({ recordedMicros, createdMicros }: Numbered) => ({
    created_at: timeOf(createdMicros),
    recorded_at: timeOf(recordedMicros),
  });
  const events = numbered(commits, false).map((one): EventItem => {
    const { id, seq } = one;
    const form = { event_type: "TEXT_MESSAGE_CHUNK", event_count: 1 };
    return { id, seq, payload: payloadOf(one), ...form, ...times(one) };
  });
  const talk = numbered(commits, true).map((one): MessageItem => {
    const { id, seq } = one;
    return { id, seq, event_type: "user", payload: id, ...times(one) };
  });
  return {
    rowsBefore: async (_, limit) => {
      const items = events.toReversed().slice(0, limit);
      const hasMore = items.length < events.length;
      return { items, total: events.length, next_after_seq: events.length, has_more: hasMore };
    },
    rowsAfter: async () => {
      throw new Error("the newest page has all");
    },
    messagesAfter: async (after, limit) => talk.slice(after, after + limit),
    followRows: async ({ state }) => {
      state("live");
      return new Promise<never>(() => undefined);
    },
    followMessages: async () => new Promise<never>(() => undefined),
  };
}

async function pageOrder(commits: readonly Commit[]): Promise<readonly unknown[]> {
  const log = new SessionLog(sourceOf(commits), { soon: (run) => run() });
  const scrub = new Scrub("s", log);
  const { promise, resolve } = Promise.withResolvers<void>();
  scrub.subscribe(() => {
    if (scrub.isComplete && log.isLive) resolve();
  });
  scrub.start();
  log.start();
  await promise;
  const ids = scrub.at("live").messages.map(({ id }) => id);
  scrub.stop();
  log.stop();
  return ids;
}

const NEAR = 1_500;

const commit = fc.record({
  isTalk: fc.boolean(),
  /** To the commit before it; below 0 the clock stepped back. */
  stepMicros: fc.oneof(
    { weight: 6, arbitrary: fc.nat(NEAR) },
    { weight: 2, arbitrary: fc.constant(0) },
    { weight: 1, arbitrary: fc.integer({ min: -NEAR, max: -1 }) },
  ),
  /** Rows were created at any time before. */
  createdBeforeMicros: fc.nat(3 * NEAR),
});

const session = fc.array(commit, { maxLength: 40 }).map((drawn): readonly Commit[] => {
  let clock = START_MICROS;
  return drawn.map(({ isTalk, stepMicros, createdBeforeMicros }) => {
    clock += stepMicros;
    const recordedMicros = clock;
    return { isTalk, recordedMicros, createdMicros: clock - createdBeforeMicros };
  });
});

describe("the order of messages and events in the page", () => {
  test("equals the order of the service's merging", async () => {
    const all = fc.asyncProperty(session, async (commits) => {
      expect(await pageOrder(commits)).toEqual(await serviceOrder(commits));
    });
    await fc.assert(all, properties({ runs: 400 }));
  });
});

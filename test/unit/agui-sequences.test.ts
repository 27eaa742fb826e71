import { describe, expect, test } from "vitest";
import { lookup } from "../../src/agui/catalogue.ts";
import { placeOf, type EventPlace, OPEN_IDS_MAX } from "../../src/agui/constructs.ts";
import { Sequences, SEQUENCES_LIMITS } from "../../src/agui/sequence.ts";

type SequencesLimits = typeof SEQUENCES_LIMITS;

function place(type: string, messageId = "m"): EventPlace {
  const entry = lookup(type);
  if (entry === undefined) throw new Error(`${type} is not in the catalogue`);
  return placeOf(entry, { messageId });
}

const RUN_STARTED = place("RUN_STARTED");
const START = place("TEXT_MESSAGE_START");
const CONTENT = place("TEXT_MESSAGE_CONTENT");

function sequences(limits: Partial<SequencesLimits> = {}): Sequences {
  return new Sequences({ ...SEQUENCES_LIMITS, ...limits });
}

/** Whether the session is known to have no message open: its next row is out of order. */
function isKnown(all: Sequences, sessionId: string, seq: bigint): boolean {
  return (
    all.observe(sessionId, { seq, eventCount: 1, place: CONTENT }) === "fragment_without_start"
  );
}

function openRun(all: Sequences, sessionId: string): void {
  all.observe(sessionId, { seq: 1n, eventCount: 1, place: RUN_STARTED });
}

describe("a session", () => {
  test("is known from its first event", () => {
    const all = sequences();
    expect(all.observe("a", { seq: 1n, eventCount: 1, place: CONTENT })).toBe("outside_run");
    expect(all.observe("a", { seq: 2n, eventCount: 1, place: RUN_STARTED })).toBeUndefined();
    expect(all.observe("a", { seq: 3n, eventCount: 1, place: CONTENT })).toBe(
      "fragment_without_start",
    );
  });

  test("moves on by as many numbers as a merged row has events", () => {
    const all = new Sequences();
    all.observe("a", { seq: 1n, eventCount: 1, place: RUN_STARTED });
    all.observe("a", { seq: 2n, eventCount: 1, place: START });
    expect(all.observe("a", { seq: 3n, eventCount: 5, place: CONTENT })).toBeUndefined();
    expect(all.observe("a", { seq: 8n, eventCount: 1, place: START })).toBe("start_twice");
  });

  test("is known after a run begins when it was first seen midway", () => {
    const all = sequences();
    expect(all.observe("a", { seq: 41n, eventCount: 1, place: CONTENT })).toBeUndefined();
    expect(all.observe("a", { seq: 42n, eventCount: 1, place: RUN_STARTED })).toBeUndefined();
    expect(all.observe("a", { seq: 43n, eventCount: 1, place: CONTENT })).toBe(
      "fragment_without_start",
    );
  });

  test.each([
    ["left out", 4n],
    ["twice", 2n],
    ["out of order", 1n],
  ])("becomes unknown when a number is %s, as another replica may have seen more", (_, seq) => {
    const all = sequences();
    openRun(all, "a");
    all.observe("a", { seq: 2n, eventCount: 1, place: START });
    expect(all.observe("a", { seq, eventCount: 1, place: START })).toBeUndefined();
    expect(all.observe("a", { seq: seq + 1n, eventCount: 1, place: CONTENT })).toBeUndefined();
    expect(all.observe("a", { seq: seq + 2n, eventCount: 1, place: RUN_STARTED })).toBeUndefined();
    expect(isKnown(all, "a", seq + 3n)).toBe(true);
  });

  test("counts a row without a place as a number only", () => {
    const all = sequences();
    openRun(all, "a");
    expect(all.observe("a", { seq: 2n, eventCount: 1, place: undefined })).toBeUndefined();
    expect(isKnown(all, "a", 3n)).toBe(true);
  });

  test("is independent of other sessions", () => {
    const all = sequences();
    openRun(all, "a");
    openRun(all, "b");
    all.observe("a", { seq: 2n, eventCount: 1, place: START });
    expect(isKnown(all, "b", 2n)).toBe(true);
    expect(all.observe("a", { seq: 3n, eventCount: 1, place: CONTENT })).toBeUndefined();
  });
});

describe("limits", () => {
  test("keep the sessions that were used last", () => {
    const all = sequences({ sessionsMax: 4 });
    const seqs = new Map<string, bigint>();
    const hear = (sessionId: string): boolean => {
      const seq = (seqs.get(sessionId) ?? 1n) + 1n;
      seqs.set(sessionId, seq);
      return isKnown(all, sessionId, seq);
    };
    openRun(all, "busy");
    for (const sessionId of ["b", "c", "d", "e", "f"]) {
      openRun(all, sessionId);
      expect([sessionId, hear("busy")]).toEqual([sessionId, true]);
    }
    expect(hear("f")).toBe(true);
    expect(hear("b")).toBe(false);
  });

  test("keep at least half of the allowed sessions, and never more than all", () => {
    const all = sequences({ sessionsMax: 100 });
    for (let session = 0; session < 1_000; session += 1) openRun(all, `${session}`);
    const known = Array.from({ length: 1_000 }, (_, index) => isKnown(all, `${999 - index}`, 2n));
    expect(known.slice(0, 50)).not.toContain(false);
    expect(known.filter(Boolean).length).toBeLessThanOrEqual(100);
  });

  test("bound the open ids over all sessions", () => {
    const all = sequences({ openIdsMax: 20 });
    for (const session of ["a", "b", "c", "d"]) {
      openRun(all, session);
      for (let id = 0n; id < 9n; id += 1n)
        all.observe(session, {
          seq: 2n + id,
          eventCount: 1,
          place: place("TEXT_MESSAGE_START", `${id}`),
        });
    }
    expect(isKnown(all, "d", 11n)).toBe(true);
    expect(isKnown(all, "c", 11n)).toBe(true);
    expect(isKnown(all, "a", 11n)).toBe(false);
  });

  test("count the open ids of a session again when it is used again", () => {
    const all = sequences({ openIdsMax: 20 });
    const open = (session: string, { ids, from }: { ids: bigint; from: bigint }): void => {
      for (let id = from; id < from + ids; id += 1n)
        all.observe(session, {
          seq: id,
          eventCount: 1,
          place: place("TEXT_MESSAGE_START", `${id}`),
        });
    };
    openRun(all, "a");
    openRun(all, "b");
    openRun(all, "c");
    open("a", { ids: 9n, from: 2n });
    open("b", { ids: 2n, from: 2n }); // More than ten ids: all three sessions become older.
    open("a", { ids: 1n, from: 11n });
    open("c", { ids: 1n, from: 2n }); // More than ten again: b is forgotten.
    expect(isKnown(all, "b", 4n)).toBe(false);
    expect(isKnown(all, "a", 12n)).toBe(true);
  });

  test("do not count the open ids of a session that became unknown", () => {
    const all = sequences({ openIdsMax: 20 });
    openRun(all, "quiet");
    for (let time = 1n; time < 60n; time += 1n) {
      all.observe("busy", { seq: time * 100n, eventCount: 1, place: RUN_STARTED });
      all.observe("busy", { seq: time * 100n + 1n, eventCount: 1, place: START });
    }
    expect(isKnown(all, "quiet", 2n)).toBe(true);
  });

  test("do not count ended constructs", () => {
    const all = sequences({ openIdsMax: 20 });
    openRun(all, "quiet");
    openRun(all, "busy");
    for (let seq = 2n; seq < 200n; seq += 2n) {
      all.observe("busy", { seq, eventCount: 1, place: START });
      all.observe("busy", { seq: seq + 1n, eventCount: 1, place: place("TEXT_MESSAGE_END") });
    }
    expect(isKnown(all, "quiet", 2n)).toBe(true);
  });

  test("leave room for others beside one session with all its ids open", () => {
    expect(SEQUENCES_LIMITS.openIdsMax).toBeGreaterThanOrEqual(4 * OPEN_IDS_MAX);
    expect(SEQUENCES_LIMITS.sessionsMax).toBeGreaterThanOrEqual(2);
  });
});

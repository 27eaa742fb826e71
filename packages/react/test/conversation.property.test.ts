/**
 * The conversation of the inspector is the transcript, after every event of any stream, and in any
 * order in which a person looks at the events.
 *
 * Method: events and rows of the messages' stream are drawn, and fragments are merged into rows. The
 * expected messages are those of the service's own fold, made again for every number from the events
 * as they were before compression.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import type { LoggedEvent } from "@session-ledger/agui/canonical/event";
import { USER_ROW_TYPE, messagesOfRow } from "@session-ledger/agui/canonical/user-messages";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import type { Item } from "../src/model/items.ts";
import { History } from "../src/model/history.ts";
import type { Row, ConversationMessage } from "../src/model/source.ts";
import { Moment, whereIn } from "../src/model/scrub.ts";
import { MIXED, streamOf } from "../../../test/support/agui-colliding.ts";
import { anyEvents, legalEvents, logged, stored } from "../../../test/support/agui-drawn.ts";
import { mergeFragments } from "../../../test/support/merging.ts";
import { properties } from "../../../test/support/random.ts";
import { ownStreams, recordedStreams } from "../../../test/support/streams.ts";

interface Shown {
  readonly messages: readonly JsonObject[];
  readonly state: unknown;
  readonly interrupts: readonly JsonObject[];
  /** The rows of people up to this number wait no longer. */
  readonly takenSeq: number;
}

interface Session {
  readonly events: readonly LoggedEvent[];
  /** By the number of the event before them. */
  readonly said: ReadonlyMap<number, readonly ConversationMessage[]>;
}

function rowsOf({ events, said }: Session): readonly Row[] {
  const rows: Row[] = [];
  let seq = 1;
  const take = (part: readonly LoggedEvent[]): void => {
    const merged = mergeFragments(part.map(({ eventType, payload }) => ({ eventType, payload })));
    for (const { eventType: type, payload, eventCount: count, fragments } of merged) {
      const isConformant = events[seq - 1]?.conformant ?? true;
      const index = fragments === undefined ? undefined : encodeFragments(fragments);
      const times = { atMs: seq, endMs: seq, storedMs: seq, recordedMs: seq };
      const [bytes, runId, lastSeq] = [payload.length, "", seq + count - 1];
      rows.push({
        seq,
        lastSeq,
        type,
        runId,
        ...times,
        count,
        bytes,
        payload,
        fragments: index,
        isConformant,
      });
      seq += count;
    }
  };
  // A message between two events ends the row of the first one.
  let from = 0;
  for (const after of [...said.keys(), events.length].toSorted((a, b) => a - b)) {
    take(events.slice(from, after));
    from = after;
  }
  return rows;
}

/** What the service's fold has after each event, from 0 on. */
function expected({ events, said }: Session): readonly Shown[] {
  const canonical = new Canonical("session");
  const transcript = new Transcript();
  const shown = (): Shown =>
    structuredClone({
      messages: transcript.messages(),
      state: transcript.state,
      interrupts: transcript.interrupts(),
      takenSeq: Math.max(answeredSeq, Number(canonical.turns.takenSeq)),
    });
  let answeredSeq = 0;
  const hear = (seq: number): void => {
    for (const { seq: own, id, type, payload } of said.get(seq) ?? []) {
      if (type !== USER_ROW_TYPE && canonical.hasSpeech) continue;
      const row = { id, seq: BigInt(own), eventType: type, payload, sender: undefined };
      const spoken = messagesOfRow({ ...row, createdAtMicros: 5_000n, sentAtMicros: undefined });
      transcript.say(canonical.onMessages(spoken), spoken.isFromUser ? "person" : "agent");
      if (!spoken.isFromUser) answeredSeq = own;
    }
  };
  hear(0);
  const all = [shown()];
  for (const [at, event] of events.entries()) {
    for (const { value } of canonical.next(event, transcript)) transcript.apply(value);
    hear(at + 1);
    all.push(shown());
  }
  return all;
}

class Inspected {
  readonly #history = new History("session", 2);
  readonly #rows: readonly Row[];

  constructor(session: Session) {
    this.#rows = rowsOf(session);
    for (const one of session.said.get(0) ?? []) this.#history.onMessage(one);
    for (const row of this.#rows) {
      this.#history.take(row);
      for (const one of session.said.get(row.lastSeq) ?? []) this.#history.onMessage(one);
    }
  }

  at(seq: number): Moment {
    const row = this.#rows.find(({ seq: first, lastSeq }) => first <= seq && seq <= lastSeq);
    return new Moment(this.#history, whereIn(row, seq), { isExact: true });
  }
}

function shownBy({ messages, state, interrupts }: Moment): Omit<Shown, "takenSeq"> {
  return { messages, state, interrupts };
}

function without(shown: Shown = NOTHING): Omit<Shown, "takenSeq"> {
  const { messages, state, interrupts } = shown;
  return { messages, state, interrupts };
}

const NOTHING: Shown = { messages: [], state: undefined, interrupts: [], takenSeq: 0 };

const text = fc.constantFrom("hi", "one", "");
const someId = fc.constantFrom("a", "b", "c", "row-0");
/** Some messages begin a branch. */
const metadata = fc.oneof(
  fc.constant({}),
  someId.map((regenerates) => ({ regenerates })),
  someId.map((edits) => ({ edits })),
);
const saying = fc.record({
  type: fc.constantFrom("user", "user", "assistant", "system", "tool_use", "lifecycle"),
  payload: fc.oneof(
    text,
    fc
      .record({ id: fc.constantFrom("a", "b", "c"), content: text, metadata })
      .map((one) => JSON.stringify({ messages: [{ role: "user", ...one }] })),
  ),
});

function sessions(events: fc.Arbitrary<readonly JsonObject[]>): fc.Arbitrary<Session> {
  const places = fc.array(fc.tuple(fc.nat({ max: 40 }), saying), { maxLength: 4 });
  // A stream may stop anywhere, also inside a text.
  const length = fc.oneof(fc.constant(Number.POSITIVE_INFINITY), fc.nat({ max: 20 }));
  return fc.tuple(events, places, length).map(([all, talk, end]) => {
    const drawn = all.slice(0, end);
    const said = new Map<number, ConversationMessage[]>();
    const inOrder = talk.toSorted(([one], [other]) => one - other);
    for (const [index, [place, { type, payload }]] of inOrder.entries()) {
      const after = Math.min(place, drawn.length);
      const row = {
        seq: index + 1,
        id: `row-${index}`,
        type,
        payload,
        atMs: 5,
        storedMs: 5,
        recordedMs: 5,
      };
      const list = said.get(after) ?? [];
      said.set(after, [...list, { ...row, sentMs: undefined, sender: undefined }]);
    }
    return { events: logged(drawn), said };
  });
}

function recorded(): readonly (readonly [string, Session])[] {
  return [...ownStreams(), ...(recordedStreams() ?? [])].map(({ agent, scenario, events }) => [
    `${agent} ${scenario}`,
    { events: stored(events), said: new Map() },
  ]);
}

/** A long stream is compared at some numbers, the first and the last among them. */
function numbersOf({ events }: Session): readonly number[] {
  const step = Math.max(1, Math.floor(events.length / 200));
  const numbers = Array.from({ length: events.length + 1 }, (_, at) => at);
  return numbers.filter((at) => at % step === 0 || at === events.length);
}

describe("a moment", () => {
  test.each([
    ["legal", legalEvents],
    ["any", anyEvents],
    ["colliding", streamOf(MIXED, "1.0.0")],
  ] as const)("equals the service's fold after every event of %s streams", (_, events) => {
    fc.assert(
      fc.property(sessions(events), (session) => {
        const inspected = new Inspected(session);
        for (const [seq, shown] of expected(session).entries())
          expect({ seq, ...shownBy(inspected.at(seq)) }).toEqual({ seq, ...without(shown) });
      }),
      properties({ runs: 300 }),
    );
  });

  test.each(recorded())("equals the service's fold after the events of %s", (_, session) => {
    const inspected = new Inspected(session);
    const all = expected(session);
    for (const seq of numbersOf(session))
      expect({ seq, ...shownBy(inspected.at(seq)) }).toEqual({ seq, ...without(all[seq]) });
  });

  test("is the same in whatever order a person looks at the numbers", () => {
    fc.assert(
      fc.property(sessions(legalEvents), fc.infiniteStream(fc.nat()), (session, drawn) => {
        const inspected = new Inspected(session);
        const count = session.events.length + 1;
        const first = Array.from({ length: count }, (_, seq) => contentOf(inspected.at(seq)));
        for (const seq of [...drawn.take(20)].map((one) => one % count))
          expect(contentOf(inspected.at(seq))).toEqual(first[seq]);
      }),
      properties({ runs: 100 }),
    );
  });

  test("has an item for each text, thought, activity and call of its messages, in their order", () => {
    fc.assert(
      fc.property(sessions(legalEvents), (session) => {
        const inspected = new Inspected(session);
        for (let seq = 0; seq <= session.events.length; seq += 1) {
          const { items, messages } = inspected.at(seq);
          expect(items.flatMap(partsOfItem)).toEqual(partsOf(messages));
        }
      }),
      properties({ runs: 200 }),
    );
  });

  test("shows user messages as pending until a run takes them", () => {
    fc.assert(
      fc.property(sessions(legalEvents), (session) => {
        const inspected = new Inspected(session);
        for (const [seq, { takenSeq }] of expected(session).entries()) {
          const said = inspected
            .at(seq)
            .items.flatMap((item) =>
              item.kind === "message" && item.by === "person" ? [item] : [],
            );
          const pending = said
            .filter(({ isPending }) => isPending)
            .map(({ messageSeq }) => messageSeq);
          const waiting = said
            .map(({ messageSeq = 0 }) => messageSeq)
            .filter((own) => own > takenSeq);
          expect({ seq, pending }).toEqual({ seq, pending: waiting });
        }
      }),
      properties({ runs: 200 }),
    );
  });

  const told = (...list: readonly JsonObject[]): Inspected =>
    new Inspected({ events: logged(list), said: new Map() });
  const run = { type: "RUN_STARTED", threadId: "t", runId: "r" };
  const start = (messageId: string) => ({ type: "TEXT_MESSAGE_START", messageId });

  test("shows of the last row the part up to each number", () => {
    const delta = (piece: string) => ({
      ...start("m"),
      type: "TEXT_MESSAGE_CONTENT",
      delta: piece,
    });
    const inspected = told(run, start("m"), delta("one "), delta("two "), delta("three"));
    const contents = [5, 3, 4, 5, 3].map((seq) => inspected.at(seq).messages[0]?.["content"]);
    expect(contents).toEqual(["one two three", "one ", "one two ", "one two three", "one "]);
    const shown = [3, 4, 5, 3].map((seq) => inspected.at(seq).items.flatMap(partsOfItem));
    expect(shown).toEqual(
      ["one ", "one two ", "one two three", "one "].map((shownText) => [
        ["assistant", "m", shownText],
      ]),
    );
  });

  test("moves a result to the card of its call when the call comes later", () => {
    const result = { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "done" };
    const call = { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look" };
    const inspected = told(run, result, start("a"), start("b"), start("c2"), start("d"), call);
    const kinds = [2, 7, 2, 7].map((seq) => {
      const { items } = inspected.at(seq);
      return items.some((item) => item.kind === "message" && item.id === "r");
    });
    expect(kinds).toEqual([true, false, true, false]);
  });

  test("keeps the object of an item that has not changed", () => {
    fc.assert(
      fc.property(sessions(legalEvents), (session) => {
        const inspected = new Inspected(session);
        let before = new Map<string, Item>();
        for (let seq = 0; seq <= session.events.length; seq += 1) {
          const now = new Map(inspected.at(seq).items.map((item) => [item.key, item]));
          expect(now.size).toBe(inspected.at(seq).items.length);
          const copied = [...now].filter(([key, item]) => {
            const known = before.get(key);
            return known !== item && JSON.stringify(known) === JSON.stringify(item);
          });
          expect(copied).toEqual([]);
          before = now;
        }
      }),
      properties({ runs: 100 }),
    );
  });
});

function contentOf({ items, messages, state, interrupts, run }: Moment): unknown {
  return structuredClone({ items, messages, state, interrupts, run });
}

function partsOfItem(item: Item): readonly unknown[] {
  switch (item.kind) {
    case "message":
      return [[item.role, item.id, item.content]];
    case "thinking":
      return [["reasoning", item.id, item.text]];
    case "activity":
      return [["activity", item.id, item.content]];
    case "tool": {
      const call = ["call", item.id, item.name, item.args];
      return item.result === undefined ? [call] : [call, ["result", item.result["id"]]];
    }
    case "run":
    case "state":
      return [];
  }
}

function partsOf(messages: readonly JsonObject[]): readonly unknown[] {
  const results = new Map<unknown, JsonObject>();
  for (const message of messages)
    if (message["role"] === "tool") results.set(message["toolCallId"], message);
  const called = new Set(messages.flatMap(callsOf).map(({ id }) => id));
  return messages.flatMap((message) => {
    const { id, role, content, toolCallId } = message;
    const isResult = role === "tool" && results.get(toolCallId) === message;
    if (isResult && called.has(toolCallId)) return [];
    const calls = callsOf(message);
    const isEmpty = content === undefined || content === "";
    const own = isEmpty && calls.length > 0 ? [] : [[role, id, content]];
    const cards = calls.flatMap((call) => {
      const { name, arguments: args } = isObject(call["function"]) ? call["function"] : {};
      const card = ["call", call["id"], name, args];
      const result = results.get(call["id"]);
      return result === undefined ? [card] : [card, ["result", result["id"]]];
    });
    return [...own, ...cards];
  });
}

function callsOf({ toolCalls }: JsonObject): readonly JsonObject[] {
  return Array.isArray(toolCalls) ? toolCalls.filter(isObject) : [];
}

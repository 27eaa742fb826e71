/**
 * The records in a file of the spool, after any last write. Method: a file with records of two
 * lanes is cut off after each of its bytes. The records that are read are a prefix of the written
 * ones.
 */
import { describe, expect, test } from "vitest";
import {
  eventRecord,
  type Lane,
  messageRecord,
  newLane,
  sendableMessage,
} from "../../src/runner/spool/spool.ts";
import {
  eventLine,
  headerLine,
  laneLine,
  messageLine,
  settledLine,
  SpoolReader,
} from "../../src/runner/spool/lines.ts";

const EVENTS = [
  '{"type":"RAW","event":"ä\\n😀"}',
  '{"type":"CUSTOM"}',
  "not even JSON\n\u2028",
].map((payload, at) => eventRecord(payload, 1_700_000_000_000_000n + BigInt(at), at === 1));
const MESSAGES = [
  messageRecord({
    eventType: "user",
    payload: "line\nline",
    key: "k1",
    sentAtMicros: 5n,
    sender: { id: "u1", isBot: false },
  }),
  messageRecord({
    eventType: "assistant",
    payload: "",
    key: "k2",
    sentAtMicros: undefined,
    sender: undefined,
    after: 3n,
  }),
];

function lane(generation: number): Lane {
  return newLane(`start-${generation}`, { generation, epoch: 7n, base: 2n });
}

function fileOf(lanes: readonly Lane[]): string {
  let text = headerLine("s1");
  for (const one of lanes) {
    text += laneLine(one);
    EVENTS.forEach((record, at) => (text += eventLine(one, BigInt(at + 1), record)));
    MESSAGES.forEach((record, at) => (text += messageLine(one, BigInt(at + 1), record)));
  }
  return text;
}

function read(text: string, sessionId = "s1"): readonly Lane[] {
  const reader = new SpoolReader(sessionId);
  for (const line of text.split("\n")) if (line !== "") reader.read(line);
  return reader.lanes;
}

function recordsOf({ events, messages }: Lane): readonly (readonly unknown[])[] {
  const list = (queue: typeof events | typeof messages): readonly unknown[] =>
    Array.from({ length: queue.length }, (_, at) => queue.at(queue.frontNumber + BigInt(at)));
  return [list(events), list(messages)];
}

describe("the text of a spool's file", () => {
  test("gives back the written records of each lane", () => {
    const [first, second] = read(fileOf([lane(1), lane(2)]));
    for (const found of [first, second]) {
      expect(found && recordsOf(found)).toEqual([EVENTS, MESSAGES]);
      expect(found).toMatchObject({ epoch: 7n, base: 2n, isLeft: true });
    }
    expect(second).toMatchObject({ generation: 2, start: "start-2" });
  });

  test("has the proposed epoch, which earlier versions did not write", () => {
    const proposed = newLane("start-1", {
      generation: 1,
      proposed: 9n,
      cut: { first: 1n, last: 2n },
    });
    expect(read(headerLine("s1") + laneLine(proposed))).toMatchObject([
      { epoch: undefined, base: undefined, proposed: 9n, cut: { first: 1n, last: 2n } },
    ]);
    const before = '["lane",1,"start-1","7","0",null,null]\n';
    expect(read(headerLine("s1") + before)).toMatchObject([
      { epoch: 7n, base: 0n, proposed: undefined, cut: undefined },
    ]);
  });

  test("gives the records before a cut at any byte", () => {
    const whole = fileOf([lane(1), lane(2)]);
    const header = headerLine("s1").length;
    for (let end = header; end <= whole.length; end += 1) {
      for (const found of read(whole.slice(0, end))) {
        const [events, messages] = recordsOf(found);
        expect(events).toEqual(EVENTS.slice(0, events?.length));
        expect(messages).toEqual(MESSAGES.slice(0, messages?.length));
      }
    }
  });

  test("leaves out settled records, and records before a gap", () => {
    const one = lane(1);
    const [first, second, third] = EVENTS;
    if (first === undefined || second === undefined || third === undefined) throw new Error();
    const settled = newLane("start-1", { generation: 1, refusals: 3n });
    settled.events.push(first);
    settled.events.takeUpTo(1n);
    const text = fileOf([one]) + settledLine(settled) + eventLine(one, 9n, third);
    const [found] = read(text);
    expect(found && recordsOf(found)).toEqual([[third], MESSAGES]);
    expect(found?.events.frontNumber).toBe(9n);
    expect(found?.refusals).toBe(3n);
  });

  test("gives a repeated record once", () => {
    const [first] = EVENTS;
    if (first === undefined) throw new Error();
    const [found] = read(fileOf([lane(1)]) + eventLine(lane(1), 1n, first));
    expect(found && recordsOf(found)).toEqual([EVENTS, MESSAGES]);
  });

  test("lets a message go whose event a dying process did not write", () => {
    const [, waiting] = MESSAGES;
    if (waiting === undefined) throw new Error();
    const [event] = EVENTS;
    if (event === undefined) throw new Error();
    const [found] = read(
      headerLine("s1") +
        laneLine(lane(1)) +
        messageLine(lane(1), 2n, waiting) +
        eventLine(lane(1), 1n, event),
    );
    if (found === undefined) throw new Error();
    expect(sendableMessage(found)).toBeUndefined();
    found.events.takeUpTo(1n);
    expect(sendableMessage(found)).toEqual(waiting);
  });

  test("is refused for another session, or when it is not a spool", () => {
    expect(() => read(fileOf([]), "s2")).toThrow("another session");
    expect(() => read("hello\n")).toThrow("not a spool");
  });
});

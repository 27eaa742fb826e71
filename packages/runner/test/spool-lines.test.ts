/**
 * The records in a file of the spool, after any last write. Method: a file with records of two
 * lanes is cut off after each of its bytes. The records that are read are a prefix of the written
 * ones.
 */
import { describe, expect, test } from "vitest";
import {
  eventRecord,
  type Producer,
  messageRecord,
  newProducer,
  sendableMessage,
} from "@session-ledger/runner/internal/spool/spool";
import {
  type Damage,
  eventLine,
  headerLine,
  producerLine,
  messageLine,
  settledLine,
  SpoolReader,
} from "@session-ledger/runner/internal/spool/lines";

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

function lane(generation: number): Producer {
  return newProducer({ generation, epoch: 7n, base: 2n });
}

const OLD_HEADER = '{"sessionLedgerSpool":1,"sessionId":"s1"}\n';

function fileOf(lanes: readonly Producer[]): string {
  let text = headerLine("s1");
  for (const one of lanes) {
    text += producerLine(one);
    EVENTS.forEach((record, at) => (text += eventLine(one, BigInt(at + 1), record)));
    MESSAGES.forEach((record, at) => (text += messageLine(one, BigInt(at + 1), record)));
  }
  return text;
}

function read(text: string, sessionId = "s1"): readonly Producer[] {
  const reader = new SpoolReader(sessionId);
  for (const line of text.split("\n")) if (line !== "") reader.read(line);
  return reader.end().producers;
}

function damageOf(text: string): Damage {
  const reader = new SpoolReader("s1");
  for (const line of text.split("\n").slice(0, -1)) reader.read(line);
  return reader.end().damage;
}

function recordsOf({ events, messages }: Producer): readonly (readonly unknown[])[] {
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
    expect(second).toMatchObject({ generation: 2 });
  });

  test("has the proposed epoch, which earlier versions did not write", () => {
    const proposed = newProducer({
      generation: 1,
      proposed: 9n,
    });
    expect(read(headerLine("s1") + producerLine(proposed))).toMatchObject([
      { epoch: undefined, base: undefined, proposed: 9n },
    ]);
    const before = '["lane",1,"start-1","7","0",null,null]\n';
    expect(read(OLD_HEADER + before)).toMatchObject([{ epoch: 7n, base: 0n, proposed: undefined }]);
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

  test("with a damaged line gives all other records, and marks the number of a lost event", () => {
    const whole = fileOf([lane(1)]);
    const lines = whole.trimEnd().split("\n");
    const [lost, none] = [{ isMark: true, payload: expect.stringContaining("dropped") }, undefined];
    const places = [none, none, ...EVENTS, ...MESSAGES];
    for (let at = 1; at < lines.length; at += 1) {
      const line = lines[at] ?? "";
      for (const byte of [0, 7, 8, 9, Math.floor(line.length / 2), line.length - 1]) {
        const damaged = `${line.slice(0, byte)}#${line.slice(byte + 1)}`;
        const text = lines
          .with(at, damaged)
          .concat(producerLine(lane(1)).trimEnd(), "")
          .join("\n");
        const record = places[at];
        const [found] = read(text);
        const isLast = record === EVENTS.at(-1);
        const events = EVENTS.map((event) => (event === record ? lost : event));
        expect(found && recordsOf(found)).toMatchObject([
          isLast ? events.slice(0, -1) : events,
          MESSAGES.filter((message) => message !== record),
        ]);
        expect(damageOf(text)).toMatchObject({
          lines: 1,
          firstLine: at + 1,
          events: events.includes(lost) && !isLast ? 1 : 0,
          messages: record === MESSAGES[0] ? 1 : 0,
        });
      }
    }
    expect(damageOf(whole)).toEqual({ lines: 0, firstLine: 0, events: 0, messages: 0 });
  });

  test("without the line of its lane reports the number of lost records", () => {
    const text = fileOf([lane(1)]).replace(/^.*"lane".*$/m, "#");
    expect(read(text)).toEqual([]);
    expect(damageOf(text)).toEqual({ lines: 1, firstLine: 2, events: 3, messages: 2 });
  });

  test("keeps settled records apart from lost ones", () => {
    const one = lane(1);
    let text = headerLine("s1") + producerLine(one);
    const [event] = EVENTS;
    if (event === undefined) throw new Error();
    for (let number = 1n; number <= 40n; number += 1n) {
      one.events.push(event);
      // The first ten are settled when the others are written.
      if (number === 20n) one.events.takeUpTo(10n);
      text += number === 30n ? "damaged\n" : eventLine(one, number, event);
    }
    const [found] = read(text);
    expect(found?.events).toMatchObject({ frontNumber: 11n, lastNumber: 40n });
    expect(found?.events.at(30n)).toMatchObject({ isMark: true });
  });

  // Bug: a damaged line dropped all records before it, without a word.
  test("of version 1 is read as before, and a damaged line drops nothing but its record", () => {
    const old = (number: number) => `["event",1,"${number}","1700000000000000",0,"{}"]\n`;
    const numbers = (from: number, to: number) =>
      Array.from({ length: to - from + 1 }, (_, at) => old(from + at)).join("");
    const begin = `${OLD_HEADER}["lane",1,"start-1","7","0",null,null,null]\n`;
    const damaged = `${begin}${numbers(1, 20)}${old(21).replace("event", "\0\0\0")}${numbers(22, 40)}`;
    const [found] = read(damaged);
    expect(found?.events).toMatchObject({ frontNumber: 1n, lastNumber: 40n, length: 40 });
    expect(found?.events.at(21n)).toMatchObject({ isMark: true });
    expect(damageOf(damaged)).toEqual({ lines: 1, firstLine: 23, events: 1, messages: 0 });
    // A larger gap than the damage explains is one of settled records.
    const settled = `${begin}${numbers(1, 20)}#\n${numbers(30, 40)}`;
    expect(read(settled)[0]?.events).toMatchObject({ frontNumber: 30n, lastNumber: 40n });
    const whole = `${begin}${numbers(1, 20)}${numbers(30, 40)}`;
    expect(read(whole)[0]?.events).toMatchObject({ frontNumber: 30n, lastNumber: 40n });
    expect(damageOf(whole)).toMatchObject({ lines: 0, events: 0 });
  });

  test("leaves out settled records, and records before a gap", () => {
    const one = lane(1);
    const [first, second, third] = EVENTS;
    if (first === undefined || second === undefined || third === undefined) throw new Error();
    const settled = newProducer({ generation: 1, refusals: 3n });
    settled.events.push(first);
    settled.events.takeUpTo(1n);
    const later = lane(1);
    later.events.skipTo(9n);
    const text = fileOf([one]) + settledLine(settled) + eventLine(later, 9n, third);
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
        producerLine(lane(1)) +
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

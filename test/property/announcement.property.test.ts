/** Any number of sessions with any names is announced completely. */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import {
  ANNOUNCEMENT_BYTES_MAX,
  decodeAnnouncement,
  encodeAnnouncement,
} from "../../src/live/hints/notifier.ts";
import type { SessionHead } from "../../src/store/rows.ts";
import { properties } from "../support/random.ts";

const RUNS = properties({ runs: 500 });

const seq = fc.bigInt({ min: 0n, max: 2n ** 63n - 1n });
const head = fc.record({ messageSeq: seq, eventSeq: seq, deleted: fc.boolean() });
const contractId = fc.stringMatching(/^[A-Za-z0-9._:-]{1,128}$/);
const sessionsOf = (sessionId: fc.Arbitrary<string>, size: "small" | "max") =>
  fc
    .array(fc.tuple(sessionId, head), { maxLength: 150, size })
    .map((entries) => new Map<string, SessionHead>(entries));

test("an announcement is heard as it was sent, unless it is too long", () => {
  const property = fc.property(fc.uuid(), sessionsOf(contractId, "max"), (from, sessions) => {
    const text = encodeAnnouncement({ from, sessions });
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(ANNOUNCEMENT_BYTES_MAX);
    const heard = decodeAnnouncement(text);
    expect(heard.from).toBe(from);
    const entries = [...sessions].map(
      ([id, { messageSeq, eventSeq, deleted }]) =>
        ` ${id}/${messageSeq}/${eventSeq}${deleted ? "/d" : ""}`,
    );
    const bytes = `1 ${from}${entries.join("")}`.length;
    expect(heard.sessions).toEqual(bytes > ANNOUNCEMENT_BYTES_MAX ? "any" : sessions);
  });
  fc.assert(property, RUNS);
});

test("no session id makes an announcement too long or changes its meaning", () => {
  const anyId = fc.oneof(contractId, fc.string({ unit: "binary" }));
  const property = fc.property(sessionsOf(anyId, "small"), (sessions) => {
    const text = encodeAnnouncement({ from: "me", sessions });
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(ANNOUNCEMENT_BYTES_MAX);
    const heard = decodeAnnouncement(text);
    expect(["any", sessions]).toContainEqual(heard.sessions);
  });
  fc.assert(property, RUNS);
});

test("a listener handles any text", () => {
  const torn = fc
    .tuple(sessionsOf(contractId, "small"), fc.nat(), fc.string())
    .map(([sessions, at, other]) => {
      const text = encodeAnnouncement({ from: "me", sessions });
      return text.slice(0, at % (text.length + 1)) + other;
    });
  const text = fc.oneof(fc.string({ unit: "binary" }), torn);
  fc.assert(
    fc.property(text, (any) => {
      const { sessions } = decodeAnnouncement(any);
      const heads = sessions === "any" ? [] : [...sessions.values()];
      const isOdd = ({ messageSeq, eventSeq }: SessionHead) => messageSeq < 0n || eventSeq < 0n;
      expect(heads.filter(isOdd)).toEqual([]);
    }),
    RUNS,
  );
});

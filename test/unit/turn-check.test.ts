/** The checker of turns reports nothing for a session that keeps the promises, and each broken one. */
import { expect, test } from "vitest";
import type { Row } from "../support/history.ts";
import { type TurnedSession, turnProblemsOf } from "../support/turn-check.ts";

/** `u` a message of a person, `a` another; `2-4 r1` a turn, `! r1` a lost run, `. r1` an end, `* r1` output. */
function session(
  messages: string,
  events: readonly string[],
  rest: Partial<TurnedSession> = {},
): TurnedSession {
  let open = "";
  const rowOf = (seq: number, eventType: string, event: object): Row => ({
    stream: "events",
    sessionId: "s",
    seq: BigInt(seq),
    eventCount: 1,
    id: `e${seq}`,
    eventType,
    payload: JSON.stringify(event),
    createdAtMicros: 1n,
    runId: open,
  });
  const types: Readonly<Record<string, string>> = {
    "!": "RUN_ERROR",
    ".": "RUN_FINISHED",
    "*": "CUSTOM",
  };
  const rows = events.map((line, at): Row => {
    const [what = "", runId = ""] = line.split(" ");
    const type = types[what];
    if (type !== undefined) return rowOf(at + 1, type, { runId, value: runId });
    const [first, last] = what.split("-").map(Number);
    open = runId;
    return rowOf(at + 1, "RUN_STARTED", {
      runId,
      metadata: { session: { consumed: { first, last } } },
    });
  });
  return {
    sessionId: "s",
    messages: Array.from(messages, (type, at) =>
      rowOf(at + 1, type === "u" ? "user" : "assistant", {}),
    ),
    events: rows,
    claims: [],
    turnSeq: 4n,
    pending: 0n,
    ...rest,
  };
}

const GOOD = ["1-3 r1", "* r1", ". r1", "4-4 r2", "! r2", "4-4 r3"];

test("a session whose messages each had their turn, one of them again, has no problem", () => {
  const claims = [
    { runId: "r1", taken: [1n, 3n] },
    { runId: "r2", taken: undefined },
    { runId: "r9", taken: undefined },
  ];
  expect(turnProblemsOf(session("uauu", GOOD, { claims }))).toEqual([]);
  expect(turnProblemsOf(session("uauuu", GOOD, { pending: 1n }))).toEqual([]);
});

test.each([
  [
    "a second turn of a message",
    session("uauu", ["1-3 r1", ". r1", "3-4 r2"]),
    "had its turn before",
  ],
  ["a message that is left out", session("uauu", ["3-4 r1"]), "is not the next"],
  ["a run in an open run", session("uauu", ["1-3 r1", "4-4 r2"]), "begins while r1 is open"],
  ["two starts of a run", session("uauu", ["1-3 r1", ". r1", "4-4 r1"]), "begins twice"],
  [
    "a turn of a lost run with output",
    session("uauu", ["1-4 r1", "* r1", "! r1", "1-4 r2"]),
    "had its turn before",
  ],
  [
    "a turn of a lost run, later",
    session("uauu", ["1-4 r1", "! r1", "* ", "1-4 r2"]),
    "had its turn before",
  ],
  ["an event of another run", session("uauu", ["1-4 r1", "* r0"]), "of r0, in r1"],
  ["an end of another run", session("uauu", ["1-4 r1", ". r0"]), "ends r0, not r1"],
  [
    "a turn up to no message",
    session("uauu", ["1-2 r1"], { turnSeq: 2n, pending: 2n }),
    "ends at 2",
  ],
  [
    "a claim that is lost",
    session("uauu", GOOD, { claims: [{ runId: "r8", taken: [1n] }] }),
    "is not there",
  ],
  [
    "other messages in an answer",
    session("uauu", GOOD, { claims: [{ runId: "r1", taken: [1n] }] }),
    "was given 1, not 1,3",
  ],
  ["a watermark elsewhere", session("uauu", GOOD, { turnSeq: 3n }), "stands at message 3"],
  ["a wrong count", session("uauu", GOOD, { pending: 1n }), "counts 1 messages"],
])("%s is a problem", (_, broken, problem) => {
  expect(turnProblemsOf(broken).join("\n")).toContain(problem);
});

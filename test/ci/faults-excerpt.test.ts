/** What is printed below a violation: the place in the database, and the pushes it is about. */
import { expect, test } from "vitest";
import { excerptOf } from "../faults/excerpt.ts";
import { plan } from "../support/history-pushes.ts";
import { History, type Row } from "../support/history.ts";

const ROWS = 9;

async function written() {
  const history = new History();
  const rows: Row[] = [];
  for (let seq = 1n; seq <= ROWS; seq += 1n) {
    const push = history.push(plan(history, { sessionId: "hot-1", kind: "message", keyed: false }));
    const { eventType, payload } = push.sent;
    const base = { stream: "messages", sessionId: "hot-1", seq, eventCount: 1 } as const;
    const row = { ...base, id: `${seq}`, eventType, payload, createdAtMicros: 1n, runId: "" };
    await history.attempt(push, () => Promise.resolve({ row, deduplicated: false }));
    rows.push(row);
  }
  return { history, witness: { rows, counters: new Map() } };
}

test("an excerpt has the rows around the number of a violation, with every attempt", async () => {
  const { history, witness } = await written();
  const lines = excerptOf("watcher of hot-1 messages: row 5 after 3", history, witness);
  const rows = lines.filter((line) => line.startsWith("row"));
  expect(rows.map((line) => /messages (\d+)/.exec(line)?.[1])).toEqual(["3", "4", "5", "6", "7"]);
  expect(lines.filter((line) => line.startsWith("push"))).toHaveLength(5);
});

test("an excerpt has the push of a violation, also if no row of it exists", async () => {
  const { history } = await written();
  const nothing = { rows: [], counters: new Map() };
  const what = "mark-4. (hot-1 messages): acknowledged, and not there";
  expect(excerptOf(what, history, nothing)).toEqual([
    "push  mark-4. (no key) ticks 7 to 8: acknowledged seq 4",
  ]);
});

import { expect, test } from "vitest";
import { type Mark, Marks, runBeside, thinned } from "../src/model/marks.ts";

const TYPES = [
  "RUN_STARTED",
  "TEXT_MESSAGE_START",
  "RUN_ERROR",
  "RUN_STARTED",
  "SUBAGENT_ERROR",
  "RUN_FINISHED",
];

const rows = TYPES.map((type, at) => {
  const seq = at + 1;
  return { seq, lastSeq: seq, atMs: at, endMs: at, type, runId: at < 3 ? "r1" : "r2" };
});

test("the starts, ends and errors of runs are the marks of a session", () => {
  expect(new Marks().of(rows).map(({ seq, kind, runId }) => [seq, kind, runId])).toEqual([
    [1, "start", "r1"],
    [3, "error", "r1"],
    [4, "start", "r2"],
    [5, "error", "r2"],
    [6, "end", "r2"],
  ]);
});

test("the marks of a list that grows, at its end or in the middle, are those of the whole list", () => {
  const marks = new Marks();
  const whole = new Marks().of(rows);

  expect(marks.of(rows.slice(3))).toEqual(whole.slice(2));
  expect(marks.of([...rows.slice(0, 2), ...rows.slice(3)])).toEqual([whole[0], ...whole.slice(2)]);
  expect(marks.of(rows)).toEqual(whole);
  const known = marks.of(rows);
  expect(
    marks.of([...rows, { seq: 7, lastSeq: 7, atMs: 7, endMs: 7, type: "META", runId: "" }]),
  ).toBe(known);
  expect(marks.of([])).toEqual([]);
});

test("a scrubber with little room shows an error rather than the runs next to it", () => {
  const marks: Mark[] = Array.from({ length: 1_000 }, (_, at) => {
    const kind = at === 501 ? "error" : at % 2 === 0 ? "start" : "end";
    return { seq: at + 1, kind, runId: "" };
  });
  const shown = thinned(marks, { head: 1_000, parts: 20 });

  expect(shown.length).toBeLessThanOrEqual(21);
  expect(shown.filter(({ kind }) => kind === "error")).toHaveLength(1);
});

test("the reader steps from run to run, and not beyond the last one", () => {
  const marks = new Marks().of(rows);

  expect(runBeside(marks, { seq: 1, step: 1 })).toBe(4);
  expect(runBeside(marks, { seq: 4, step: 1 })).toBeUndefined();
  expect(runBeside(marks, { seq: 6, step: -1 })).toBe(4);
  expect(runBeside(marks, { seq: 4, step: -1 })).toBe(1);
  expect(runBeside(marks, { seq: 1, step: -1 })).toBeUndefined();
});

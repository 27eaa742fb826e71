import { expect, test } from "vitest";
import { type Mark, marksOf, runBeside, thinned } from "../../web/src/model/marks.ts";

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
  expect(marksOf(rows).map(({ seq, kind, runId }) => [seq, kind, runId])).toEqual([
    [1, "start", "r1"],
    [3, "error", "r1"],
    [4, "start", "r2"],
    [5, "error", "r2"],
    [6, "end", "r2"],
  ]);
});

test("a scrubber with little room shows an error rather than the runs beside it", () => {
  const marks: Mark[] = Array.from({ length: 1_000 }, (_, at) => {
    const kind = at === 501 ? "error" : at % 2 === 0 ? "start" : "end";
    return { seq: at + 1, kind, runId: "" };
  });
  const shown = thinned(marks, { head: 1_000, parts: 20 });

  expect(shown.length).toBeLessThanOrEqual(21);
  expect(shown.filter(({ kind }) => kind === "error")).toHaveLength(1);
});

test("the reader steps from run to run, and not beyond the last one", () => {
  const marks = marksOf(rows);

  expect(runBeside(marks, { seq: 1, step: 1 })).toBe(4);
  expect(runBeside(marks, { seq: 4, step: 1 })).toBeUndefined();
  expect(runBeside(marks, { seq: 6, step: -1 })).toBe(4);
  expect(runBeside(marks, { seq: 4, step: -1 })).toBe(1);
  expect(runBeside(marks, { seq: 1, step: -1 })).toBeUndefined();
});

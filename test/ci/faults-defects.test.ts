import { describe, expect, test } from "vitest";
import { DEFECTS, placeOf } from "../faults/defects-table.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

describe.each(DEFECTS)("the planted defect $name", ({ edits }) => {
  test("finds the code that it changes in the sources", () => {
    for (const edit of edits) expect(placeOf(edit, ROOT)).toContain("/src/");
  });
});

test("an edit whose code is gone fails with its name", () => {
  const edit = { file: "src/live/window.ts", find: "no such line", replace: "", times: 1 };
  expect(() => placeOf(edit, ROOT)).toThrow('holds "no such line"');
});

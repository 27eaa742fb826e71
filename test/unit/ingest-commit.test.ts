/** A batch in which one push is a repetition, and the look-up of its row fails after the commit. */
import { expect, test } from "vitest";
import { commitBatch } from "../../src/ingest/commit.ts";
import { newPush, newRow } from "../support/ledger.ts";

// Bug, found by the faults harness: the failure was taken for the batch's, and when it was one of those
// that are tried again (PostgreSQL had been killed), the push without a key was stored a second time.
test("what was new is answered, and only the repetition goes again", async () => {
  const fresh = newPush("s", { rows: [newRow()] });
  const repeated = newPush("s", { key: "k" });
  const settled = await commitBatch(
    {
      append: () =>
        Promise.resolve([
          { kind: "stored", places: [{ seq: 5n, runId: "" }] },
          { kind: "deduplicated", seq: 4n },
        ]),
      readKept: () => Promise.reject(Object.assign(new Error("down"), { code: "ECONNREFUSED" })),
    },
    [fresh, repeated],
    { wait: false },
  );
  expect(settled.map(({ kind }) => kind)).toEqual(["stored", "busy"]);
});

test.each([
  ["a database that is away is asked again", { code: "ECONNREFUSED" }, { kind: "busy" }],
  [
    "a defect is told, not met again and again",
    {},
    { kind: "refused", error: { reason: "INTERNAL" } },
  ],
])("of the look-up: %s", async (_, failure, expected) => {
  const writer = {
    append: () => Promise.resolve([{ kind: "deduplicated", seq: 4n } as const]),
    readKept: () => Promise.reject(Object.assign(new Error("failed"), failure)),
  };
  const settled = await commitBatch(writer, [newPush("s", { key: "k" })], { wait: false });
  expect(settled).toMatchObject([expected]);
});

// Bug, found by the faults harness: a push was judged by the old server, its row was looked up on the
// promoted one, which had lost it, and the caller was told that the row was erased.
test("a repeated push whose row is gone at the look-up goes again", async () => {
  const writer = {
    append: () => Promise.resolve([{ kind: "deduplicated", seq: 4n } as const]),
    readKept: () => Promise.resolve([undefined]),
  };
  const settled = await commitBatch(writer, [newPush("s", { key: "k" })], { wait: false });
  expect(settled).toEqual([{ kind: "busy" }]);
});

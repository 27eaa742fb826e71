/** A batch with a repeated push, whose row cannot be looked up after the commit. */
import { expect, test } from "vitest";
import { commitBatch } from "../../src/ingest/commit.ts";
import { newPush, newRow } from "../support/ledger.ts";

// Bug, found by the faults harness: the failure counted for the whole batch. When it was temporary
// (PostgreSQL had been killed), the push without a key was stored a second time.
test("a failed lookup of a repetition does not affect the new pushes of its batch", async () => {
  const fresh = newPush("s", { rows: [newRow()] });
  const repeated = newPush("s", { key: "k" });
  const settled = await commitBatch(
    {
      append: () =>
        Promise.resolve([
          { kind: "stored", places: [{ seq: 5n, runId: "" }] },
          { kind: "deduplicated", seq: 4n },
        ]),
      readByAddress: () =>
        Promise.reject(Object.assign(new Error("down"), { code: "ECONNREFUSED" })),
    },
    [fresh, repeated],
    { wait: false },
  );
  expect(settled.map(({ kind }) => kind)).toEqual(["stored", "busy"]);
});

test.each([
  ["is repeated while the database is unreachable", { code: "ECONNREFUSED" }, { kind: "busy" }],
  [
    "is refused as a defect, and not repeated",
    {},
    { kind: "refused", error: { reason: "INTERNAL" } },
  ],
])("a failed lookup %s", async (_, failure, expected) => {
  const writer = {
    append: () => Promise.resolve([{ kind: "deduplicated", seq: 4n } as const]),
    readByAddress: () => Promise.reject(Object.assign(new Error("failed"), failure)),
  };
  const settled = await commitBatch(writer, [newPush("s", { key: "k" })], { wait: false });
  expect(settled).toMatchObject([expected]);
});

// Bug, found by the faults harness: the old server answered the push, the promoted one had lost its
// row, and the caller got the answer that the row was erased.
test("a repeated push is tried again when its row is missing at the lookup", async () => {
  const writer = {
    append: () => Promise.resolve([{ kind: "deduplicated", seq: 4n } as const]),
    readByAddress: () => Promise.resolve([undefined]),
  };
  const settled = await commitBatch(writer, [newPush("s", { key: "k" })], { wait: false });
  expect(settled).toEqual([{ kind: "busy" }]);
});

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import type { Outcome, Push } from "../../src/store/rows.ts";
import { createLedger, heldBy, newPush, newRow, type TestLedger } from "../support/ledger.ts";

let ledger: TestLedger;
beforeAll(async () => {
  ledger = await createLedger();
});
afterAll(async () => {
  await ledger[Symbol.asyncDispose]();
});

const LIMITS = { sessionRowsMax: 3, sessionBytesMax: 1_000, pendingMax: 1_000 };
const OPTIONS = { createMissing: true, wait: true, limits: LIMITS };
const kinds = (outcomes: readonly Outcome[]): string => outcomes.map(({ kind }) => kind).join(" ");
const run = async (pushes: readonly Push[]): Promise<string> =>
  kinds(await append(ledger.database, pushes, OPTIONS));
const sized = (bytes: number): Partial<Push> => ({
  rows: [newRow({ payload: "x".repeat(bytes) })],
});

describe("the limits of a session", () => {
  test("the last row with room is stored, and the next is refused by name", async () => {
    const message = newPush("rows", { stream: "messages", rows: [newRow({ payload: "hi" })] });
    const outcomes = await append(
      ledger.database,
      [newPush("rows"), message, newPush("rows"), newPush("rows")],
      OPTIONS,
    );
    expect(outcomes.at(-1)).toEqual({ kind: "full", of: "rows", max: 3 });
    expect(kinds(outcomes)).toBe("stored stored stored full");
    const held = { rows: 3, bytes: 2 * newRow().payload.length + 2 };
    expect(await heldBy(ledger, "rows")).toEqual({ kept: held, found: held });
  });

  test("bytes are counted as PostgreSQL counts them, not as characters", async () => {
    expect(await run([newPush("bytes", sized(990))])).toBe("stored");
    const fourBytes = newPush("bytes", { rows: [newRow({ payload: "𝄞" })] });
    expect(await run([fourBytes])).toBe("stored");
    expect(await run([newPush("bytes", sized(7))])).toBe("full");
    expect(await run([newPush("bytes", sized(6))])).toBe("stored");
    const held = { rows: 3, bytes: 1_000 };
    expect(await heldBy(ledger, "bytes")).toEqual({ kept: held, found: held });
  });

  test("regression: bytes of senders, run ids and fragment indexes were not counted", async () => {
    const id = "beside";
    const row = (more: object) => ({ rows: [newRow({ payload: "{}", ...more })] });
    const opens = row({ mark: { kind: "open", runId: "r".repeat(100) } });
    const message = { stream: "messages", ...row({ sender: "é".repeat(100) }) } as const;
    expect(await run([newPush(id, opens), newPush(id, message)])).toBe("stored stored");
    // 2 + 100, 2 + 200, and of the next one 2 + 100 of the run that is open, and its index.
    const indexed = (bytes: number) => newPush(id, row({ fragments: new Uint8Array(bytes) }));
    expect(await run([indexed(595)])).toBe("full");
    expect(await run([indexed(594)])).toBe("stored");
    const held = { rows: 3, bytes: 1_000 };
    expect(await heldBy(ledger, id)).toEqual({ kept: held, found: held });
  });

  test("the run id of each row in a batch counts, also after a part without room", async () => {
    const id = "runs";
    const opening = (runId: string) => newRow({ payload: "{}", mark: { kind: "open", runId } });
    const closing = newRow({ payload: "{}", mark: { kind: "close" } });
    const first = newPush(id, { rows: [opening("a".repeat(50)), closing] });
    // The session holds 104 with it; the next has no room, so that the last is outside of any run.
    const second = newPush(id, {
      rows: [opening("b".repeat(120)), newRow({ payload: "x".repeat(700) })],
    });
    const third = newPush(id, { rows: [newRow({ payload: "x".repeat(890) })] });
    expect(await run([first, second, third])).toBe("stored full stored");
    const held = { rows: 3, bytes: 994 };
    expect(await heldBy(ledger, id)).toEqual({ kept: held, found: held });
  });

  test("the rows of one push are stored together or not at all", async () => {
    const two = { rows: [newRow(), newRow()] };
    expect(await run([newPush("whole", two), newPush("whole", two), newPush("whole")])).toBe(
      "stored full stored",
    );
  });

  test("a full session does not affect the others of its batch", async () => {
    expect(await run([newPush("full", { rows: [newRow(), newRow(), newRow()] })])).toBe("stored");
    // One of them is filled to the last byte by it.
    const others = [newPush("other-a", sized(1_000)), newPush("full"), newPush("other-b")];
    expect(await run(others)).toBe("stored full stored");
  });

  test("a repeated push of a full session gets its row, and a fenced one is stale_epoch", async () => {
    const keyed = newPush("order", { key: "k", epoch: 5n, rows: [newRow(), newRow(), newRow()] });
    expect(await run([keyed])).toBe("stored");
    expect(await run([newPush("order", { key: "k" }), newPush("order", { epoch: 4n })])).toBe(
      "deduplicated stale_epoch",
    );
    expect(await run([newPush("order", { epoch: 9n })])).toBe("full");
    // What was refused has raised no epoch.
    const options = { createMissing: true, wait: true };
    const after = await append(ledger.database, [newPush("order", { epoch: 6n })], options);
    expect(kinds(after)).toBe("stored");
  });

  test("the largest share that a session holds is reported", async () => {
    await run([newPush("told-a"), newPush("told-b", sized(500))]);
    const told: unknown[] = [];
    const onMost = (held: unknown): number => told.push(held);
    await append(ledger.database, [newPush("told-a"), newPush("told-b")], { ...OPTIONS, onMost });
    expect(told).toEqual([{ rows: 1, bytes: 500 }]);
  });
});

import { describe, expect, test } from "vitest";
import type { Outcome, Push } from "../../src/store/rows.ts";
import { appendAll, heldBy, newPush, newRow, useLedger } from "../support/ledger.ts";

const ledger = await useLedger();

const LIMITS = { sessionRowsMax: 3, sessionBytesMax: 1_000, pendingMax: 1_000 };
const OPTIONS = { createMissing: true, wait: true, limits: LIMITS };
const kinds = (outcomes: readonly Outcome[]): string => outcomes.map(({ kind }) => kind).join(" ");
const run = async (pushes: readonly Push[]): Promise<string> =>
  kinds(await appendAll(ledger.database, pushes, OPTIONS));
const sized = (bytes: number): Partial<Push> => ({
  rows: [newRow({ payload: "x".repeat(bytes) })],
});

describe("the limits of a session", () => {
  test("the last row with room is stored, and the next is refused by name", async () => {
    const message = newPush("rows", { stream: "messages", rows: [newRow({ payload: "hi" })] });
    const outcomes = await appendAll(
      ledger.database,
      [newPush("rows"), message, newPush("rows"), newPush("rows")],
      OPTIONS,
    );
    expect(outcomes.at(-1)).toEqual({ kind: "full", of: "rows", max: 3 });
    expect(kinds(outcomes)).toBe("stored stored stored full");
    const held = { rows: 3, bytes: 2 * newRow().payload.length + 2 };
    expect(await heldBy(ledger, "rows")).toEqual({ counted: held, found: held });
  });

  test("bytes are counted as PostgreSQL counts them, not as characters", async () => {
    expect(await run([newPush("bytes", sized(990))])).toBe("stored");
    const fourBytes = newPush("bytes", { rows: [newRow({ payload: "𝄞" })] });
    expect(await run([fourBytes])).toBe("stored");
    expect(await run([newPush("bytes", sized(7))])).toBe("full");
    expect(await run([newPush("bytes", sized(6))])).toBe("stored");
    const held = { rows: 3, bytes: 1_000 };
    expect(await heldBy(ledger, "bytes")).toEqual({ counted: held, found: held });
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
    expect(await heldBy(ledger, id)).toEqual({ counted: held, found: held });
  });

  test("the largest share that a session holds is reported", async () => {
    await run([newPush("told-a"), newPush("told-b", sized(500))]);
    const most: number[] = [];
    const onMost = ({ bytes }: { readonly bytes: number }): number => most.push(bytes);
    await appendAll(ledger.database, [newPush("told-a"), newPush("told-b")], {
      ...OPTIONS,
      onMost,
    });
    expect(Math.max(...most)).toBe(500);
  });
});

import { describe, expect, test } from "vitest";
import { roomFor } from "../../src/store/arrange.ts";
import type { Outcome, Push } from "../../src/store/rows.ts";
import { newPush, newRow } from "../support/ledger.ts";

const LIMITS = { sessionRowsMax: 10, sessionBytesMax: 1_000, pendingMax: 5 };
const pushOf = (rows: number, bytes = 1, push: Partial<Push> = {}): Push =>
  newPush("s", {
    rows: Array.from({ length: rows }, () => newRow({ payload: "x".repeat(bytes) })),
    ...push,
  });

/** P is full, n is sent again at once, and l after those before it. */
function lettersOf(pushes: readonly Push[], outcomes: ReadonlyMap<Push, Outcome>): string {
  return pushes
    .map((push) => outcomes.get(push))
    .map((outcome) => (outcome?.kind === "again" ? (outcome.isLater === true ? "l" : "n") : "P"))
    .join("");
}

describe("room for arrivals", () => {
  const user = (): Push =>
    newPush("s", { stream: "messages", rows: [newRow({ eventType: "user", payload: "" })] });
  const other = (): Push =>
    newPush("s", { stream: "messages", rows: [newRow({ eventType: "assistant", payload: "" })] });
  const claiming = (taken: number): Push => {
    const seen = { turnSeq: 0n, openRunId: "", epoch: undefined, eventSeq: undefined };
    return newPush("s", { seen, claim: { fromSeq: 0n, turnSeq: 1n, taken }, rows: [newRow()] });
  };
  const fate = (pushes: readonly Push[], pending: number | undefined): string => {
    const held = { rows: 0, bytes: 0, runBytes: 0, pending };
    return lettersOf(pushes, roomFor(pushes, held, LIMITS));
  };

  test("exists up to the limit, for user messages alone", () => {
    expect(fate([user()], 4)).toBe("n");
    expect(fate([user()], 5)).toBe("P");
    expect(fate([other(), claiming(0)], 9)).toBe("nn");
    expect(fate([user(), user()], 4)).toBe("nl");
    expect(fate([user(), user()], undefined)).toBe("nn");
  });

  test("is made by the claim of the batch, and a redelivery is never refused", () => {
    expect(fate([claiming(2), user(), user(), user()], 5)).toBe("nnnl");
    expect(fate([claiming(-3)], 5)).toBe("n");
  });
});

test("a push that fits only after the end of a run is checked again, and not refused", () => {
  const closing = newPush("s", { rows: [newRow({ payload: "", mark: { kind: "close" } })] });
  const held = { rows: 0, bytes: 850, runBytes: 100, pending: undefined };
  const next = pushOf(1, 100);
  const both = [closing, next];
  expect(lettersOf(both, roomFor(both, held, LIMITS))).toBe("nl");
  const larger = [pushOf(1, 101)];
  expect(lettersOf(larger, roomFor(larger, held, LIMITS))).toBe("P");
});

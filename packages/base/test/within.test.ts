import { expect, test } from "vitest";
import { within } from "@session-ledger/base/timers";

const never = new Promise<string>(() => undefined);

test("work that ends in time gives its own result or error", async () => {
  const late = (): string => "late";
  expect(await within(Promise.resolve("done"), { limitMs: 1_000, onTimeout: late })).toBe("done");
  const failed = Promise.reject<string>(new Error("it failed"));
  await expect(within(failed, { limitMs: 1_000, onTimeout: late })).rejects.toThrow("it failed");
});

test("late work gives the result or the error of the limit", async () => {
  expect(await within(never, { limitMs: 1, onTimeout: () => "late" })).toBe("late");
  const late = (): Promise<string> => Promise.reject(new Error("no answer in time"));
  await expect(within(never, { limitMs: 1, onTimeout: late })).rejects.toThrow("no answer in time");
});

test("an abort rejects with its reason, also when it came first", async () => {
  const signal = AbortSignal.abort(new Error("left before"));
  await expect(within(never, { limitMs: 1_000, onTimeout: () => "", signal })).rejects.toThrow(
    "left",
  );
  const later = new AbortController();
  const work = within(never, { limitMs: 1_000, onTimeout: () => "", signal: later.signal });
  later.abort(new Error("left during the work"));
  await expect(work).rejects.toThrow("left during the work");
});

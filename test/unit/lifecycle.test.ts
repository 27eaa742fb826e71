import { describe, expect, test } from "vitest";
import { type Unit, startAll, stopAll, together } from "../../src/base/unit.ts";

type Step = "start" | "stop";

/** Units that record their calls, and fail where the test wants it. */
function recorder(): {
  readonly calls: string[];
  readonly unit: (name: string, failing?: Partial<Record<Step, Error>>) => Unit;
} {
  const calls: string[] = [];
  return {
    calls,
    unit: (name, failing = {}) => {
      const step = (kind: Step) => async (): Promise<void> => {
        calls.push(`${kind} ${name}`);
        await Promise.resolve(); // Every real unit takes at least one turn.
        calls.push(`${kind} ${name} done`);
        if (failing[kind] !== undefined) throw failing[kind];
      };
      return { start: step("start"), stop: step("stop") };
    },
  };
}

describe("startAll", () => {
  test("starts the units in order, each after the previous one is ready", async () => {
    const { calls, unit } = recorder();
    await startAll([unit("a"), unit("b")]);
    expect(calls).toEqual(["start a", "start a done", "start b", "start b done"]);
  });

  test("stops all started units, last first and the failed one too, when a start fails", async () => {
    const { calls, unit } = recorder();
    const failure = new Error("no port");
    const units = [unit("a"), unit("b", { start: failure }), unit("c")];
    await expect(startAll(units)).rejects.toBe(failure);
    expect(calls.filter((call) => call.endsWith("done"))).toEqual([
      "start a done",
      "start b done",
      "stop b done",
      "stop a done",
    ]);
    expect(calls).not.toContain("start c");
    expect(calls).not.toContain("stop c");
  });

  const hanging = (calls: string[]): Unit => ({
    start: () => new Promise(() => undefined),
    stop: () => Promise.resolve(void calls.push("stop hanging")),
  });

  test("abandons a hanging step at its signal, and stops the units before it", async () => {
    const { calls, unit } = recorder();
    const abort = new AbortController();
    const units = [unit("a"), hanging(calls), unit("c")];
    const started = startAll(units, { signal: abort.signal });
    abort.abort(new Error("SIGTERM"));
    await expect(started).rejects.toThrow("SIGTERM");
    expect(calls).not.toContain("start c");
    expect(calls.slice(-2)).toEqual(["stop a", "stop a done"]);
  });

  test("abandons a hanging step at its time limit", async () => {
    const { calls, unit } = recorder();
    const started = startAll([unit("a"), hanging(calls)], { stepMsMax: 5 });
    await expect(started).rejects.toThrow("a step of the start is not done after 0.005 s");
    expect(calls.slice(-3)).toEqual(["stop hanging", "stop a", "stop a done"]);
  });

  test("rejects with the error of the start, also when the cleanup fails", async () => {
    const { calls, unit } = recorder();
    const failure = new Error("no port");
    const units = [unit("a", { stop: new Error("stuck") }), unit("b", { start: failure })];
    await expect(startAll(units)).rejects.toBe(failure);
    expect(calls).toContain("stop a done");
  });
});

describe("together", () => {
  test("starts the units in order, and stops all at once", async () => {
    const { calls, unit } = recorder();
    const both = together([unit("a"), unit("b")]);
    await both.start();
    await both.stop();
    expect(calls).toEqual([
      "start a",
      "start a done",
      "start b",
      "start b done",
      "stop a",
      "stop b",
      "stop a done",
      "stop b done",
    ]);
  });

  test("stops all units when one fails, and reports the failure", async () => {
    const { calls, unit } = recorder();
    const failure = new Error("stuck");
    await expect(together([unit("a", { stop: failure }), unit("b")]).stop()).rejects.toBe(failure);
    expect(calls).toContain("stop b done");
  });
});

describe("stopAll", () => {
  test("stops the units in reverse order, each after the next one has ended", async () => {
    const { calls, unit } = recorder();
    await stopAll([unit("a"), unit("b")]);
    expect(calls).toEqual(["stop b", "stop b done", "stop a", "stop a done"]);
  });

  test("stops every unit when some fail, and rejects with the first failure", async () => {
    const { calls, unit } = recorder();
    const first = new Error("c is stuck");
    const units = [
      unit("a"),
      unit("b", { stop: new Error("b is stuck") }),
      unit("c", { stop: first }),
    ];
    await expect(stopAll(units)).rejects.toBe(first);
    expect(calls).toContain("stop a done");
  });
});

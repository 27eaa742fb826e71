/** The base class of bridges: one adapter a session, one run at a time, interrupts. */
import { once } from "node:events";
import { AbstractAgent, type BaseEvent, EventType } from "@ag-ui/client";
import { EMPTY, from, Observable } from "rxjs";
import { describe, expect, test } from "vitest";
import {
  type Adapter,
  type AgentEvent,
  capabilitiesOf,
  PlatformBridge,
  RunInProgress,
} from "@session-ledger/runner/internal/sdk/bridge";
import { runContext } from "../../../test/support/echo-bridge.ts";

const INPUT = runContext().input;
const CONTEXT = { sessionId: "s", isContinuation: false };
const RAW = { type: EventType.RAW, event: 1 };

class TestBridge extends PlatformBridge {
  made = 0;
  readonly #run: Adapter["run"];
  constructor(run: Adapter["run"]) {
    super();
    this.#run = run;
  }
  createAdapter(): Adapter {
    this.made += 1;
    return { run: this.#run };
  }
  capabilities() {
    return capabilitiesOf({ framework: "test" });
  }
}

async function listOf(events: AsyncIterable<AgentEvent>): Promise<readonly AgentEvent[]> {
  const list: AgentEvent[] = [];
  for await (const event of events) list.push(event);
  return list;
}

describe("a bridge", () => {
  test("makes one adapter for each session, and another one after markDirty", async () => {
    const bridge = new TestBridge(async function* () {
      yield RAW;
    });
    const run = (sessionId: string) =>
      listOf(bridge.run(INPUT, { sessionId, isContinuation: false }));
    expect(await run("a")).toEqual([RAW]);
    await run("a");
    await run("b");
    expect(bridge.made).toBe(2);
    bridge.markDirty();
    await run("a");
    expect(bridge.made).toBe(3);
    bridge.forget("b");
    await run("b");
    expect(bridge.made).toBe(4);
  });

  test("refuses a second run of a session, and ends the first by interrupt", async () => {
    const bridge = new TestBridge(async function* (_input, signal) {
      yield RAW;
      if (!signal.aborted) await once(signal, "abort");
      yield { type: "RAW", event: "interrupted" };
    });
    const events = bridge.run(INPUT, CONTEXT);
    expect((await events.next()).value).toEqual(RAW);
    expect([bridge.isRunning(), bridge.isRunning("s"), bridge.isRunning("other")]).toEqual([
      true,
      true,
      false,
    ]);
    await expect(listOf(bridge.run(INPUT, CONTEXT))).rejects.toThrow(RunInProgress);
    expect(await bridge.interrupt("other")).toBe(0);
    expect(await bridge.interrupt("s")).toBe(1);
    expect(await listOf(events)).toEqual([{ type: "RAW", event: "interrupted" }]);
    expect(bridge.isRunning()).toBe(false);
  });

  test("takes an agent of @ag-ui/client, with its events, its error and its end by a signal", async () => {
    class Agent extends AbstractAgent {
      readonly #events: Observable<BaseEvent>;
      constructor(events: Observable<BaseEvent>) {
        super();
        this.#events = events;
      }
      run() {
        return this.#events;
      }
    }
    const runOf = (events: Observable<BaseEvent>, signal?: AbortSignal) => {
      const agent: Adapter = new Agent(events);
      const bridge = new TestBridge((input, ending) => agent.run(input, ending));
      return bridge.run(INPUT, CONTEXT, signal);
    };
    expect(await listOf(runOf(EMPTY))).toEqual([]);
    const failing = runOf(
      new Observable((to) => {
        to.next(RAW);
        to.error(new Error("broken"));
      }),
    );
    expect((await failing.next()).value).toEqual(RAW);
    await expect(failing.next()).rejects.toThrow("broken");

    const abort = new AbortController();
    let isSubscribed = false;
    const endless = runOf(
      new Observable((to) => {
        isSubscribed = true;
        to.next(RAW);
        return () => {
          isSubscribed = false;
        };
      }),
      abort.signal,
    );
    await endless.next();
    expect(isSubscribed).toBe(true);
    abort.abort(new Error("cancelled"));
    await expect(endless.next()).rejects.toThrow("cancelled");
    expect(isSubscribed).toBe(false);
  });

  test("leaves an Observable alone when the run is cancelled before it begins", async () => {
    // Bug: the listener came after the abort, so the run hung, and the agent was never stopped.
    let isSubscribed = false;
    const agent = new Observable<AgentEvent>(() => {
      isSubscribed = true;
    });
    const signal = AbortSignal.abort(new Error("cancelled"));
    const run = new TestBridge(() => agent).run(INPUT, CONTEXT, signal);
    await expect(run.next()).rejects.toThrow("cancelled");
    expect(isSubscribed).toBe(false);
  });

  test("takes many events that an Observable gives at once", async () => {
    // Bug: each event was shifted from the list, which took minutes for 400,000 of them.
    const events = Array.from({ length: 400_000 }, () => RAW);
    const run = new TestBridge(() => from(events)).run(INPUT, CONTEXT);
    expect(await listOf(run)).toHaveLength(events.length);
  });
});

/**
 * Announcements, one fact at a time; test/property/notifier.property.test.ts shows that none is
 * lost.
 */
import { describe, expect, test } from "vitest";
import {
  ANNOUNCED_SESSIONS_MAX,
  ANNOUNCE_INTERVAL_MS,
  Notifier,
} from "../../src/live/hints/notifier.ts";
import { shardOf } from "../../src/live/hints/subscriptions.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { ManualTimers, settled, SlowTable } from "../support/slow-table.ts";

class Telling {
  readonly timers = new ManualTimers();
  readonly table = new SlowTable();
  /** One for each statement: its different texts. */
  readonly texts: string[] = [];
  readonly unwanted = new Set<number>();
  readonly logged: string[] = [];
  sent = 0;
  /** The result of sending; resolves at once unless a test replaces it. */
  transport: () => Promise<void> = () => Promise.resolve();
  readonly notifier: Notifier;

  constructor() {
    const write = (line: string): void => {
      const { msg }: { readonly msg: string } = JSON.parse(line);
      this.logged.push(msg);
    };
    this.notifier = new Notifier({
      from: "me",
      wants: (shard) => !this.unwanted.has(shard),
      send: (messages) => {
        this.texts.push([...new Set(messages.map(({ text }) => text))].join(" + "));
        return this.transport();
      },
      onSent: () => (this.sent += 1),
      timers: this.timers,
      log: createLogTo({ write }),
    });
  }

  commit(...sessionIds: readonly string[]): void {
    this.notifier.announceCommit(sessionIds.map((sessionId) => this.table.event(sessionId)));
  }

  async intervalEnds(): Promise<void> {
    const delays = this.timers.pending.map(({ delayMs }) => delayMs).join();
    if (delays !== String(ANNOUNCE_INTERVAL_MS)) throw new Error(`${delays} ms are pending`);
    this.timers.fireAll();
    await settled();
  }
}

describe("a notifier", () => {
  test("sends the first news at once, and later news together after the interval", async () => {
    const telling = new Telling();
    telling.commit("s");
    expect(telling.texts).toEqual(["1 me s/0/1"]);
    telling.commit("s", "t");
    telling.commit("t");
    telling.notifier.announceCommit([telling.table.message("s"), telling.table.message("s")]);
    await settled();
    expect(telling.texts).toHaveLength(1);
    await telling.intervalEnds();
    expect(telling.texts.slice(1)).toEqual(["1 me s/2/2 + 1 me t/0/2"]);
    await telling.intervalEnds();
    expect(telling.timers.pending).toEqual([]); // So the next news is sent at once.
    telling.commit("s");
    expect(telling.texts.slice(2)).toEqual(["1 me s/0/3"]);
    await settled();
    expect(telling.sent).toBe(3);
  });

  test("names the highest number of a session, even when an older row comes later", async () => {
    const telling = new Telling();
    telling.commit("other");
    const rows = [1, 2, 3].map(() => telling.table.event("s"));
    for (const row of rows.toReversed()) telling.notifier.announceCommit([row]);
    await settled();
    await telling.intervalEnds();
    expect(telling.texts.slice(1)).toEqual(["1 me s/0/3"]);
  });

  test("sends nothing for an empty commit, and for a shard that nobody wants", () => {
    const telling = new Telling();
    telling.unwanted.add(shardOf("s"));
    telling.notifier.announceCommit([]);
    telling.commit("s");
    telling.notifier.announceDelete("s");
    expect([telling.texts, telling.timers.pending]).toEqual([[], []]);
    telling.commit("s", "t");
    expect(telling.texts).toEqual(["1 me t/0/1"]);
  });

  test("collects a limited number of sessions, and above it sends one text for all", async () => {
    const telling = new Telling();
    telling.commit("s");
    const ids = Array.from({ length: ANNOUNCED_SESSIONS_MAX + 1 }, (_, at) => `t${at}`);
    telling.commit(...ids);
    await settled();
    await telling.intervalEnds();
    telling.commit("s");
    await settled();
    await telling.intervalEnds();
    expect(telling.texts.slice(1)).toEqual(["1 me *", "1 me s/0/2"]);
  });
});

describe("a transport that fails", () => {
  test("is tried again with growing pauses and a text for all sessions; one log line reports it", async () => {
    const telling = new Telling();
    telling.transport = () => Promise.reject(new Error("down"));
    const delays: number[] = [];
    telling.commit("s");
    for (let tries = 0; tries < 10; tries += 1) {
      await settled();
      await telling.intervalEnds();
      delays.push(telling.timers.pending[0]?.delayMs ?? 0);
      telling.commit("t");
      telling.timers.fireAll();
    }
    expect(delays[0]).toBeGreaterThanOrEqual(50);
    expect(delays[0]).toBeLessThanOrEqual(100);
    expect(delays[9]).toBeGreaterThanOrEqual(2_500);
    expect(delays[9]).toBeLessThanOrEqual(5_000);
    telling.transport = () => Promise.resolve();
    await settled();
    await telling.intervalEnds();
    telling.timers.fireAll();
    await settled();
    expect(new Set(telling.texts.slice(1))).toEqual(new Set(["1 me *"]));
    expect(telling.sent).toBe(1);
    expect(telling.logged).toEqual(["wake_ups_not_sent", "wake_ups_sent_again"]);
  });
});

describe("a stop", () => {
  test("sends the collected news, and then nothing more", async () => {
    const telling = new Telling();
    telling.commit("s");
    telling.commit("s");
    await telling.notifier.stop();
    telling.commit("s");
    telling.notifier.announceDelete("s");
    await telling.notifier.stop();
    expect(telling.texts).toEqual(["1 me s/0/1", "1 me s/0/2"]);
    expect(telling.timers.pending).toEqual([]);
  });

  test("does not wait for a transport that hangs", async () => {
    const telling = new Telling();
    telling.transport = () => new Promise(() => undefined);
    telling.commit("s");
    telling.commit("s");
    let stopped = false;
    const stopping = telling.notifier.stop().then(() => (stopped = true));
    await settled();
    expect([stopped, telling.texts.length]).toEqual([false, 1]);
    telling.timers.fireAll();
    await stopping;
    expect(telling.timers.pending).toEqual([]);
  });
});

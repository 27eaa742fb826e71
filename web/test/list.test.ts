/** What the list of the inspector computes: the order of sessions, filters, streams, and texts to look at. */
import { describe, expect, test } from "vitest";
import { SseParser, type StreamEvent } from "@session-ledger/react/internal/api/sse-parser";
import {
  itemOf,
  matches,
  type SessionJson,
  withoutSession,
  withSessions,
} from "../src/model/session-list.ts";
import { ago, bytes, count, duration } from "@session-ledger/react/internal/ui/format";
import { cut, visible } from "@session-ledger/react/internal/ui/text";

const NOW = Date.parse("2026-11-23T12:00:00Z");

function session(id: string, more: Partial<SessionJson> = {}): SessionJson {
  return {
    metadata: { id, createdAt: "2026-11-23T10:00:00Z" },
    name: "",
    state: "SESSION_STATE_IDLE",
    ...more,
  };
}

const at = (id: string, minute: number) =>
  itemOf(session(id, { lastActivityAt: new Date(NOW + minute * 60_000).toISOString() }));
const ids = (items: readonly { readonly id: string }[]) => items.map(({ id }) => id);

describe("the list of sessions", () => {
  test("has the newest activity first, and sessions without rows last", () => {
    const listed = withSessions([], [itemOf(session("none")), at("old", 1), at("new", 2)]);
    expect(ids(listed)).toEqual(["new", "old", "none"]);
  });

  test("moves a session that has a new row, and does not have it twice", () => {
    const listed = withSessions([], [at("a", 1), at("b", 2), at("c", 3)]);
    expect(ids(withSessions(listed, [at("a", 4)]))).toEqual(["a", "c", "b"]);
    expect(ids(withoutSession(listed, "b"))).toEqual(["c", "a"]);
    expect(withoutSession(listed, "gone")).toBe(listed);
  });

  test("reads the state, times, the failure, the agent, labels and facts", () => {
    const failure = { seq: "7", message: "m", code: "" };
    const capabilities = JSON.stringify({ identity: { name: "Planner" } });
    const labels = JSON.stringify({ team: "sea", size: 7 });
    const facts = {
      lastText: "Hello",
      lastRole: "user",
      runs: 2,
      duration: "3.500s",
      inputTokens: "1200",
      outputTokens: "40",
      models: ["gpt-x"],
      toolCalls: 3,
      failedToolCalls: 1,
      tools: ["search"],
    };
    const of = { state: "SESSION_STATE_FAILED", failure, capabilities, labels, facts };
    const item = itemOf(session("a", of));
    expect(item).toMatchObject({
      state: "failed",
      activityMs: undefined,
      failure: { seq: 7, message: "m" },
      agent: "Planner",
      agentId: "",
      model: "gpt-x",
      facts: { durationMs: 3_500, tokens: 1_240, failedToolCalls: 1 },
    });
    expect([...item.labels]).toEqual([["team", "sea"]]);
    expect(itemOf(session("b", { labels: "no JSON", state: "SESSION_STATE_NEW" }))).toMatchObject({
      state: "idle",
      labels: new Map(),
    });
  });

  test("is filtered as the service filters it", () => {
    const filter = {
      query: "",
      projectId: "",
      agentId: "",
      label: "",
      state: "" as const,
      withinMs: 0,
    };
    const of = { name: "Blue Whale", projectId: "p", agentId: "a", labels: '{"k":"a=b"}' };
    const item = itemOf(session("Run-7", of));
    expect(matches(item, filter)).toBe(true);
    expect(matches(item, { ...filter, query: "bLUE" })).toBe(true);
    expect(matches(item, { ...filter, query: "RUN-7" })).toBe(true);
    expect(matches(item, { ...filter, query: "red" })).toBe(false);
    expect(matches(item, { ...filter, projectId: "q" })).toBe(false);
    expect(matches(item, { ...filter, agentId: "a", label: "k=a=b" })).toBe(true);
    expect(matches(item, { ...filter, agentId: "b" })).toBe(false);
    expect(matches(item, { ...filter, label: "k=a" })).toBe(false);
    expect(matches(item, { ...filter, state: "running" })).toBe(false);
    expect(matches({ ...item, state: "running" }, { ...filter, state: "running" })).toBe(true);
  });
});

describe("server-sent events", () => {
  const TEXT =
    "retry: 700\n\n: ping\n\nid: 3\ndata: a\ndata: b\n\nid: 4\n\nevent: watch_state\r\ndata:{}\r\n\r\ndata: ü\r\rdata: cut";

  function parsed(pieces: readonly string[]) {
    const seen = { events: [] as StreamEvent[], comments: [] as string[], ids: [] as string[] };
    let retryMs = 0;
    const parser = new SseParser({
      event: (event) => seen.events.push(event),
      comment: (text) => seen.comments.push(text),
      id: (id) => seen.ids.push(id),
      retry: (ms) => {
        retryMs = ms;
      },
    });
    for (const piece of pieces) parser.push(piece);
    return { ...seen, retryMs };
  }

  const whole = {
    events: [
      { id: "3", type: "message", data: "a\nb" },
      { id: undefined, type: "watch_state", data: "{}" },
      { id: undefined, type: "message", data: "ü" },
    ],
    comments: ["ping"],
    ids: ["3", "4"],
    retryMs: 700,
  };

  test("are parsed with each line end, and an event without its end is none", () => {
    expect(parsed([TEXT])).toEqual(whole);
  });

  test("are the same when they arrive in pieces of any size", () => {
    for (let size = 1; size < 9; size += 1) {
      const pieces = Array.from({ length: Math.ceil(TEXT.length / size) }, (_, n) =>
        TEXT.slice(n * size, (n + 1) * size),
      );
      expect(parsed(pieces), `of ${size}`).toEqual(whole);
    }
  });
});

describe("a hostile text", () => {
  test("shows its control characters and its changes of direction", () => {
    expect(visible("a\u0000b\u001b[31m")).toBe("a\u2400b\u241b[31m");
    expect(visible("\u202egpj.exe\u2066")).toBe("‹U+202E›gpj.exe‹U+2066›");
    expect(visible("\u061c")).toBe("‹U+061C›");
    expect(visible("\u{e0041}\ufeff\u007f")).toBe("‹U+E0041›‹U+FEFF›␡");
  });

  test("keeps line breaks, letters of every script, and joined emoji", () => {
    const text = "é\t漢字\nمرحبا 👨‍👩‍👧";
    expect(visible(text)).toBe(text);
  });

  test("is never cut inside of a character", () => {
    expect(cut("ab😀c", 3)).toBe("ab");
    expect(cut("ab😀c", 4)).toBe("ab😀");
    expect(cut("ab", 3)).toBe("ab");
  });
});

test("numbers, sizes and times are written for people", () => {
  expect(count(1_234_567)).toBe("1,234,567");
  expect([0, 999, 1_000, 1_536, 10_485_760].map(bytes)).toEqual([
    "0 B",
    "999 B",
    "1.0 KiB",
    "1.5 KiB",
    "10.0 MiB",
  ]);
  expect([0, 0.25, 12.4, 1_234, 12_345, 125_000, 7_200_000, 90_000_000].map(duration)).toEqual([
    "0 ms",
    "0.3 ms",
    "12 ms",
    "1.23 s",
    "12.3 s",
    "2 m 5 s",
    "2 h",
    "1 d 1 h",
  ]);
  expect([0, 5_000, 60_000, 7_200_000, 200_000_000].map((ms) => ago(NOW - ms, NOW))).toEqual([
    "now",
    "5 s ago",
    "1 min ago",
    "2 h ago",
    "2 d ago",
  ]);
});

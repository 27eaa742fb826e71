/**
 * The views of analytics, compared with a reference that this file computes from the raw events of recorded
 * streams (given CORPUS, and of the project's own without): the events are pushed as a stream, so the service
 * merges them into rows.
 */
import postgres from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isObject, parseObject } from "@session-ledger/agui/json";
import { eventsOf, PushStreamClient } from "../support/push-stream.ts";
import { newSession } from "../support/pushing.ts";
import { noVersionAccepts } from "../support/recorded.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "../support/streams.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService({});
let ledger: postgres.Sql;
beforeAll(async () => {
  ledger = postgres(service.databaseUrl, { max: 1, onnotice: () => undefined });
});
afterAll(async () => {
  await ledger.end();
});

interface Run {
  readonly runId: unknown;
  readonly startedMs: number;
  events: number;
  outcome: string;
  durationMs: number | null;
  firstTextMs: number | null;
  tokensIn: number | null;
  tokensOut: number | null;
  readonly calls: {
    readonly id: unknown;
    readonly tool: unknown;
    ms: number | null;
    failed: boolean;
    readonly atMs: number;
  }[];
}

interface Raw {
  readonly value: Readonly<Record<string, unknown>>;
  readonly atMs: number;
}

/** The runs of a session from its raw events, by the words of docs/analytics.md. */
function referenceOf(events: readonly Raw[]): readonly Run[] {
  const runs: Run[] = [];
  let open: Run | undefined;
  for (const { value, atMs } of events) {
    const { type } = value;
    if (type === "RUN_STARTED") {
      if (open !== undefined) open.outcome = "stalled";
      const none = { durationMs: null, firstTextMs: null, tokensIn: null, tokensOut: null };
      open = {
        runId: value["runId"],
        startedMs: atMs,
        events: 0,
        outcome: "running",
        ...none,
        calls: [],
      };
      runs.push(open);
    }
    if (open === undefined) continue;
    open.events += 1;
    const isText = type === "TEXT_MESSAGE_CONTENT" || type === "TEXT_MESSAGE_CHUNK";
    if (isText && (value["delta"] ?? "") !== "") open.firstTextMs ??= atMs - open.startedMs;
    const id = value["toolCallId"];
    const call = open.calls.find((one) => one.id === id);
    const begins =
      type === "TOOL_CALL_START" || (type === "TOOL_CALL_CHUNK" && "toolCallName" in value);
    // Arguments without a beginning are those of an unknown tool.
    const tool = begins ? value["toolCallName"] : "unknown";
    if ((begins || type === "TOOL_CALL_ARGS") && call === undefined)
      open.calls.push({ id, tool, ms: null, failed: false, atMs });
    if (type === "TOOL_CALL_RESULT" && call?.ms === null) {
      call.ms = atMs - call.atMs;
      call.failed = (value["error"] ?? null) !== null;
    }
    if (type !== "RUN_FINISHED" && type !== "RUN_ERROR") continue;
    const outcome = isObject(value["outcome"]) ? value["outcome"]["type"] : "success";
    const words = { interrupt: "interrupted", cancelled: "cancelled", success: "finished" };
    open.outcome =
      type === "RUN_ERROR"
        ? "error"
        : (Object.entries(words).find(([is]) => is === outcome)?.[1] ?? "?");
    open.durationMs = atMs - open.startedMs;
    const usage = [value["usage"] ?? []].flat().filter(isObject);
    const sum = (name: string) =>
      usage.reduce<number | null>(
        (all, { [name]: count }) => (typeof count === "number" ? (all ?? 0) + count : all),
        null,
      );
    [open.tokensIn, open.tokensOut] = [sum("inputTokens"), sum("outputTokens")];
    open = undefined;
  }
  return runs;
}

/** 137 ms after each other, so that no two durations are alike by chance. */
const STEP_MS = 137;
const BEGAN_MS = Date.now() - 86_400_000;

async function pushed(events: readonly StreamEvent[], sessionId: string): Promise<void> {
  const { stream } = await PushStreamClient.open(client, { sessionId });
  const timed = events.map((event, at) => {
    const atMs = BEGAN_MS + at * STEP_MS;
    return {
      ...event,
      occurredAt: { seconds: BigInt(Math.floor(atMs / 1_000)), nanos: (atMs % 1_000) * 1_000_000 },
    };
  });
  for (let sent = 0; sent < timed.length; sent += 50)
    stream.batch(sent + 1, timed.slice(sent, sent + 50));
  stream.end();
  await stream.rest();
}

async function rawOf(sessionId: string): Promise<readonly Raw[]> {
  const events = await eventsOf(client, sessionId, { expand: true });
  return events.map(({ payload, createdAt }) => ({
    value: parseObject(payload),
    atMs: Number(createdAt?.seconds) * 1_000 + (createdAt?.nanos ?? 0) / 1_000_000,
  }));
}

const numberOf = (value: unknown): number | null => (value === null ? null : Number(value));

test("the views equal a reference computed from the recorded corpus", async () => {
  const recorded = recordedStreams();
  const streams = (recorded ?? ownStreams()).map(({ events }) =>
    events.filter((event) => recorded === undefined || !noVersionAccepts(event)),
  );
  const usage = [{ model: "m", inputTokens: 7, outputTokens: 3 }];
  const made = ["stop", "cut", "end"].map((runId) => [
    { type: "RUN_STARTED", threadId: "t", runId },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "made" },
    { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "TOOL_CALL_RESULT", toolCallId: "c", messageId: "r", content: "1" },
    ...(runId === "cut" ? [] : [{ type: "RUN_FINISHED", threadId: "t", runId, usage }]),
  ]);
  const last = made
    .flat()
    .map((event) => ({ eventType: event.type, payload: JSON.stringify(event) }));
  // Every fifth session has two streams; one has a run that never ended.
  const sessions = [
    ...streams.map((events, at) => [...events, ...(at % 5 === 0 ? (streams[at + 1] ?? []) : [])]),
    last,
  ].filter((events) => events.length > 0);
  const ids = sessions.map(() => newSession());
  for (let at = 0; at < sessions.length; at += 8)
    await Promise.all(
      sessions.slice(at, at + 8).map((events, n) => pushed(events, ids[at + n] ?? "")),
    );

  const references = new Map<string, readonly Run[]>();
  const merged = { events: 0, rows: 0 };
  for (const id of ids) {
    references.set(id, referenceOf(await rawOf(id)));
    const rows = await eventsOf(client, id);
    merged.rows += rows.length;
    merged.events += rows.reduce((sum, { eventCount }) => sum + eventCount, 0);
  }
  expect(merged.rows).toBeLessThan(merged.events);
  const expected = [...references.values()].flat();
  expect(expected.length).toBeGreaterThan(5);
  expect(new Set(expected.map(({ outcome }) => outcome)).size).toBeGreaterThan(2);

  await expect
    .poll(async () => {
      const [behind] = await ledger`
        select count(*)::int as count from sessions s left join indexed_sessions i on i.session_id = s.id
        where s.event_seq > coalesce(i.event_seq, 0)
          and not exists (select from session_runs r where r.session_id = s.id and r.outcome = 'running')`;
      return behind?.["count"];
    })
    .toBe(0);
  for (const [id, runs] of references) {
    const shown = await ledger`
      select * from analytics.runs where session_id = ${id} order by run_seq`;
    expect({
      id,
      runs: shown.map((row) => ({
        runId: row["run_id"],
        outcome: row["outcome"],
        events: Number(row["events"]),
        durationMs: row["duration_ms"],
        firstTextMs: row["time_to_first_token_ms"],
        tokensIn: numberOf(row["tokens_in"]),
        tokensOut: numberOf(row["tokens_out"]),
        calls: Number(row["tool_calls"]),
        failures: Number(row["tool_failures"]),
      })),
    }).toEqual({
      id,
      runs: runs.map(
        ({ runId, outcome, events, durationMs, firstTextMs, tokensIn, tokensOut, calls }) => ({
          runId,
          outcome,
          events,
          durationMs,
          firstTextMs,
          tokensIn,
          tokensOut,
          calls: calls.length,
          failures: calls.filter(({ failed }) => failed).length,
        }),
      ),
    });
  }

  const [sums] = await ledger`
    select sum(runs)::int as runs, sum(errors)::int as errors, sum(events)::int as events,
      sum(tool_calls)::int as calls, sum(tokens_in)::int as tokens from analytics.sessions`;
  const calls = expected.flatMap((run) => run.calls);
  const tokens = expected.reduce((sum, { tokensIn }) => sum + (tokensIn ?? 0), 0);
  expect(sums).toEqual({
    runs: expected.length,
    errors: expected.filter(({ outcome }) => outcome === "error").length,
    events: merged.events,
    calls: calls.length,
    tokens,
  });
  const [days] = await ledger`
    select sum(runs)::int as runs, sum(tokens_in)::int as tokens from analytics.daily_usage`;
  expect(days).toEqual({ runs: expected.length, tokens });
  const tools = await ledger`select * from analytics.tools order by tool collate "C"`;
  const names = [...new Set(calls.map(({ tool }) => String(tool)))].toSorted();
  expect(
    tools.map((row) => [
      row["tool"],
      Number(row["calls"]),
      near(row["p50_ms"]),
      near(row["p95_ms"]),
    ]),
  ).toEqual(
    names.map((name) => {
      const of = calls.filter(({ tool }) => tool === name);
      const times = of.flatMap(({ ms }) => (ms === null ? [] : [ms])).toSorted((a, b) => a - b);
      return [name, of.length, near(percentile(times, 0.5)), near(percentile(times, 0.95))];
    }),
  );
  process.stdout.write(
    `${ids.length} sessions, ${expected.length} runs, ${calls.length} tool calls, ${merged.events} events in ${merged.rows} rows\n`,
  );
});

/** Between the two nearest values, as PostgreSQL's percentile_cont. */
function percentile(sorted: readonly number[], share: number): number | null {
  const place = share * (sorted.length - 1);
  const [low, high] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  return low === undefined || high === undefined ? null : low + (high - low) * (place % 1);
}

/** Rounded to a billionth of a second. */
function near(value: unknown): unknown {
  return value === null ? null : Math.round(Number(value) * 1e6) / 1e6;
}

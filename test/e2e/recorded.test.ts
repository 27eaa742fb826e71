/**
 * What agents really send goes in by the command line, event by event, a session a stream, and comes
 * back as it was: recorded streams where CORPUS names their folder, hand-written ones elsewhere.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { streamProblems } from "../support/history-check.ts";
import type { Row } from "../support/history.ts";
import {
  type AgentFigures,
  eventRowsOf,
  expectedOf,
  figuresTable,
  linesOf,
  noVersionAccepts,
  pushLines,
  type PushRun,
  pushRun,
} from "../support/recorded.ts";
import { runCommand } from "../support/service-process.ts";
import { ownStreams, recordedStreams, type Stream, type StreamEvent } from "../support/streams.ts";
import { useService } from "../support/use-service.ts";

/** Of the command at a time; a session has one. */
const AT_ONCE = 16;

interface Case {
  readonly stream: Stream;
  readonly sessionId: string;
}

interface Result extends Case {
  readonly run: PushRun;
  readonly rows: readonly Row[];
}

const { service } = useService();

async function throughLedger({ stream, sessionId }: Case): Promise<Result> {
  const run = await pushLines(service.grpcAddress, { sessionId, lines: linesOf(stream) });
  const isEmpty = run.summary.pushed === 0;
  const rows = isEmpty ? [] : await eventRowsOf(service.grpcAddress, sessionId);
  return { stream, sessionId, run, rows };
}

async function allThroughLedger(name: string, streams: readonly Stream[]) {
  const results: Result[] = [];
  const left = streams.map((stream, at): Case => ({ stream, sessionId: `${name}-${at}` }));
  const work = async (): Promise<void> => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      results.push(await throughLedger(next));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return results;
}

function refusedOf({ stream, run }: Result): readonly StreamEvent[] {
  return stream.events.filter((_, at) => run.refusedLines.includes(at + 1));
}

function acceptedOf({ stream, run }: Result): readonly StreamEvent[] {
  return stream.events.filter((_, at) => !run.refusedLines.includes(at + 1));
}

function figuresOf(results: readonly Result[]): ReadonlyMap<string, AgentFigures> {
  const byAgent = Map.groupBy(results, ({ stream }) => stream.agent);
  return new Map(
    [...byAgent].map(([agent, own]) => {
      const refused = Map.groupBy(own.flatMap(refusedOf), ({ eventType }) => eventType);
      const counts = new Map([...refused].map(([type, events]) => [type, events.length]));
      const accepted = own.reduce((sum, { rows }) => sum + rows.length, 0);
      return [agent, { streams: own.length, accepted, refused: counts }];
    }),
  );
}

/** Each accepted event beside what came back of it. */
function pairsOf(result: Result) {
  const accepted = acceptedOf(result);
  expect(result.rows).toHaveLength(accepted.length);
  return accepted.map((event, at) => ({ event, row: result.rows[at] }));
}

function typeAndValue(results: readonly Result[]) {
  const pairs = results.flatMap(pairsOf);
  return {
    sent: pairs.map(({ event }) => ({ type: event.eventType, value: expectedOf(event).value })),
    read: pairs.map(({ row }) => ({ type: row?.eventType, value: parsed(row) })),
  };
}

/** Of the events that had nothing to be spelled differently. */
function unchangedTexts(results: readonly Result[]) {
  const pairs = results
    .flatMap(pairsOf)
    .filter(({ event }) => expectedOf(event).text !== undefined);
  return {
    sent: pairs.map(({ event }) => event.payload),
    read: pairs.map(({ row }) => row?.payload),
  };
}

function parsed(row: Row | undefined): unknown {
  return JSON.parse(row?.payload ?? "null");
}

const recorded = recordedStreams();

describe.skipIf(recorded === undefined)("recorded streams, given CORPUS", () => {
  let results: readonly Result[];
  beforeAll(async () => {
    results = await allThroughLedger("recorded", recorded ?? []);
    process.stdout.write(`${figuresTable(figuresOf(results))}\n`);
  });

  test("an event is refused only if no version of the protocol accepts it", () => {
    const refused = results.flatMap(refusedOf);
    expect(refused.filter((event) => !noVersionAccepts(event))).toEqual([]);
    expect(results.flatMap(acceptedOf).filter(noVersionAccepts)).toEqual([]);
    const events = results.reduce((sum, { stream }) => sum + stream.events.length, 0);
    const stored = results.reduce((sum, { rows }) => sum + rows.length, 0);
    expect(stored + refused.length).toBe(events);
  });

  test("push reports the number of stored lines, and ends with 1 after a refusal", () => {
    for (const { run, rows, stream } of results) {
      const { summary, refusedLines, exitCode } = run;
      const pushed = stream.events.length - refusedLines.length;
      expect(rows).toHaveLength(pushed);
      expect(summary).toMatchObject({ pushed, deduplicated: 0, refused: refusedLines.length });
      expect(exitCode).toBe(refusedLines.length > 0 ? 1 : 0);
    }
  });

  test("accepted events return with equal JSON", () => {
    const { sent, read } = typeAndValue(results);
    expect(read).toEqual(sent);
  });

  test("accepted events return byte for byte if the protocol has one spelling", () => {
    const { sent, read } = unchangedTexts(results);
    expect(read).toEqual(sent);
    expect(sent.length).toBeGreaterThan(0);
  });

  test("accepted events have one number each, in order, and the run that is open", () => {
    expect(results.flatMap(({ rows }) => streamProblems(rows))).toEqual([]);
    expect(results.flatMap(({ rows }) => rows).every((row) => row.eventCount === 1)).toBe(true);
  });

  test("a second push in another process stores nothing", async () => {
    const some = results.find(({ rows }) => rows.length >= 50);
    if (some === undefined) throw new Error("no stream is that long");
    const { sessionId, stream, rows } = some;
    const args = ["push", "-s", sessionId, "-a", service.grpcAddress, "--json"];
    const input = linesOf(stream).join("\n");
    const { summary } = pushRun(await runCommand(args, { input }));
    expect(summary).toMatchObject({ pushed: 0, deduplicated: rows.length });
    expect(await eventRowsOf(service.grpcAddress, sessionId)).toEqual(rows);
  });
});

test("hand-written streams are all accepted, and return in the spelling of the protocol", async () => {
  const results = await allThroughLedger("own", ownStreams());
  expect(results.flatMap(refusedOf)).toEqual([]);
  const values = typeAndValue(results);
  expect(values.read).toEqual(values.sent);
  const texts = unchangedTexts(results);
  expect(texts.read).toEqual(texts.sent);
  expect(results.flatMap(({ rows }) => streamProblems(rows))).toEqual([]);
});

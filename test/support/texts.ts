/** Rows with texts, the index of search over them, and questions to it. */
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics, type Metrics } from "../../src/observability/metrics.ts";
import { append } from "../../src/store/append.ts";
import type { Database } from "../../src/store/database.ts";
import { createReader } from "../../src/store/reader.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { createSession } from "../../src/store/sessions.ts";
import { findTexts, type SearchPage, type SearchRequest } from "../../src/search/find.ts";
import { TextIndex, type IndexOptions } from "../../src/search/index-unit.ts";
import { newPush, newRow, type NewRow } from "./ledger.ts";

const log = createLogTo({ write: () => undefined }, "silent");

type Reader = ConstructorParameters<typeof TextIndex>[0]["reader"];

interface Indexing extends Partial<IndexOptions> {
  readonly reader?: Partial<Reader>;
  readonly metrics?: Metrics;
  readonly clock?: { monotonicMs(): number };
}

export function textIndex(database: Database, more: Indexing = {}): TextIndex {
  const { metrics = createMetrics(), clock = { monotonicMs: () => performance.now() } } = more;
  const reader = { ...createReader(database), ...more.reader };
  const options = { holder: "test", language: "english", isGentle: false, ...more };
  return new TextIndex({ database, reader, clock, log, metrics }, options);
}

export async function madeSession(
  database: Database,
  id: string,
  projectId: string,
): Promise<void> {
  const texts = {
    prompt: undefined,
    llmModel: undefined,
    labels: undefined,
    annotations: undefined,
  };
  const others = { parentSessionId: undefined, createdByUserId: undefined };
  await createSession(database, { id, name: id, projectId, ...texts, ...others });
}

export const NO_FILTER: Omit<SearchRequest, "query"> = {
  language: "english",
  scope: { projectId: undefined, sessionId: undefined },
  projectId: "",
  agentId: "",
  labels: {},
  sessionId: "",
  role: "",
  eventType: "",
  afterMicros: undefined,
  beforeMicros: undefined,
  isBestFirst: false,
  textsMax: 20,
  cursor: undefined,
};

export async function pageOf(
  database: Database,
  query: string,
  more: Partial<SearchRequest> = {},
): Promise<SearchPage> {
  const page = await findTexts(database, { query, ...NO_FILTER, ...more });
  if (page === undefined) throw new Error(`no word is in ${query}`);
  return page;
}

/** `session stream seq role: excerpt`, with matches in brackets. */
export async function linesFor(
  database: Database,
  query: string,
  more: Partial<SearchRequest> = {},
): Promise<readonly string[]> {
  const { found } = await pageOf(database, query, more);
  return found.map(({ key, stream, seq, role, excerpt }) => {
    const text = excerpt.map((piece) => (piece.isMatch ? `[${piece.text}]` : piece.text)).join("");
    return `${key.sessionId} ${stream} ${seq} ${role}: ${text}`;
  });
}

let micros = 1_700_000_000_000_000n;

/** An event, with the marks of runs. */
export function event(value: { readonly type: string } & Record<string, unknown>): NewRow {
  const { type, runId } = value;
  micros += 1_000n;
  const row = { eventType: type, payload: JSON.stringify(value), createdAtMicros: micros };
  if (type === "RUN_STARTED")
    return newRow({ ...row, mark: { kind: "open", runId: String(runId) } });
  const isEnd = type === "RUN_FINISHED" || type === "RUN_ERROR";
  return newRow({ ...row, mark: isEnd ? { kind: "close" } : undefined });
}

export function said(eventType: string, payload: string): NewRow {
  micros += 1_000n;
  return newRow({ eventType, payload, createdAtMicros: micros });
}

/** The events of a message. */
export function spoken(messageId: string, text: string, role = "assistant"): readonly NewRow[] {
  const kind = role === "reasoning" ? "REASONING_MESSAGE" : "TEXT_MESSAGE";
  const half = Math.ceil(text.length / 2);
  return [
    event({ type: `${kind}_START`, messageId, role }),
    event({ type: `${kind}_CONTENT`, messageId, delta: text.slice(0, half) }),
    event({ type: `${kind}_CONTENT`, messageId, delta: text.slice(half) || "." }),
    event({ type: `${kind}_END`, messageId }),
  ];
}

export function run(runId: string, ...rows: readonly NewRow[]): readonly NewRow[] {
  const ids = { threadId: "t", runId };
  return [event({ type: "RUN_STARTED", ...ids }), ...rows, event({ type: "RUN_FINISHED", ...ids })];
}

export async function push(
  database: Database,
  { sessionId, stream = "events" }: { readonly sessionId: string; readonly stream?: StreamName },
  rows: readonly NewRow[],
): Promise<void> {
  for (const row of rows) {
    const [outcome] = await append(database, [newPush(sessionId, { stream, rows: [row] })], {
      createMissing: true,
      wait: true,
    });
    if (outcome?.kind !== "stored") throw new Error(outcome?.kind);
  }
}

/**
 * Takes over a database of the upstream service: its sessions, then its messages, then its events,
 * in the order of their upstream numbers.
 *
 *   page of the source ──► convert ──► one transaction: rows, map, counts, progress ──► next page
 *
 * One page is in memory. A batch that fails because of the database is repeated from the progress
 * in the ledger. So no row is lost or stored twice, even when an answer is lost.
 */
import { setTimeout as delay } from "node:timers/promises";
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { ServiceError } from "@session-ledger/base/errors";
import { isSessionId } from "@session-ledger/base/ids";
import type { Database } from "../../src/store/database.ts";
import { type ImportReport, Tally } from "./report.ts";
import {
  readColumns,
  readDeleted,
  readSessionsUpTo,
  readSourcePage,
  readSourceSessions,
  type SourceColumns,
  type SourceSession,
} from "./source.ts";
import {
  countMissing,
  type ImportBatch,
  importBatch,
  importProgress,
  type ImportRefusal,
  importSessions,
  previewBatch,
  stillRefused,
  timeNow,
} from "./target.ts";
import type { ImportRow } from "./write.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { convert, type Redaction } from "./convert.ts";

const SESSIONS_MAX = 500;
/**
 * The limit of payload bytes: a page is held as it was read, as rows, and as the JSON of a
 * statement.
 */
const PAGE_BYTES_MAX = 8 * 1024 * 1024;
const TRIES_MAX = 8;
const RETRY: Backoff = { minMs: 100, maxMs: 5_000 };

export interface ImportParts {
  readonly source: Database;
  readonly target: Database;
  /** Absent: nothing is redacted. */
  readonly redaction?: Redaction | undefined;
  /** Called after each page. */
  readonly progressed?: (report: ImportReport) => void;
}

export interface ImportOptions {
  /** The name under which the ledger keeps the progress. */
  readonly sourceName: string;
  /** True: read, check and count all rows, and write nothing. */
  readonly dryRun: boolean;
  /** Rows of one page, and of one transaction. */
  readonly batchRowsMax: number;
  /** Ends the import after the current page. */
  readonly signal: AbortSignal;
}

export async function importLedger(
  parts: ImportParts,
  options: ImportOptions,
): Promise<ImportReport> {
  const columns = await again(options.signal, () => readColumns(parts.source));
  refuseOther(columns);
  const recordedAtMicros = await again(options.signal, () => timeNow(parts.target));
  const importing = new Import(parts, { ...options, recordedAtMicros }, columns);
  await importing.sessions();
  for (const stream of ["messages", "events"] as const) await importing.stream(stream);
  return importing.tally.report();
}

function refuseOther({ messages, events }: SourceColumns): void {
  if (messages.size === 0 && events.size === 0) {
    refuse("the source has neither session_messages nor session_events");
  }
  if (messages.has("recorded_at") || events.has("recorded_at")) {
    refuse("the source is a database of session-ledger itself");
  }
  for (const [table, has] of Object.entries({ messages, events })) {
    const missing = NEEDED.filter((column) => has.size > 0 && !has.has(column));
    if (missing.length > 0) refuse(`session_${table} of the source has no ${missing.join(", ")}`);
  }
}

function refuse(message: string): never {
  throw new ServiceError("failed_precondition", "IMPORT_REFUSED", message);
}

const NEEDED = ["id", "session_id", "seq", "event_type", "payload", "created_at"];

class Import {
  readonly tally: Tally;
  readonly #parts: ImportParts;
  readonly #options: ImportOptions & Pick<ImportBatch, "recordedAtMicros">;
  readonly #columns: SourceColumns;

  constructor(
    parts: ImportParts,
    options: ImportOptions & Pick<ImportBatch, "recordedAtMicros">,
    columns: SourceColumns,
  ) {
    this.#parts = parts;
    this.#options = options;
    this.#columns = columns;
    this.tally = new Tally({ source: options.sourceName, dryRun: options.dryRun });
  }

  async sessions(): Promise<void> {
    const { source, target, redaction } = this.#parts;
    const { dryRun, signal } = this.#options;
    let after = "";
    while (!signal.aborted) {
      const from = { after, sessionsMax: SESSIONS_MAX };
      const page = await this.#again(() => readSourceSessions(source, this.#columns, from));
      const usable = page
        .filter(({ id }) => isSessionId(id))
        .map((session) => (redaction ? redacted(session, redaction) : session));
      const made = await this.#again(() =>
        dryRun
          ? countMissing(
              target,
              usable.map(({ id }) => id),
            )
          : importSessions(target, usable),
      );
      this.tally.sessions({ read: page.length, made });
      const last = page.at(-1);
      if (last === undefined || page.length < SESSIONS_MAX) return;
      after = last.id;
    }
  }

  async stream(stream: StreamName): Promise<void> {
    const { signal } = this.#options;
    let after = await this.#again(() => this.#progress(stream));
    if (after > 0n) await this.#passedOver(stream, after);
    while (!signal.aborted) {
      const next = await this.#again(() => this.#page(stream, after));
      if (next === undefined) return;
      if (next === "moved") after = await this.#again(() => this.#progress(stream));
      else after = next;
      this.#parts.progressed?.(this.tally.report());
    }
  }

  /** The report of this run also lists the sessions that earlier runs have refused. */
  async #passedOver(stream: StreamName, upTo: bigint): Promise<void> {
    const { source, target } = this.#parts;
    let after = "";
    while (!this.#options.signal.aborted) {
      const from = { stream, upTo, after, sessionsMax: SESSIONS_MAX };
      const page = await this.#again(() => readSessionsUpTo(source, this.#columns, from));
      const passed = page.filter(({ sessionId }) => isSessionId(sessionId));
      const ids = passed.map(({ sessionId }) => sessionId);
      const refusals = await this.#again(async () => {
        const deleted = await readDeleted(source, this.#columns, ids);
        return stillRefused(target, { stream, passed, deleted });
      });
      for (const { sessionId } of page) {
        const refusal = refusalOf(sessionId, refusals);
        if (refusal !== undefined) this.tally.refuse(sessionId, refusal);
      }
      const last = page.at(-1);
      if (last === undefined || page.length < SESSIONS_MAX) return;
      after = last.sessionId;
    }
  }

  /** The last number of the page; undefined: no more rows. */
  async #page(stream: StreamName, after: bigint): Promise<bigint | "moved" | undefined> {
    const { source, target, redaction } = this.#parts;
    const { sourceName, dryRun, batchRowsMax: rowsMax, recordedAtMicros } = this.#options;
    if (!dryRun) {
      // An earlier try may have been committed although its answer was lost.
      if ((await this.#progress(stream)) !== after) return "moved";
    }
    const page = { stream, after, rowsMax, bytesMax: PAGE_BYTES_MAX };
    const read = await readSourcePage(source, this.#columns, page);
    const upTo = read.at(-1)?.oldSeq;
    if (upTo === undefined) return undefined;
    const converted = read.map((row) => ({ row, ...convert(stream, row, redaction) }));
    const usable = converted.filter(({ row }) => isSessionId(row.sessionId));
    const rows = usable.map(({ row, rows: became }): ImportRow => {
      const { sessionId, oldSeq } = row;
      return { sessionId, oldSeq, rows: became };
    });
    const ids = [...new Set(rows.map(({ sessionId }) => sessionId))];
    const deleted = await readDeleted(source, this.#columns, ids);
    const outcome = dryRun
      ? await previewBatch(target, { stream, rows, deleted })
      : await importBatch(target, {
          source: sourceName,
          stream,
          after,
          upTo,
          rows,
          deleted,
          recordedAtMicros,
        });
    if (outcome === "moved") return "moved";
    const known = new Set(
      [...outcome.known].map(({ oldSeq, sessionId }) => `${oldSeq} ${sessionId}`),
    );
    for (const { row, rows: became, fault } of converted) {
      const refusal = refusalOf(row.sessionId, outcome.refusals);
      const isKnown = known.has(`${row.oldSeq} ${row.sessionId}`);
      this.tally.row(stream, { row, became: became.length, fault, refusal, isKnown });
    }
    return upTo;
  }

  #progress(stream: StreamName): Promise<bigint> {
    return importProgress(this.#parts.target, { source: this.#options.sourceName, stream });
  }

  #again<T>(attempt: () => Promise<T>): Promise<T> {
    return again(this.#options.signal, attempt);
  }
}

/**
 * Every statement of an import runs through this function: a database may be lost before any of
 * them.
 */
async function again<T>(signal: AbortSignal, attempt: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await attempt();
    } catch (error) {
      const isPassing = error instanceof ServiceError && error.code === "unavailable";
      if (!isPassing || tries === TRIES_MAX || signal.aborted) throw error;
      const pauseMs = backoffMs(RETRY, tries - 1, Math.random());
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }
}

/** Redacts the texts that CreateSession would redact. */
function redacted(session: SourceSession, { text }: Redaction): SourceSession {
  const of = (value: string | undefined): string | undefined => value && text(value);
  const { name, prompt, labels, annotations } = session;
  return {
    ...session,
    name: of(name),
    prompt: of(prompt),
    labels: of(labels),
    annotations: of(annotations),
  };
}

function refusalOf(
  sessionId: string,
  refusals: ReadonlyMap<string, ImportRefusal>,
): ImportRefusal | "id_not_usable" | undefined {
  return isSessionId(sessionId) ? refusals.get(sessionId) : "id_not_usable";
}

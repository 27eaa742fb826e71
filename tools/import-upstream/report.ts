/** The results of an import, counted during its run; lists are bounded, their counts are not. */
import type { StreamName } from "../../src/store/rows.ts";
import type { SourceRow } from "./source.ts";
import type { ImportRefusal } from "./target.ts";

/** Rows and sessions that a report lists by name. */
const NAMED_MAX = 100;
/** Above it, sessions are still refused, and not counted separately any more. */
const REFUSED_SESSIONS_MAX = 100_000;

export interface StreamReport {
  /** Rows of the source that were read. */
  readonly read: number;
  /** Rows that were written for them. */
  readonly written: number;
  /** Rows of the source that became several rows. */
  readonly split: number;
  /** Rows that no version of the protocol accepts; they are written too. */
  readonly malformed: number;
  /** Rows of sessions that were refused. */
  readonly refused: number;
  /** Rows that were imported before. */
  readonly known: number;
}

export interface ImportReport {
  readonly source: string;
  readonly dryRun: boolean;
  readonly sessions: { readonly read: number; readonly made: number; readonly refused: number };
  readonly messages: StreamReport;
  readonly events: StreamReport;
  readonly refusedSessions: readonly RefusedSession[];
  readonly malformedRows: readonly MalformedRow[];
}

export type Refusal = ImportRefusal | "id_not_usable";

export interface RefusedSession {
  readonly sessionId: string;
  readonly reason: Refusal;
}

export interface MalformedRow {
  readonly stream: StreamName;
  readonly oldSeq: string;
  readonly sessionId: string;
  readonly fault: string;
}

type Counts = { -readonly [K in keyof StreamReport]: StreamReport[K] };

export interface RowFate {
  readonly row: SourceRow;
  readonly became: number;
  readonly fault: string | undefined;
  readonly refusal: Refusal | undefined;
  readonly isKnown: boolean;
}

export class Tally {
  readonly #of: { readonly source: string; readonly dryRun: boolean };
  readonly #sessions = { read: 0, made: 0 };
  readonly #counts: Readonly<Record<StreamName, Counts>> = { messages: none(), events: none() };
  readonly #refused = new Map<string, Refusal>();
  readonly #malformed: MalformedRow[] = [];

  constructor(of: { readonly source: string; readonly dryRun: boolean }) {
    this.#of = of;
  }

  sessions({ read, made }: { readonly read: number; readonly made: number }): void {
    this.#sessions.read += read;
    this.#sessions.made += made;
  }

  /** Also for a session whose rows an earlier run has skipped. */
  refuse(sessionId: string, refusal: Refusal): void {
    if (this.#refused.size < REFUSED_SESSIONS_MAX) this.#refused.set(sessionId, refusal);
  }

  row(stream: StreamName, { row, became, fault, refusal, isKnown }: RowFate): void {
    const counts = this.#counts[stream];
    const { sessionId } = row;
    counts.read += 1;
    if (refusal !== undefined) {
      counts.refused += 1;
      this.refuse(sessionId, refusal);
      return;
    }
    if (isKnown) {
      counts.known += 1;
      return;
    }
    counts.written += became;
    if (became > 1) counts.split += 1;
    if (fault === undefined) return;
    counts.malformed += 1;
    if (this.#malformed.length === NAMED_MAX) return;
    this.#malformed.push({ stream, oldSeq: row.oldSeq.toString(), sessionId, fault });
  }

  report(): ImportReport {
    const { messages, events } = this.#counts;
    const refused = [...this.#refused].slice(0, NAMED_MAX);
    return {
      ...this.#of,
      sessions: { ...this.#sessions, refused: this.#refused.size },
      messages: { ...messages },
      events: { ...events },
      refusedSessions: refused.map(([sessionId, reason]) => ({ sessionId, reason })),
      malformedRows: [...this.#malformed],
    };
  }
}

function none(): Counts {
  return { read: 0, written: 0, split: 0, malformed: 0, refused: 0, known: 0 };
}

/** The list of sessions as the page holds it: the newest activity first; pure. */

/** The part of the API's session that the list shows; numbers of 64 bits are text. */
export interface SessionJson {
  readonly metadata: { readonly id: string; readonly createdAt: string };
  readonly name: string;
  readonly projectId?: string;
  readonly phase?: string;
  readonly llmModel?: string;
  readonly lastActivityAt?: string;
  readonly messageSeq: string;
  readonly eventSeq: string;
  readonly rows: string;
  readonly payloadBytes: string;
  readonly openRunId?: string;
  readonly waiting: string;
  readonly failure?: {
    readonly runId: string;
    readonly seq: string;
    readonly message: string;
    readonly code: string;
    readonly at: string;
  };
}

/** How the last ended run failed. */
export interface Failure {
  readonly seq: number;
  readonly message: string;
  readonly code: string;
  readonly atMs: number;
}

export interface SessionItem {
  readonly id: string;
  readonly name: string;
  readonly projectId: string;
  readonly phase: string;
  readonly createdMs: number;
  /** Undefined: it has no row yet. */
  readonly activityMs: number | undefined;
  readonly messages: number;
  readonly events: number;
  readonly rows: number;
  readonly bytes: number;
  readonly openRunId: string | undefined;
  /** Messages that wait for a turn. */
  readonly waiting: number;
  readonly failure: Failure | undefined;
}

export interface SessionFilter {
  readonly query: string;
  readonly projectId: string;
  readonly phase: string;
  readonly isRunning: boolean;
}

export function itemOf(session: SessionJson): SessionItem {
  const { metadata, failure, lastActivityAt } = session;
  return {
    id: metadata.id,
    name: session.name,
    projectId: session.projectId ?? "",
    phase: session.phase ?? "",
    createdMs: Date.parse(metadata.createdAt),
    activityMs: lastActivityAt === undefined ? undefined : Date.parse(lastActivityAt),
    messages: Number(session.messageSeq),
    events: Number(session.eventSeq),
    rows: Number(session.rows),
    bytes: Number(session.payloadBytes),
    openRunId: session.openRunId,
    waiting: Number(session.waiting),
    failure: failure && {
      seq: Number(failure.seq),
      message: failure.message,
      code: failure.code,
      atMs: Date.parse(failure.at),
    },
  };
}

/** The filter of the service, for sessions that a stream tells: a stream has fewer filters. */
export function matches(item: SessionItem, filter: SessionFilter): boolean {
  const query = filter.query.toLowerCase();
  return (
    (!filter.isRunning || item.openRunId !== undefined) &&
    (filter.phase === "" || item.phase === filter.phase) &&
    (filter.projectId === "" || item.projectId === filter.projectId) &&
    [item.name, item.id].some((text) => text.toLowerCase().includes(query))
  );
}

/** The list with some sessions new or changed, in order. */
export function withSessions(
  items: readonly SessionItem[],
  changed: readonly SessionItem[],
): readonly SessionItem[] {
  const byId = new Map(items.map((item) => [item.id, item]));
  for (const item of changed) byId.set(item.id, item);
  return [...byId.values()].toSorted(byActivity);
}

export function withoutSession(items: readonly SessionItem[], id: string): readonly SessionItem[] {
  return items.some((item) => item.id === id) ? items.filter((item) => item.id !== id) : items;
}

/** As the service orders them. */
function byActivity(left: SessionItem, right: SessionItem): number {
  const [a, b] = [left.activityMs ?? left.createdMs, right.activityMs ?? right.createdMs];
  if (a !== b) return b - a;
  return left.id < right.id ? 1 : left.id > right.id ? -1 : 0;
}

/** The list of sessions as the page holds it: the newest activity first; pure. */
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { type StateName, stateNameOf } from "@session-ledger/react/internal/model/standing";

/** The part of the API's session that the list shows; numbers of 64 bits are text. */
export interface SessionJson {
  readonly metadata: { readonly id: string; readonly createdAt: string };
  readonly name: string;
  readonly projectId?: string;
  readonly phase?: string;
  readonly agentId?: string;
  readonly llmModel?: string;
  readonly labels?: string;
  readonly hold?: string;
  readonly capabilities?: string;
  readonly lastActivityAt?: string;
  readonly openRunId?: string;
  readonly state: string;
  readonly stateSince?: string;
  readonly facts?: {
    readonly lastText: string;
    readonly lastRole: string;
    readonly runs: number;
    readonly duration?: string;
    readonly inputTokens: string;
    readonly outputTokens: string;
    readonly models: readonly string[];
    readonly toolCalls: number;
    readonly failedToolCalls: number;
    readonly tools: readonly string[];
  };
  readonly failure?: {
    readonly seq: string;
    readonly message: string;
    readonly code: string;
  };
}

/** How the last ended run failed. */
export interface Failure {
  readonly seq: number;
  readonly message: string;
  readonly code: string;
}

export interface Facts {
  readonly lastText: string;
  readonly lastRole: string;
  readonly runs: number;
  readonly durationMs: number;
  readonly tokens: number;
  readonly models: readonly string[];
  readonly toolCalls: number;
  readonly failedToolCalls: number;
  readonly tools: readonly string[];
}

export interface SessionItem {
  readonly id: string;
  readonly name: string;
  readonly projectId: string;
  readonly phase: string;
  /** By its id, or as its capabilities name it; empty: not known. */
  readonly agent: string;
  readonly agentId: string;
  readonly model: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly isHeld: boolean;
  readonly createdMs: number;
  /** Undefined: it has no row yet. */
  readonly activityMs: number | undefined;
  readonly openRunId: string | undefined;
  readonly state: StateName;
  readonly stateSinceMs: number | undefined;
  /** Undefined: not read yet. */
  readonly facts: Facts | undefined;
  readonly failure: Failure | undefined;
}

export interface SessionFilter {
  readonly query: string;
  readonly projectId: string;
  readonly agentId: string;
  /** `key=value`; empty: any. */
  readonly label: string;
  readonly state: StateName | "";
  /** Active in this time before now; 0: at any time. */
  readonly withinMs: number;
}

export function itemOf(session: SessionJson): SessionItem {
  const { metadata, failure, lastActivityAt, stateSince, agentId = "" } = session;
  return {
    id: metadata.id,
    name: session.name,
    projectId: session.projectId ?? "",
    phase: session.phase ?? "",
    agent: agentId || agentIn(session.capabilities),
    agentId,
    model: session.llmModel ?? session.facts?.models[0] ?? "",
    labels: labelsIn(session.labels),
    isHeld: session.hold !== undefined,
    createdMs: Date.parse(metadata.createdAt),
    activityMs: lastActivityAt === undefined ? undefined : Date.parse(lastActivityAt),
    openRunId: session.openRunId,
    state: stateNameOf(session.state),
    stateSinceMs: stateSince === undefined ? undefined : Date.parse(stateSince),
    facts: session.facts && factsOf(session.facts),
    failure: failure && {
      seq: Number(failure.seq),
      message: failure.message,
      code: failure.code,
    },
  };
}

function factsOf(facts: NonNullable<SessionJson["facts"]>): Facts {
  return {
    ...facts,
    durationMs: Number.parseFloat(facts.duration ?? "0") * 1_000,
    tokens: Number(facts.inputTokens) + Number(facts.outputTokens),
  };
}

/** AgentCapabilities of AG-UI may name the agent. */
function agentIn(capabilities = ""): string {
  const { identity } = objectIn(capabilities);
  return isObject(identity) && typeof identity["name"] === "string" ? identity["name"] : "";
}

/** The labels that are texts; other values are not found by a filter either. */
export function labelsIn(labels = ""): ReadonlyMap<string, string> {
  const pairs = Object.entries(objectIn(labels));
  return new Map(pairs.filter((pair): pair is [string, string] => typeof pair[1] === "string"));
}

function objectIn(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

/** The filter of the service, for sessions that a stream tells: a stream has fewer filters. */
export function matches(item: SessionItem, filter: SessionFilter): boolean {
  const query = filter.query.toLowerCase();
  const [key = "", ...value] = filter.label.split("=");
  return (
    (filter.state === "" || item.state === filter.state) &&
    (filter.projectId === "" || item.projectId === filter.projectId) &&
    (filter.agentId === "" || item.agentId === filter.agentId) &&
    (filter.label === "" || item.labels.get(key) === value.join("=")) &&
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

/** The values of a session, as people see them. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { type Session, SessionState } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { timeText } from "@session-ledger/runner/internal/rows";
import { type Column, column, wide } from "./table.ts";

export function idOf(session: Session): string {
  return session.metadata?.id ?? "";
}

type SessionColumn = Column<Session>;
const field = column<Session>;

const CREATED = field("CREATED", ({ metadata }) => seconds(metadata?.createdAt), 20);
const ACTIVE = field("LAST ACTIVITY", ({ lastActivityAt }) => seconds(lastActivityAt), 20);
const PHASE: SessionColumn = {
  ...field("PHASE", ({ phase = "" }) => phase, 9),
  style: ({ phase = "" }) => PHASE_STYLES.get(phase),
};
/** The states of sessions by their words: `waiting_for_person`. */
export const STATES: ReadonlyMap<string, SessionState> = new Map(
  Object.entries(SessionState)
    .filter(([, state]) => state !== SessionState.UNSPECIFIED)
    .map(([name, state]) => [name.toLowerCase(), state]),
);

const STATE: SessionColumn = {
  ...field("STATE", ({ state }) => stateWord(state), 18),
  style: ({ state }) => STATE_STYLES.get(stateWord(state)),
};

export function stateWord(state: SessionState): string {
  return [...STATES].find(([, number]) => number === state)?.[0] ?? "";
}
/** Ids are often UUIDs. */
const ID = field("ID", idOf, 36);
const NAME = field("NAME", ({ name }) => name);
const MESSAGES = field("MESSAGES", ({ messageSeq }) => String(messageSeq), 8);
const EVENTS = field("EVENTS", ({ eventSeq }) => String(eventSeq), 8);
const WAITING = field("WAITING", ({ waiting }) => String(waiting), 7);
const OPEN_RUN = field("OPEN RUN", ({ openRunId = "" }) => openRunId, 36);
const PROJECT = field("PROJECT", ({ projectId = "" }) => projectId, 16);

const PHASE_STYLES = new Map<string, "green" | "yellow" | "red">([
  ["Pending", "yellow"],
  ["Creating", "yellow"],
  ["Running", "green"],
  ["Stopping", "yellow"],
  ["Failed", "red"],
]);

const STATE_STYLES = new Map<string, "green" | "yellow" | "red">([
  ["running", "green"],
  ["waiting_for_runner", "yellow"],
  ["waiting_for_person", "yellow"],
  ["failed", "red"],
]);

export const COLUMNS: readonly SessionColumn[] = [
  CREATED,
  ACTIVE,
  STATE,
  ID,
  ...[PHASE, MESSAGES, EVENTS, WAITING, OPEN_RUN, PROJECT].map((one) => wide(one)),
  NAME,
];

export const FIELDS: readonly SessionColumn[] = [
  ID,
  NAME,
  STATE,
  PHASE,
  CREATED,
  ACTIVE,
  MESSAGES,
  EVENTS,
  WAITING,
  OPEN_RUN,
  PROJECT,
  field("ROWS", ({ rows }) => String(rows)),
  field("BYTES", ({ payloadBytes }) => String(payloadBytes)),
  field("MODEL", ({ llmModel = "" }) => llmModel),
  field("AGENT", ({ agentId = "" }) => agentId),
  field("CREATED BY", ({ createdByUserId = "" }) => createdByUserId),
  field("PARENT", ({ parentSessionId = "" }) => parentSessionId),
  field("FORKED AT", ({ forkedAtSeq, forkedAtMessageSeq }) =>
    forkedAtSeq !== undefined
      ? `event ${forkedAtSeq}`
      : forkedAtMessageSeq === undefined
        ? ""
        : `message ${forkedAtMessageSeq}`,
  ),
  field("FORKS", ({ forks }) => forks.join(" ")),
  field("STARTED", ({ startTime }) => seconds(startTime)),
  field("COMPLETED", ({ completionTime }) => seconds(completionTime)),
  field("HOLD", ({ hold = "" }) => hold),
  field("LABELS", ({ labels = "" }) => labels),
  wide(field("ANNOTATIONS", ({ annotations = "" }) => annotations)),
  wide(field("PROMPT", ({ prompt = "" }) => prompt)),
];

/** RFC 3339 without the fraction: a person compares minutes. */
export function seconds(time: Timestamp | undefined): string {
  return timeText(time).replace(/\.\d+Z$/, "Z");
}

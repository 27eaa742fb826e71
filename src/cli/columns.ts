/** The values of a session, as people see them. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Session } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { timeText } from "@session-ledger/runner/internal/rows";
import type { Column } from "./table.ts";

export function idOf(session: Session): string {
  return session.metadata?.id ?? "";
}

type SessionColumn = Column<Session>;

const CREATED: SessionColumn = {
  heading: "CREATED",
  width: 20,
  text: ({ metadata }) => seconds(metadata?.createdAt),
};
const ACTIVE: SessionColumn = {
  heading: "LAST ACTIVITY",
  width: 20,
  text: ({ lastActivityAt }) => seconds(lastActivityAt),
};
const PHASE: SessionColumn = {
  heading: "PHASE",
  width: 9,
  text: ({ phase = "" }) => phase,
  style: ({ phase = "" }) => PHASE_STYLES.get(phase),
};
/** Ids are often UUIDs. */
const ID: SessionColumn = { heading: "ID", width: 36, text: idOf };
const NAME: SessionColumn = { heading: "NAME", width: 0, text: ({ name }) => name };
const MESSAGES: SessionColumn = {
  heading: "MESSAGES",
  width: 8,
  text: ({ messageSeq }) => String(messageSeq),
};
const EVENTS: SessionColumn = {
  heading: "EVENTS",
  width: 8,
  text: ({ eventSeq }) => String(eventSeq),
};
const WAITING: SessionColumn = {
  heading: "WAITING",
  width: 7,
  text: ({ waiting }) => String(waiting),
};
const OPEN_RUN: SessionColumn = {
  heading: "OPEN RUN",
  width: 36,
  text: ({ openRunId = "" }) => openRunId,
};
const PROJECT: SessionColumn = {
  heading: "PROJECT",
  width: 16,
  text: ({ projectId = "" }) => projectId,
};

const PHASE_STYLES = new Map<string, "green" | "yellow" | "red">([
  ["Pending", "yellow"],
  ["Creating", "yellow"],
  ["Running", "green"],
  ["Stopping", "yellow"],
  ["Failed", "red"],
]);

/** The columns of a list. */
export const COLUMNS: readonly SessionColumn[] = [
  CREATED,
  ACTIVE,
  PHASE,
  ID,
  ...[MESSAGES, EVENTS, WAITING, OPEN_RUN, PROJECT].map((column) => wide(column)),
  NAME,
];

/** The lines of one session. */
export const FIELDS: readonly SessionColumn[] = [
  ID,
  NAME,
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

function field(heading: string, text: SessionColumn["text"]): SessionColumn {
  return { heading, width: 0, text };
}

function wide<R>(column: Column<R>): Column<R> {
  return { ...column, isWide: true };
}

/** RFC 3339 without the fraction: a person compares minutes. */
export function seconds(time: Timestamp | undefined): string {
  return timeText(time).replace(/\.\d+Z$/, "Z");
}

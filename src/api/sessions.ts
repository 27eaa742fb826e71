/** The records of sessions: create, read, list, update the status, delete. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { v7 as uuidv7 } from "uuid";
import type {
  CreateSessionRequest,
  Session,
  SessionService,
} from "../../gen/ambient/v1/sessions_pb.ts";
import { userIdOf } from "../auth/principal.ts";
import { invalidArgument, type Violation } from "../base/errors.ts";
import type { Redactor } from "../redaction/redactor.ts";
import { sessionNotFound } from "../store/failure.ts";
import type {
  NewSession,
  SessionList,
  SessionRecord,
  SessionsPage,
  SessionStatus,
} from "../store/sessions.ts";
import { type Check, checkTextBytes, checkTime, violationsOf } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { checkSessionId } from "../contract/session-id.ts";
import { microsOf, timestampOf } from "../contract/times.ts";
import type { ErasedSession } from "../maintenance/erase.ts";

const NAME_BYTES_MAX = 1_024;
const TEXT_BYTES_MAX = 64 * 1_024;
const PROMPT_BYTES_MAX = 1_024 * 1_024;
const LIST_SIZE_DEFAULT = 100;
const LIST_SIZE_MAX = 1_000;
/** On deeper pages the database would skip too many rows for nothing. */
const LIST_PAGE_MAX = 100_000;
const PHASES = ["Pending", "Creating", "Running", "Stopping", "Stopped", "Completed", "Failed"];

/** The methods of the store that these handlers need. */
export interface SessionStore {
  createSession(session: NewSession): Promise<SessionRecord>;
  getSession(id: string): Promise<SessionRecord | undefined>;
  listSessions(page: SessionsPage): Promise<SessionList>;
  updateSessionStatus(id: string, status: SessionStatus): Promise<SessionRecord | undefined>;
  deleteSession(id: string): Promise<boolean>;
}

type SessionHandlers = Pick<
  Handlers<typeof SessionService>,
  "createSession" | "getSession" | "listSessions" | "updateSessionStatus" | "deleteSession"
>;

export function createSessionHandlers(
  store: SessionStore,
  /** Called after the deletion is committed. */
  deleted: (sessionId: string) => void,
  redactor?: Redactor,
): SessionHandlers {
  return {
    async createSession(request, { principal }) {
      refuse(newSessionChecks(request));
      const { llmModel, parentSessionId } = request;
      const { name, prompt, labels, annotations } = redactor
        ? redacted(request, redactor)
        : request;
      const session = {
        id: uuidv7(),
        name,
        prompt,
        llmModel,
        parentSessionId,
        labels,
        annotations,
      };
      const projectId = principal.projectId ?? request.projectId;
      const createdByUserId = userIdOf(principal);
      return toSession(await store.createSession({ ...session, projectId, createdByUserId }));
    },
    async getSession({ id }) {
      refuse([checkSessionId(id, "id")]);
      return toSession(found(id, await store.getSession(id)));
    },
    async listSessions(request, { principal: scope }) {
      refuse([
        inRange("page", request.page, LIST_PAGE_MAX),
        inRange("size", request.size, LIST_SIZE_MAX),
      ]);
      const page = request.page === 0 ? 1 : request.page;
      const size = request.size === 0 ? LIST_SIZE_DEFAULT : request.size;
      const { items, total } = await store.listSessions({ page, size, scope });
      return {
        $typeName: "ambient.v1.ListSessionsResponse",
        items: items.map(toSession),
        metadata: { $typeName: "ambient.v1.ListMeta", page, size: items.length, total },
      };
    },
    async updateSessionStatus(request) {
      const { id, phase, startTime, completionTime } = request;
      refuse([
        checkSessionId(id, "id"),
        checkPhase(phase),
        checkTime("start_time", startTime),
        checkTime("completion_time", completionTime),
      ]);
      const status = {
        phase,
        startTimeMicros: startTime && microsOf(startTime),
        completionTimeMicros: completionTime && microsOf(completionTime),
      };
      refuse([checkSpan(status)]);
      return toSession(found(id, await store.updateSessionStatus(id, status)));
    },
    async deleteSession({ id }) {
      refuse([checkSessionId(id, "id")]);
      if (!(await store.deleteSession(id))) throw sessionNotFound(id);
      deleted(id);
      return { $typeName: "ambient.v1.DeleteSessionResponse" };
    },
  };
}

type Texts = Pick<CreateSessionRequest, "name" | "prompt" | "labels" | "annotations">;

/** Redacts the free texts of people and programs; the other fields are ids and names of models. */
function redacted({ name, prompt, labels, annotations }: Texts, redactor: Redactor): Texts {
  const optional = given({
    prompt: prompt ?? null,
    labels: labels ?? null,
    annotations: annotations ?? null,
  });
  const texts = Object.entries(optional).map(([field, text]) => [field, redactor.text(text)]);
  return { name: redactor.text(name), ...Object.fromEntries(texts) };
}

function newSessionChecks(request: CreateSessionRequest): readonly Check[] {
  const { parentSessionId: parent } = request;
  return [
    request.name === "" ? { field: "name", description: "name is required" } : undefined,
    checkTextBytes("name", request.name, NAME_BYTES_MAX),
    checkTextBytes("prompt", request.prompt, PROMPT_BYTES_MAX),
    checkTextBytes("llm_model", request.llmModel, NAME_BYTES_MAX),
    parent === undefined ? undefined : checkSessionId(parent, "parent_session_id"),
    checkTextBytes("labels", request.labels, TEXT_BYTES_MAX),
    checkTextBytes("annotations", request.annotations, TEXT_BYTES_MAX),
    checkTextBytes("project_id", request.projectId, NAME_BYTES_MAX),
  ];
}

function checkPhase(phase: string | undefined): Check {
  if (phase === undefined || PHASES.includes(phase)) return undefined;
  return { field: "phase", description: `phase must be one of ${PHASES.join(", ")}` };
}

function checkSpan(status: SessionStatus): Check {
  const { startTimeMicros: start, completionTimeMicros: completion } = status;
  if (start === undefined || completion === undefined || completion >= start) return undefined;
  return {
    field: "completion_time",
    description: "completion_time must not be before start_time",
  };
}

function inRange(field: string, value: number, max: number): Violation | undefined {
  if (value >= 0 && value <= max) return undefined;
  return { field, description: `${field} must be 1 to ${max}, or 0 for the default` };
}

function refuse(checks: readonly Check[]): void {
  const violations = violationsOf(checks);
  if (violations.length > 0) throw invalidArgument(violations);
}

function found(id: string, record: SessionRecord | undefined): SessionRecord {
  if (record === undefined) throw sessionNotFound(id);
  return record;
}

function toSession(record: SessionRecord): Session {
  return {
    $typeName: "ambient.v1.Session",
    metadata: {
      $typeName: "ambient.v1.ObjectReference",
      id: record.id,
      createdAt: timestampOf(record.createdAtMicros),
      updatedAt: timestampOf(record.updatedAtMicros),
      kind: "Session",
      href: `/api/ambient/v1/sessions/${record.id}`,
    },
    name: record.name,
    ...given({
      prompt: record.prompt,
      createdByUserId: record.createdByUserId,
      llmModel: record.llmModel,
      parentSessionId: record.parentSessionId,
      labels: record.labels,
      annotations: record.annotations,
      projectId: record.projectId,
      phase: record.phase,
      agentId: record.agentId,
      openRunId: record.openRunId,
    }),
    ...given({
      startTime: optionalTime(record.startTimeMicros),
      completionTime: optionalTime(record.completionTimeMicros),
      lastActivityAt: optionalTime(record.lastActivityAtMicros),
    }),
    messageSeq: record.messageSeq,
    eventSeq: record.eventSeq,
    rows: record.rowCount,
    payloadBytes: record.payloadBytes,
    turnSeq: record.turnSeq,
    waiting: record.pendingCount,
  };
}

function optionalTime(micros: bigint | null): Timestamp | null {
  return micros === null ? null : timestampOf(micros);
}

/** Returns only the present fields: an absent optional field is not the same as an empty one. */
function given<K extends string, V>(fields: Record<K, V | null>): { [P in K]?: V } {
  const present: { [P in K]?: V } = {};
  for (const key in fields) {
    const value = fields[key];
    if (value !== null) present[key] = value;
  }
  return present;
}

/** Erases one session; retention erases the old beginnings of all sessions. */

/** The store, as this handler needs it. */
export interface EraseStore {
  /**
   * Calls `marked` once the session refuses every push. Returns undefined when there is no session
   * to erase.
   */
  eraseSession(
    sessionId: string,
    call: { readonly marked: () => void; readonly signal: AbortSignal },
  ): Promise<ErasedSession | undefined>;
}

export function createEraseHandlers(
  store: EraseStore,
  /** Called after the session is marked as deleted, and again when all of its rows are gone. */
  deleted: (sessionId: string) => void,
): Pick<Handlers<typeof SessionService>, "eraseSession"> {
  return {
    async eraseSession({ id }, { signal }) {
      const violations = violationsOf([checkSessionId(id, "id")]);
      if (violations.length > 0) throw invalidArgument(violations);
      const erased = await store.eraseSession(id, { marked: () => deleted(id), signal });
      if (erased === undefined) throw sessionNotFound(id);
      // A transcript that was requested before the mark may have been folded since.
      deleted(id);
      return { $typeName: "ambient.v1.EraseSessionResponse", ...erased };
    },
  };
}

/** The records of sessions: create, read, list, update, delete. */
import { create } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { v7 as uuidv7 } from "uuid";
import {
  type CreateSessionRequest,
  type ListSessionsRequest,
  type ListSessionsResponse,
  type Session,
  SessionOrder,
  SessionSchema,
  type SessionService,
  SessionState,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { validateCapabilities } from "@session-ledger/agui/validate";
import { userIdOf } from "../auth/principal.ts";
import { invalidArgument } from "@session-ledger/base/errors";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import type { Database } from "../store/database.ts";
import { deleteSession } from "../store/deletion.ts";
import { sessionNotFound } from "../store/failure.ts";
import { forksOf } from "../store/fork.ts";
import {
  type ListOrder,
  listSessions,
  type SessionsPage,
  WALKED_MAX,
} from "../store/session-list.ts";
import {
  createSession,
  getSession,
  type SessionChange,
  type SessionRecord,
  type SessionScope,
  stateOf,
  updateSession,
} from "../store/sessions.ts";
import {
  type Check,
  checkSessionId,
  checkSize,
  checkTextBytes,
  checkThat,
  refuse,
} from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { checkTimestamp, microsOf, timestampOf } from "../contract/times.ts";
import { STATES, stateNameOf } from "../contract/session-states.ts";
import { addExtras } from "./list-extras.ts";

const NAME_BYTES_MAX = 1_024;
const TEXT_BYTES_MAX = 64 * 1_024;
const PROMPT_BYTES_MAX = 1_024 * 1_024;
const LIST_SIZE_DEFAULT = 100;
const LIST_SIZE_MAX = 1_000;
const LABELS_MAX = 16;
const LABEL_BYTES_MAX = 1_024;
const ORDERS: ReadonlyMap<SessionOrder, ListOrder> = new Map([
  [SessionOrder.UNSPECIFIED, "newest"],
  [SessionOrder.ACTIVITY, "activity"],
  [SessionOrder.WAITING, "waiting"],
]);
const PHASES = ["Pending", "Creating", "Running", "Stopping", "Stopped", "Completed", "Failed"];

type SessionRecordHandlers = Pick<
  Handlers<typeof SessionService>,
  | "createSession"
  | "getSession"
  | "listSessions"
  | "updateSession"
  | "updateSessionStatus"
  | "deleteSession"
>;

/** Called after the commit. */
export interface SessionNews {
  /** A session was made, or its record was changed. */
  readonly onChange: (sessionId: string) => void;
  /** After the mark of an erasure, and again when all of its rows are deleted. */
  readonly onDelete: (sessionId: string) => void;
}

export function createSessionHandlers(
  database: Database,
  { onChange, onDelete }: SessionNews,
  redactor?: Redactor,
): SessionRecordHandlers {
  return {
    async createSession(request, { principal }) {
      refuse(newSessionChecks(request));
      const { llmModel, parentSessionId, agentId, name, prompt, labels, annotations } = request;
      const texts = { name, prompt, labels, annotations };
      const made = await createSession(database, {
        id: uuidv7(),
        llmModel,
        parentSessionId,
        agentId,
        ...(redactor ? redacted(texts, redactor) : texts),
        projectId: principal.projectId ?? request.projectId,
        createdByUserId: userIdOf(principal),
      });
      onChange(made.id);
      return toSession(made);
    },
    async getSession({ id }, { principal: scope }) {
      refuse([checkSessionId(id, "id")]);
      const [record, forks] = await Promise.all([
        getSession(database, id),
        forksOf(database, id, scope),
      ]);
      return { ...toSession(existing(id, record)), forks: [...forks] };
    },
    listSessions: (request, { principal }) => list(database, request, principal),
    async deleteSession({ id }) {
      refuse([checkSessionId(id, "id")]);
      if (!(await deleteSession(database, id))) throw sessionNotFound(id);
      onDelete(id);
      return { $typeName: "ambient.v1.DeleteSessionResponse" };
    },
    ...changeHandlers(database, onChange, redactor),
  };
}

async function list(
  database: Database,
  request: ListSessionsRequest,
  scope: SessionScope,
): Promise<ListSessionsResponse> {
  const page = request.page === 0 ? 1 : request.page;
  const size = request.size === 0 ? LIST_SIZE_DEFAULT : request.size;
  const order = orderOf(request);
  refuse([...pageChecks(request, { page, size }), ...filterChecks(request)]);
  const from = request.pageToken === "" ? (page - 1) * size : placeIn(request.pageToken, order);
  if (from === undefined) throw invalidArgument([WRONG_TOKEN]);
  const { activeAfter, activeBefore } = request;
  const filter = {
    ...request,
    state: stateNameOf(request.state),
    activeAfterMicros: activeAfter && microsOf(activeAfter),
    activeBeforeMicros: activeBefore && microsOf(activeBefore),
  };
  const listed = await listSessions(database, { from, size, scope, filter, order });
  const { total, next } = listed;
  const items = listed.items.map(toSession);
  await addExtras(database, items, request);
  return {
    $typeName: "ambient.v1.ListSessionsResponse",
    items,
    metadata: {
      $typeName: "ambient.v1.ListMeta",
      page,
      size: items.length,
      total: total.count,
      totalIsLowerBound: total.isLowerBound,
    },
    nextPageToken: next === undefined ? "" : tokenOf(order, { place: next, total }),
  };
}

function changeHandlers(
  database: Database,
  onChange: SessionNews["onChange"],
  redactor: Redactor | undefined,
): Pick<SessionRecordHandlers, "updateSession" | "updateSessionStatus"> {
  const clean = (json: string): string => redactor?.payload(json) ?? json;
  const update = async (id: string, change: SessionChange): Promise<Session> => {
    const record = existing(id, await updateSession(database, id, change));
    onChange(id);
    return toSession(record);
  };
  return {
    async updateSession(request) {
      const { id } = request;
      refuse([checkSessionId(id, "id"), ...textChecks(request)]);
      const { name, labels, annotations } = request;
      const texts = { name, labels, annotations };
      return update(id, redactor ? redacted(texts, redactor) : texts);
    },
    async updateSessionStatus(request) {
      const { id, phase, startTime, completionTime, capabilities, agentId } = request;
      refuse([
        checkSessionId(id, "id"),
        checkPhase(phase),
        checkTextBytes("agent_id", agentId, NAME_BYTES_MAX),
        startTime && checkTimestamp("start_time", startTime),
        completionTime && checkTimestamp("completion_time", completionTime),
        ...capabilitiesChecks(capabilities),
      ]);
      const status = {
        phase,
        agentId,
        capabilities: capabilities === "" ? null : capabilities && clean(capabilities),
        startTimeMicros: startTime && microsOf(startTime),
        completionTimeMicros: completionTime && microsOf(completionTime),
      };
      refuse([checkSpan(status)]);
      return update(id, status);
    },
  };
}

/** Redacts the free texts of users and programs; the other fields are ids and names of models. */
function redacted<T extends Readonly<Record<string, string | undefined>>>(
  texts: T,
  redactor: Redactor,
): T {
  const clean = { ...texts };
  for (const field in clean) {
    const text = clean[field];
    if (text !== undefined) Object.assign(clean, { [field]: redactor.text(text) });
  }
  return clean;
}

function newSessionChecks(request: CreateSessionRequest): readonly Check[] {
  const { parentSessionId: parent } = request;
  return [
    ...textChecks(request),
    checkTextBytes("prompt", request.prompt, PROMPT_BYTES_MAX),
    checkTextBytes("llm_model", request.llmModel, NAME_BYTES_MAX),
    parent === undefined ? undefined : checkSessionId(parent, "parent_session_id"),
    checkTextBytes("project_id", request.projectId, NAME_BYTES_MAX),
    checkTextBytes("agent_id", request.agentId, NAME_BYTES_MAX),
  ];
}

/** The checks of the texts that may change later; an absent one is right. */
function textChecks({
  name,
  labels,
  annotations,
}: Pick<SessionChange, "name" | "labels" | "annotations">): readonly Check[] {
  return [
    checkThat("name", name !== "", "must not be empty"),
    checkTextBytes("name", name, NAME_BYTES_MAX),
    checkTextBytes("labels", labels, TEXT_BYTES_MAX),
    checkTextBytes("annotations", annotations, TEXT_BYTES_MAX),
  ];
}

function capabilitiesChecks(capabilities: string | undefined): readonly Check[] {
  if (capabilities === undefined || capabilities === "") return [];
  const wrong = checkTextBytes("capabilities", capabilities, TEXT_BYTES_MAX);
  return wrong === undefined ? validateCapabilities(capabilities) : [wrong];
}

function filterChecks(request: ListSessionsRequest): readonly Check[] {
  const { query, orderBy, phase, parentSessionId: parent, activeAfter, activeBefore } = request;
  return [
    checkTextBytes("agent_id", request.agentId, NAME_BYTES_MAX),
    activeAfter && checkTimestamp("active_after", activeAfter),
    activeBefore && checkTimestamp("active_before", activeBefore),
    checkTextBytes("query", query, NAME_BYTES_MAX),
    parent === "" ? undefined : checkSessionId(parent, "parent_session_id"),
    ...belongingChecks(request),
    phase === "" ? undefined : checkPhase(phase),
    checkThat("order_by", ORDERS.has(orderBy), "is unknown"),
    orderBy === SessionOrder.WAITING && !isOfWaiting(request) ? NOT_WAITING : undefined,
  ];
}

const NOT_WAITING = {
  field: "order_by",
  description:
    "the order of waiting needs the filter waiting, or the state waiting_for_runner or waiting_for_person",
};

function isOfWaiting({ waiting, state }: ListSessionsRequest): boolean {
  const { WAITING_FOR_RUNNER, WAITING_FOR_PERSON } = SessionState;
  return waiting || state === WAITING_FOR_RUNNER || state === WAITING_FOR_PERSON;
}

function orderOf({ orderBy, state }: ListSessionsRequest): ListOrder {
  const order = ORDERS.get(orderBy) ?? "newest";
  return order === "waiting" && state === SessionState.WAITING_FOR_PERSON ? "asking" : order;
}

/** The filters that a list and a watch of sessions share, and a search of texts but for the state. */
export function belongingChecks(
  request: Pick<ListSessionsRequest, "labels" | "projectId"> &
    Partial<Pick<ListSessionsRequest, "state">>,
): readonly Check[] {
  const { state = SessionState.UNSPECIFIED } = request;
  const isState = state === SessionState.UNSPECIFIED || stateNameOf(state) !== undefined;
  const labels = Object.entries(request.labels);
  return [
    checkTextBytes("project_id", request.projectId, NAME_BYTES_MAX),
    checkThat("state", isState, "is unknown"),
    checkThat("labels", labels.length <= LABELS_MAX, `must be at most ${LABELS_MAX}`),
    ...labels.map(([key, value]) => checkTextBytes("labels", `${key}${value}`, LABEL_BYTES_MAX)),
  ];
}

function checkPhase(phase: string | undefined): Check {
  const isKnown = phase === undefined || PHASES.includes(phase);
  return checkThat("phase", isKnown, `must be one of ${PHASES.join(", ")}`);
}

function checkSpan(status: SessionChange): Check {
  const { startTimeMicros: start, completionTimeMicros: completion } = status;
  const isSpan = start === undefined || completion === undefined || completion >= start;
  return checkThat("completion_time", isSpan, "must not be before start_time");
}

/** Deeper pages would skip too many sessions for nothing. */
function pageChecks(
  { pageToken, page: asked }: ListSessionsRequest,
  { page, size }: { readonly page: number; readonly size: number },
): readonly Check[] {
  const isBeyond = pageToken === "" && page <= WALKED_MAX && page * size > WALKED_MAX;
  const rule = `${page} with ${size} sessions a page is beyond the first ${WALKED_MAX}: walk the list with page_token`;
  return [
    checkSize("page", asked, WALKED_MAX),
    checkSize("size", size, LIST_SIZE_MAX),
    checkThat("page", !isBeyond, rule),
    checkThat("page", pageToken === "" || asked === 0, "must not be given with page_token"),
  ];
}

const WRONG_TOKEN = {
  field: "page_token",
  description: "page_token must be next_page_token of the page before, in the same order, or empty",
};

/** The order, the last session of the page, and the total, with a sign if it is a lower bound. */
const TOKEN = /^([a-z]+)\.(-?\d{1,18})\.(\d{1,5})(\+?)\.([^\0]{1,255})$/;

function tokenOf(
  order: ListOrder,
  { place, total }: Exclude<SessionsPage["from"], number>,
): string {
  return `${order}.${place.micros}.${total.count}${total.isLowerBound ? "+" : ""}.${place.id}`;
}

function placeIn(token: string, wanted: ListOrder): SessionsPage["from"] | undefined {
  const [, order, micros = "", count, sign, id = ""] = TOKEN.exec(token) ?? [];
  if (order !== wanted || !id.isWellFormed()) return undefined;
  const total = { count: Number(count), isLowerBound: sign === "+" };
  return { place: { micros: BigInt(micros), id }, total };
}

function existing(id: string, record: SessionRecord | undefined): SessionRecord {
  if (record === undefined) throw sessionNotFound(id);
  return record;
}

/** Fields of the record with the name of a field of the contract have its meaning. */
export function toSession(record: SessionRecord): Session {
  const state = stateOf(record);
  const { waitingSinceMicros, runEndedAtMicros } = record;
  const since = state === "waiting_for_runner" ? waitingSinceMicros : runEndedAtMicros;
  return create(SessionSchema, {
    ...given(record),
    metadata: {
      id: record.id,
      createdAt: timestampOf(record.createdAtMicros),
      updatedAt: timestampOf(record.updatedAtMicros),
      kind: "Session",
      href: `/api/ambient/v1/sessions/${record.id}`,
    },
    ...given({
      startTime: optionalTime(record.startTimeMicros),
      completionTime: optionalTime(record.completionTimeMicros),
      lastActivityAt: optionalTime(record.lastActivityAtMicros),
    }),
    rows: record.rowCount,
    waiting: record.pendingCount,
    state: STATES[state],
    ...given({ stateSince: state === "running" ? null : optionalTime(since) }),
  });
}

function optionalTime(micros: bigint | null): Timestamp | null {
  return micros === null ? null : timestampOf(micros);
}

/** Returns only the present fields: an absent optional field is not the same as an empty one. */
function given<F extends object>(fields: F): { [K in keyof F]?: NonNullable<F[K]> } {
  const present: { [K in keyof F]?: NonNullable<F[K]> } = {};
  for (const key in fields) {
    const value = fields[key];
    if (value !== null && value !== undefined) present[key] = value;
  }
  return present;
}

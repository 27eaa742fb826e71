/**
 * A database as the upstream service makes it: one BIGSERIAL a table, foreign keys, and its indexes.
 * With rows for it, and the expected result of each, written by hand and not by our code.
 */
import { randomUUID } from "node:crypto";
import type postgres from "postgres";

export async function buildUpstream(sql: postgres.Sql): Promise<void> {
  await sql.unsafe(`
    create table sessions (
      id text primary key, created_at timestamptz, updated_at timestamptz, deleted_at timestamptz,
      name text, repo_url text, prompt text, created_by_user_id text, assigned_user_id text,
      workflow_id text, interactive boolean, timeout integer, llm_model text,
      llm_temperature double precision, parent_session_id text references sessions (id) on delete set null,
      labels text, annotations text, project_id text, phase text, start_time timestamptz,
      completion_time timestamptz, kube_cr_name text, agent_id text);
    create index idx_sessions_deleted_at on sessions (deleted_at);
    create index idx_sessions_project_id on sessions (project_id);
    create table session_messages (
      id varchar(36) primary key, session_id varchar(36) not null, seq bigserial unique not null,
      event_type varchar(255) not null, payload text not null, created_at timestamptz not null default now());
    create index idx_session_messages_session_seq on session_messages (session_id, seq);
    create table session_events (
      id varchar(36) primary key, session_id varchar(36) not null references sessions (id),
      seq bigserial unique not null, event_type varchar(255) not null, payload text not null,
      created_at timestamptz not null default now(), completed_at timestamptz, event_count integer default 1);
    create index idx_session_events_session_seq on session_events (session_id, seq);
    create index idx_session_events_event_type on session_events (event_type);
    create index idx_session_events_created_at on session_events (created_at);
    create index idx_session_events_completed_at on session_events (completed_at)`);
}

/** A row that must exist here after the import. */
export interface Expected {
  readonly eventType: string;
  readonly payload: string;
  readonly count: number;
  readonly isConformant: boolean;
  /** True for the completed_at of the source. */
  readonly hasCompleted: boolean;
  readonly opens?: string;
  readonly closes?: true;
}

export interface UpstreamRow {
  readonly eventType: string;
  readonly payload: string;
  readonly count: number | null;
  readonly isCompleted: boolean;
  readonly becomes: readonly Expected[];
  readonly isMalformed: boolean;
}

type Loose = Partial<Omit<UpstreamRow, "eventType" | "payload" | "becomes">> & {
  readonly becomes?: readonly Partial<Expected>[];
};

function row(eventType: string, payload: string, more: Loose = {}): UpstreamRow {
  const { count = 1, isCompleted = false, isMalformed = false, becomes = [{}] } = more;
  return {
    eventType,
    payload,
    count,
    isCompleted,
    isMalformed,
    becomes: becomes.map((one) => ({
      eventType,
      payload,
      count: count ?? 1,
      isConformant: !isMalformed,
      hasCompleted: isCompleted,
      ...one,
    })),
  };
}

const malformed = (eventType: string, payload: string, more: Loose = {}): UpstreamRow =>
  row(eventType, payload, { isMalformed: true, ...more });

const LONE = String.raw`{"type":"CUSTOM","name":"n","value":"\ud800 \u0000 \u00e9"}`;

/** Rows of the run `r`, in a valid order; every kind of row. */
export function runOf(r: string): readonly UpstreamRow[] {
  const text = `grüße 👋🏽 ${r} "quoted"\\n`;
  const grouped = `{"message_id":"g-${r}","role":"assistant","accumulated_content":${JSON.stringify(text)},"fragment_count":3,"end_event":{"message_id":"g-${r}"}}`;
  return [
    row("CUSTOM", '{"type":"CUSTOM","name":"before","value":1}'),
    row("RUN_STARTED", `{"type":"RUN_STARTED","threadId":"t","runId":"${r}"}`, {
      becomes: [{ opens: r }],
    }),
    row("TEXT_MESSAGE_START", `{"message_id":"m-${r}","role":"assistant","name":null}`, {
      becomes: [
        { payload: `{"type":"TEXT_MESSAGE_START","messageId":"m-${r}","role":"assistant"}` },
      ],
    }),
    row(
      "TEXT_MESSAGE_CONTENT",
      `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m-${r}","delta":"seven"}`,
      { count: 7, isCompleted: true },
    ),
    row("TEXT_MESSAGE_END", `{"type":"TEXT_MESSAGE_END","messageId":"m-${r}"}`, { count: null }),
    row("TEXT_MESSAGE_START", grouped, {
      count: 5,
      isCompleted: true,
      becomes: [
        {
          payload: `{"type":"TEXT_MESSAGE_START","messageId":"g-${r}","role":"assistant"}`,
          count: 1,
          hasCompleted: false,
        },
        {
          eventType: "TEXT_MESSAGE_CONTENT",
          payload: `{"type":"TEXT_MESSAGE_CONTENT","messageId":"g-${r}","delta":${JSON.stringify(text)}}`,
          count: 3,
        },
        {
          eventType: "TEXT_MESSAGE_END",
          payload: `{"type":"TEXT_MESSAGE_END","messageId":"g-${r}"}`,
          count: 1,
          hasCompleted: false,
        },
      ],
    }),
    row(
      "TOOL_CALL_START",
      `{"toolCallId":"c-${r}","toolCallName":"look","accumulated_content":"{\\"q\\":","fragment_count":2}`,
      {
        becomes: [
          { payload: `{"type":"TOOL_CALL_START","toolCallId":"c-${r}","toolCallName":"look"}` },
          {
            eventType: "TOOL_CALL_ARGS",
            payload: `{"type":"TOOL_CALL_ARGS","toolCallId":"c-${r}","delta":"{\\"q\\":"}`,
            count: 2,
          },
        ],
      },
    ),
    row("CUSTOM", LONE),
    malformed("RUN_FINISHED", "{}"),
    malformed("MY_EVENT", '{"type":"MY_EVENT","any":1}'),
    malformed("no such type", "not even JSON 👋"),
    malformed("CUSTOM", '{"type":"CUSTOM","name":"a","name":"b"}'),
    malformed("CUSTOM", '{"type":"CUSTOM","name":"n","value":1}', {
      count: -4,
      becomes: [{ count: 1 }],
    }),
    malformed("TEXT_MESSAGE_START", grouped, { count: 17, becomes: [{ count: 1 }] }),
    r.endsWith("0")
      ? row("RUN_ERROR", '{"type":"RUN_ERROR","message":"no"}', { becomes: [{ closes: true }] })
      : row("RUN_FINISHED", `{"type":"RUN_FINISHED","threadId":"t","runId":"${r}"}`, {
          becomes: [{ closes: true }],
        }),
  ];
}

/** Rows of messages; `weird` is no type of the contract. */
export const MESSAGE_TYPES = ["user", "assistant", "tool_use", "lifecycle", "weird", "error"];

export interface Inserted {
  readonly sessionId: string;
  readonly oldSeq: bigint;
  readonly createdAt: string;
  readonly completedAt: string | null;
}

const FIRST_MS = Date.UTC(2026, 0, 1);

/** One more row, a moment after the one before; microseconds that a Date does not have. */
export async function insertEvent(
  sql: postgres.Sql,
  at: { readonly sessionId: string; readonly index: number },
  { eventType, payload, count, isCompleted }: UpstreamRow,
): Promise<Inserted> {
  const createdAt = timeOf(at.index);
  const completedAt = isCompleted ? timeOf(at.index + 0.5) : null;
  const [inserted] = await sql<{ seq: string }[]>`
    insert into session_events (id, session_id, event_type, payload, created_at, completed_at, event_count)
    values (${idOf(at.index)}, ${at.sessionId}, ${eventType}, ${payload}, ${createdAt}::text::timestamptz,
      ${completedAt}::text::timestamptz, ${count}) returning seq`;
  return { sessionId: at.sessionId, oldSeq: BigInt(inserted?.seq ?? 0), createdAt, completedAt };
}

export async function insertMessage(
  sql: postgres.Sql,
  at: { readonly sessionId: string; readonly index: number },
  message: { readonly eventType: string; readonly payload: string },
): Promise<Inserted> {
  const createdAt = timeOf(at.index);
  const [inserted] = await sql<{ seq: string }[]>`
    insert into session_messages (id, session_id, event_type, payload, created_at)
    values (${idOf(at.index)}, ${at.sessionId}, ${message.eventType}, ${message.payload},
      ${createdAt}::text::timestamptz) returning seq`;
  const oldSeq = BigInt(inserted?.seq ?? 0);
  return { sessionId: at.sessionId, oldSeq, createdAt, completedAt: null };
}

function timeOf(index: number): string {
  return `${new Date(FIRST_MS + index * 1_000).toISOString().slice(0, -1)}123Z`;
}

/** Upstream's own ids are 27 letters and digits; every third is a UUID here. */
function idOf(index: number): string {
  return index % 3 === 0 ? randomUUID() : randomUUID().replaceAll("-", "").slice(0, 27);
}

/**
 * The three tables of the ledger, and beside them what signs tokens and what an import has done. What is not here is as deliberate as what is: no foreign key (a row trigger; the
 * locked session row is the guarantee), no sequence, no trigger, no index but the primary key and the
 * idempotency key, text and not jsonb (jsonb refuses \u0000 and reorders keys). Every unique key
 * starts with the session, so that the schema runs on distributed engines too.
 *
 * What a push changes in `sessions` has no index, and the table has a fillfactor of 70 (migration
 * 0001): the update stays in its page.
 */
import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  customType,
  index,
  integer,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";

const bytea = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => "bytea" });

const time = (name: string) =>
  timestamp(name, { withTimezone: true, precision: 6, mode: "string" });
const number = (name: string) => bigint(name, { mode: "bigint" });

export const sessions = pgTable(
  "sessions",
  {
    id: text("id").primaryKey(),
    name: text("name").notNull().default(""),
    projectId: text("project_id"),
    phase: text("phase"),
    prompt: text("prompt"),
    createdByUserId: text("created_by_user_id"),
    llmModel: text("llm_model"),
    agentId: text("agent_id"),
    parentSessionId: text("parent_session_id"),
    labels: text("labels"),
    annotations: text("annotations"),
    startTime: time("start_time"),
    completionTime: time("completion_time"),
    createdAt: time("created_at").notNull(),
    updatedAt: time("updated_at").notNull(),
    deletedAt: time("deleted_at"),
    /** The highest numbers used. */
    messageSeq: number("message_seq").notNull().default(sql`0`),
    eventSeq: number("event_seq").notNull().default(sql`0`),
    /** The highest epoch seen; null until a writer names one. */
    producerEpoch: number("producer_epoch"),
    /** The newest push stream; of its epoch, the last client number and how many were refused. */
    producerStream: number("producer_stream").notNull().default(sql`0`),
    producerClientSeq: number("producer_client_seq").notNull().default(sql`0`),
    producerRefused: number("producer_refused").notNull().default(sql`0`),
    openRunId: text("open_run_id"),
    lastActivityAt: time("last_activity_at"),
    /** What its rows take, for the limits of a session. */
    rowCount: number("row_count").notNull().default(sql`0`),
    payloadBytes: number("payload_bytes").notNull().default(sql`0`),
    /** All its rows and texts were erased; the id and the numbers stay used. */
    erasedAt: time("erased_at"),
  },
  (table) => [
    // ListSessions reads newest first; deleted ones are not listed.
    index("sessions_newest")
      .on(table.createdAt.desc(), table.id.desc())
      .where(sql`deleted_at is null`),
    // What a caller of one project is listed: of 100,000 sessions the 10 of a project take 64 ms without.
    index("sessions_of_project")
      .on(table.projectId, table.createdAt.desc(), table.id.desc())
      .where(sql`deleted_at is null and project_id is not null`),
  ],
);

export const sessionMessages = pgTable(
  "session_messages",
  {
    sessionId: text("session_id").notNull(),
    seq: number("seq").notNull(),
    id: uuid("id").notNull(),
    eventType: text("event_type").notNull(),
    payload: text("payload").notNull(),
    idempotencyKey: text("idempotency_key"),
    keyDigest: bytea("key_digest"),
    actor: text("actor"),
    sender: text("sender"),
    sentAt: time("sent_at"),
    createdAt: time("created_at").notNull(),
    recordedAt: time("recorded_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.sessionId, table.seq] }),
    uniqueIndex("session_messages_key")
      .on(table.sessionId, table.idempotencyKey)
      .where(sql`idempotency_key is not null`),
  ],
);

export const sessionEvents = pgTable(
  "session_events",
  {
    sessionId: text("session_id").notNull(),
    /** Number of the row's first raw event; the row takes `event_count` numbers. */
    seq: number("seq").notNull(),
    id: uuid("id").notNull(),
    eventType: text("event_type").notNull(),
    payload: text("payload").notNull(),
    idempotencyKey: text("idempotency_key"),
    keyDigest: bytea("key_digest"),
    actor: text("actor"),
    createdAt: time("created_at").notNull(),
    recordedAt: time("recorded_at").notNull(),
    completedAt: time("completed_at"),
    eventCount: integer("event_count").notNull().default(1),
    runId: text("run_id"),
    fragments: bytea("fragments"),
    conformant: boolean("conformant").notNull().default(true),
  },
  (table) => [
    primaryKey({ columns: [table.sessionId, table.seq] }),
    uniqueIndex("session_events_key")
      .on(table.sessionId, table.idempotencyKey)
      .where(sql`idempotency_key is not null`),
  ],
);

/** Keys that sign session tokens: every instance verifies by all of them, the newest signs. */
export const tokenKeys = pgTable("token_keys", {
  /** The `kid` of the tokens. */
  id: text("id").primaryKey(),
  /** JWK of an Ed25519 private key. */
  privateJwk: text("private_jwk").notNull(),
  createdAt: time("created_at").notNull(),
});

/** Where the rows of an imported database are here: old cursors go on by it. */
export const importedRows = pgTable(
  "imported_rows",
  {
    sessionId: text("session_id").notNull(),
    /** `messages` or `events`. */
    stream: text("stream").notNull(),
    oldSeq: number("old_seq").notNull(),
    /** The last number of what the row became. */
    newSeq: number("new_seq").notNull(),
  },
  (table) => [primaryKey({ columns: [table.sessionId, table.stream, table.oldSeq] })],
);

/** How far an import has come, by what it reads from. */
export const imports = pgTable(
  "imports",
  {
    source: text("source").notNull(),
    stream: text("stream").notNull(),
    lastOldSeq: number("last_old_seq").notNull(),
    updatedAt: time("updated_at").notNull(),
  },
  (table) => [primaryKey({ columns: [table.source, table.stream] })],
);

/**
 * The tables of the ledger, the texts of search and the runs of analytics that are derived from
 * them, keys that sign tokens, and records of imports. Left out on purpose: foreign keys (the
 * locked session row is the guarantee), sequences, triggers, and indexes of rows other than the
 * primary key, the idempotency key and the time of recording. Payloads are text and not jsonb,
 * which refuses \u0000 and reorders keys. Every unique key starts with the session, so the schema
 * runs on distributed engines too.
 *
 * The columns of `sessions` that most pushes change have no index, and the fillfactor is 70
 * (migrations/0000_ledger.sql), so the update stays in its page. Only a push that begins or ends a
 * run, or the waiting of a session, writes an index, and one each 10 s for the order by activity.
 */
import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";

const bytea = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => "bytea" });

const tsvector = customType<{ data: string }>({ dataType: () => "tsvector" });

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
    /** Of a fork: the number of the parent that was asked for, of its events or of its messages. */
    forkedAtSeq: number("forked_at_seq"),
    forkedAtMessageSeq: number("forked_at_message_seq"),
    labels: text("labels"),
    annotations: text("annotations"),
    /** AgentCapabilities of AG-UI, as JSON text. */
    capabilities: text("capabilities"),
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
    /** The newest push stream; its last client number, and the refused numbers of its epoch. */
    producerStream: number("producer_stream").notNull().default(sql`0`),
    producerClientSeq: number("producer_client_seq").notNull().default(sql`0`),
    producerRefused: number("producer_refused").notNull().default(sql`0`),
    openRunId: text("open_run_id"),
    /** How the last ended run did so: finished, interrupted, cancelled or error; null: none, or not known. */
    runOutcome: text("run_outcome"),
    runEndedAt: time("run_ended_at"),
    /** The watermark: messages up to this number belong to a turn, or are older than all turns. */
    turnSeq: number("turn_seq").notNull().default(sql`0`),
    /** The watermark before the turn of the open run; null: no run is open, or no claim began it. */
    openTurnSeq: number("open_turn_seq"),
    /** The message that asked to end the open run; null: nobody has. */
    cancelSeq: number("cancel_seq"),
    /** Set by the first claim. */
    hasClaimed: boolean("has_claimed").notNull().default(false),
    /** The number of arrivals: messages of type `user` above the watermark. */
    pendingCount: number("pending_count").notNull().default(sql`0`),
    /** The time since which at least one arrival has waited; null: none waits. */
    waitingSince: time("waiting_since"),
    lastActivityAt: time("last_activity_at"),
    /**
     * The time of activity by which lists are read: `last_activity_at`, or at most 10 s before it; without
     * rows `created_at`. Indexes have it, so few pushes change it.
     */
    activeAt: time("active_at").notNull().default(sql`clock_timestamp()`),
    /** The last change for watches: made, changed, deleted, waits, or its run begins or ends. */
    changedAt: time("changed_at").notNull().default(sql`clock_timestamp()`),
    /** The size of its rows, for the limits of a session. */
    rowCount: number("row_count").notNull().default(sql`0`),
    payloadBytes: number("payload_bytes").notNull().default(sql`0`),
    /**
     * The chain of the rows, SHA-256, and the number that it counts for; the number from which it covers
     * rows, and the chain before that number if rows were erased (migrations/chain.sql). Null: no chain.
     */
    messageChain: bytea("message_chain"),
    messageChainSeq: number("message_chain_seq"),
    messageChainFrom: number("message_chain_from"),
    messageChainCut: bytea("message_chain_cut"),
    eventChain: bytea("event_chain"),
    eventChainSeq: number("event_chain_seq"),
    eventChainFrom: number("event_chain_from"),
    eventChainCut: bytea("event_chain_cut"),
    /** Why neither retention nor an erasure may delete its rows; null: they may. */
    hold: text("hold"),
    /** Set after all rows and texts were erased; the id and the numbers stay used. */
    erasedAt: time("erased_at"),
    /** Retention has looked at the rows that were stored before this time. */
    retainedUntil: time("retained_until").notNull().default(sql`'epoch'`),
  },
  (table) => [
    // Each order of ListSessions walks one of these; deleted sessions are not listed. The indexes of all
    // sessions have NULLS FIRST and the others do not: so no list of a project can walk over all sessions.
    index("sessions_newest")
      .on(table.createdAt.desc().nullsFirst(), table.id.desc().nullsFirst())
      .where(sql`deleted_at is null`),
    // The list for a caller of one project: without this index, 10 of 100,000 sessions take 64 ms.
    index("sessions_of_project")
      .on(table.projectId, table.createdAt.desc(), table.id.desc())
      .where(sql`deleted_at is null and project_id is not null`),
    index("sessions_active")
      .on(table.activeAt.desc().nullsFirst(), table.id.desc().nullsFirst())
      .where(sql`deleted_at is null`),
    index("sessions_active_of_project")
      .on(table.projectId, table.activeAt.desc(), table.id.desc())
      .where(sql`deleted_at is null and project_id is not null`),
    index("sessions_of_phase").on(table.phase).where(sql`deleted_at is null and phase is not null`),
    index("sessions_of_parent")
      .on(table.parentSessionId, table.createdAt.desc(), table.id.desc())
      .where(sql`deleted_at is null and parent_session_id is not null`),
    index("sessions_waiting")
      .on(table.waitingSince, table.id)
      .where(sql`deleted_at is null and waiting_since is not null`),
    index("sessions_running")
      .on(table.createdAt.desc(), table.id.desc())
      .where(sql`deleted_at is null and open_run_id is not null`),
    // A push that changes the outcome ends a run, so it changes the index above too.
    index("sessions_asking")
      .on(table.runEndedAt, table.id)
      .where(
        sql`deleted_at is null and open_run_id is null and waiting_since is null and run_outcome = 'interrupted'`,
      ),
    index("sessions_cancelled")
      .on(table.id)
      .where(sql`deleted_at is null and cancel_seq is not null`),
    // A push that changes this time changes a column of an index above too.
    index("sessions_changed").on(table.changedAt),
    // The sessions that may have old rows, for retention. No push changes it.
    index("sessions_unlooked")
      .on(table.retainedUntil, table.id)
      .where(sql`erased_at is null and hold is null`),
    // The function is in the migration. Pushes change no labels, so their updates stay in the page.
    index("sessions_labels")
      .using("gin", sql`ledger_labels(${table.labels})`)
      .with({ fastupdate: false })
      .where(sql`deleted_at is null and labels is not null`),
  ],
);

/** The first columns of both tables of rows. */
const ROW_COLUMNS = {
  sessionId: text("session_id").notNull(),
  /** The number of the row; of a row of several events that of the first, and it takes `event_count` numbers. */
  seq: number("seq").notNull(),
  id: uuid("id").notNull(),
  eventType: text("event_type").notNull(),
  payload: text("payload").notNull(),
  idempotencyKey: text("idempotency_key"),
  keyDigest: bytea("key_digest"),
  actor: text("actor"),
};

export const sessionMessages = pgTable(
  "session_messages",
  {
    ...ROW_COLUMNS,
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
    index("session_messages_recorded").on(table.recordedAt),
  ],
);

export const sessionEvents = pgTable(
  "session_events",
  {
    ...ROW_COLUMNS,
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
    index("session_events_recorded").on(table.recordedAt),
  ],
);

/**
 * The texts that search finds, derived from the rows by one instance at a time (search/index-unit.ts).
 * A deletion of rows deletes the texts that begin in them, in the same transaction.
 */
export const sessionTexts = pgTable(
  "session_texts",
  {
    sessionId: text("session_id").notNull(),
    /** MD5 of the role and the text: a repeated text has no further row. */
    digest: uuid("digest").notNull(),
    /** A long text has several rows, from 0. */
    part: integer("part").notNull(),
    /** The row in which the text begins. */
    stream: text("stream").notNull(),
    seq: number("seq").notNull(),
    eventType: text("event_type").notNull(),
    createdAt: time("created_at").notNull(),
    runId: text("run_id"),
    role: text("role").notNull(),
    text: text("text").notNull(),
    /** Its words, and marks for the filters (search/words.ts). */
    words: tsvector("words").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.sessionId, table.digest, table.part] }),
    index("session_texts_row").on(table.sessionId, table.stream, table.seq),
    index("session_texts_created").on(table.createdAt),
    // A question would read the list of pending words one by one.
    index("session_texts_words").using("gin", table.words).with({ fastupdate: false }),
  ],
);

/** The runs of the views of analytics; each is deleted with the row of its RUN_STARTED. */
export const sessionRuns = pgTable(
  "session_runs",
  {
    sessionId: text("session_id").notNull(),
    /** The row of its RUN_STARTED. */
    seq: number("seq").notNull(),
    lastSeq: number("last_seq").notNull(),
    runId: text("run_id").notNull(),
    startedAt: time("started_at").notNull(),
    firstTextAt: time("first_text_at"),
    endedAt: time("ended_at"),
    outcome: text("outcome").notNull(),
    /** What its models used, a list. */
    usage: jsonb("usage").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.sessionId, table.seq] }),
    index("session_runs_started").on(table.startedAt),
  ],
);

/** The tool calls of runs; a call is deleted with the row in which it begins. */
export const sessionToolCalls = pgTable(
  "session_tool_calls",
  {
    sessionId: text("session_id").notNull(),
    /** The row in which it begins. */
    seq: number("seq").notNull(),
    runSeq: number("run_seq").notNull(),
    callId: text("call_id").notNull(),
    name: text("name").notNull(),
    startedAt: time("started_at").notNull(),
    endedAt: time("ended_at"),
    hasFailed: boolean("has_failed").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.sessionId, table.seq] }),
    index("session_tool_calls_started").on(table.startedAt),
  ],
);

/** How far texts and runs of a session are stored; a session without a row has none. */
export const indexedSessions = pgTable("indexed_sessions", {
  sessionId: text("session_id").primaryKey(),
  messageSeq: number("message_seq").notNull(),
  eventSeq: number("event_seq").notNull(),
  /** The events have the agent's part, so message rows of the agent repeat it. */
  hasSpeech: boolean("has_speech").notNull(),
  /** False: with SEARCH_LANGUAGE=off the texts were left out. */
  hasTexts: boolean("has_texts").notNull(),
});

/** Work that one instance does at a time: its name, the instance, and the time until which it is its. */
export const leases = pgTable("leases", {
  name: text("name").primaryKey(),
  holder: text("holder").notNull(),
  heldUntil: time("held_until").notNull(),
  /** Raised by a command that wants all of the work done again. */
  askedAgain: integer("asked_again").notNull().default(0),
  /** Everything that was recorded before this time is done; null: not known. */
  doneUntil: time("done_until"),
});

/** Keys of session tokens: every instance verifies with the current and the previous one. */
export const tokenKeys = pgTable("token_keys", {
  /** The `kid` of the tokens. */
  id: text("id").primaryKey(),
  /** JWK of an Ed25519 private key. */
  privateJwk: text("private_jwk").notNull(),
  createdAt: time("created_at").notNull(),
});

/** The new places of the rows of an imported database: old cursors are translated by it. */
export const importedRows = pgTable(
  "imported_rows",
  {
    sessionId: text("session_id").notNull(),
    /** `messages` or `events`. */
    stream: text("stream").notNull(),
    oldSeq: number("old_seq").notNull(),
    /** The last number of the new row. */
    newSeq: number("new_seq").notNull(),
  },
  (table) => [primaryKey({ columns: [table.sessionId, table.stream, table.oldSeq] })],
);

/** The progress of an import, by its source. */
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

CREATE TABLE "imported_rows" (
	"session_id" text NOT NULL,
	"stream" text NOT NULL,
	"old_seq" bigint NOT NULL,
	"new_seq" bigint NOT NULL,
	CONSTRAINT "imported_rows_session_id_stream_old_seq_pk" PRIMARY KEY("session_id","stream","old_seq")
);
--> statement-breakpoint
CREATE TABLE "imports" (
	"source" text NOT NULL,
	"stream" text NOT NULL,
	"last_old_seq" bigint NOT NULL,
	"updated_at" timestamp(6) with time zone NOT NULL,
	CONSTRAINT "imports_source_stream_pk" PRIMARY KEY("source","stream")
);
--> statement-breakpoint
CREATE TABLE "indexed_sessions" (
	"session_id" text PRIMARY KEY NOT NULL,
	"message_seq" bigint NOT NULL,
	"event_seq" bigint NOT NULL,
	"has_speech" boolean NOT NULL,
	"has_texts" boolean NOT NULL
);
--> statement-breakpoint
CREATE TABLE "leases" (
	"name" text PRIMARY KEY NOT NULL,
	"holder" text NOT NULL,
	"held_until" timestamp(6) with time zone NOT NULL,
	"asked_again" integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "session_events" (
	"session_id" text NOT NULL,
	"seq" bigint NOT NULL,
	"id" uuid NOT NULL,
	"event_type" text NOT NULL,
	"payload" text NOT NULL,
	"idempotency_key" text,
	"key_digest" "bytea",
	"actor" text,
	"created_at" timestamp(6) with time zone NOT NULL,
	"recorded_at" timestamp(6) with time zone NOT NULL,
	"completed_at" timestamp(6) with time zone,
	"event_count" integer DEFAULT 1 NOT NULL,
	"run_id" text,
	"fragments" "bytea",
	"conformant" boolean DEFAULT true NOT NULL,
	CONSTRAINT "session_events_session_id_seq_pk" PRIMARY KEY("session_id","seq")
);
--> statement-breakpoint
CREATE TABLE "session_messages" (
	"session_id" text NOT NULL,
	"seq" bigint NOT NULL,
	"id" uuid NOT NULL,
	"event_type" text NOT NULL,
	"payload" text NOT NULL,
	"idempotency_key" text,
	"key_digest" "bytea",
	"actor" text,
	"sender" text,
	"sent_at" timestamp(6) with time zone,
	"created_at" timestamp(6) with time zone NOT NULL,
	"recorded_at" timestamp(6) with time zone NOT NULL,
	CONSTRAINT "session_messages_session_id_seq_pk" PRIMARY KEY("session_id","seq")
);
--> statement-breakpoint
CREATE TABLE "session_runs" (
	"session_id" text NOT NULL,
	"seq" bigint NOT NULL,
	"last_seq" bigint NOT NULL,
	"run_id" text NOT NULL,
	"started_at" timestamp(6) with time zone NOT NULL,
	"first_text_at" timestamp(6) with time zone,
	"ended_at" timestamp(6) with time zone,
	"outcome" text NOT NULL,
	"usage" jsonb NOT NULL,
	CONSTRAINT "session_runs_session_id_seq_pk" PRIMARY KEY("session_id","seq")
);
--> statement-breakpoint
CREATE TABLE "session_texts" (
	"session_id" text NOT NULL,
	"digest" uuid NOT NULL,
	"part" integer NOT NULL,
	"stream" text NOT NULL,
	"seq" bigint NOT NULL,
	"event_type" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	"run_id" text,
	"role" text NOT NULL,
	"text" text NOT NULL,
	"words" "tsvector" NOT NULL,
	CONSTRAINT "session_texts_session_id_digest_part_pk" PRIMARY KEY("session_id","digest","part")
);
--> statement-breakpoint
CREATE TABLE "session_tool_calls" (
	"session_id" text NOT NULL,
	"seq" bigint NOT NULL,
	"run_seq" bigint NOT NULL,
	"call_id" text NOT NULL,
	"name" text NOT NULL,
	"started_at" timestamp(6) with time zone NOT NULL,
	"ended_at" timestamp(6) with time zone,
	"has_failed" boolean NOT NULL,
	CONSTRAINT "session_tool_calls_session_id_seq_pk" PRIMARY KEY("session_id","seq")
);
--> statement-breakpoint
CREATE TABLE "sessions" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text DEFAULT '' NOT NULL,
	"project_id" text,
	"phase" text,
	"prompt" text,
	"created_by_user_id" text,
	"llm_model" text,
	"agent_id" text,
	"parent_session_id" text,
	"forked_at_seq" bigint,
	"forked_at_message_seq" bigint,
	"labels" text,
	"annotations" text,
	"capabilities" text,
	"start_time" timestamp(6) with time zone,
	"completion_time" timestamp(6) with time zone,
	"created_at" timestamp(6) with time zone NOT NULL,
	"updated_at" timestamp(6) with time zone NOT NULL,
	"deleted_at" timestamp(6) with time zone,
	"message_seq" bigint DEFAULT 0 NOT NULL,
	"event_seq" bigint DEFAULT 0 NOT NULL,
	"producer_epoch" bigint,
	"producer_stream" bigint DEFAULT 0 NOT NULL,
	"producer_client_seq" bigint DEFAULT 0 NOT NULL,
	"producer_refused" bigint DEFAULT 0 NOT NULL,
	"open_run_id" text,
	"turn_seq" bigint DEFAULT 0 NOT NULL,
	"open_turn_seq" bigint,
	"cancel_seq" bigint,
	"has_claimed" boolean DEFAULT false NOT NULL,
	"pending_count" bigint DEFAULT 0 NOT NULL,
	"waiting_since" timestamp(6) with time zone,
	"last_activity_at" timestamp(6) with time zone,
	"changed_at" timestamp(6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"row_count" bigint DEFAULT 0 NOT NULL,
	"payload_bytes" bigint DEFAULT 0 NOT NULL,
	"hold" text,
	"erased_at" timestamp(6) with time zone
);
--> statement-breakpoint
CREATE TABLE "token_keys" (
	"id" text PRIMARY KEY NOT NULL,
	"private_jwk" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL
);
--> statement-breakpoint
-- The labels of a session by which it can be found: the members of a JSON object that are texts. A
-- length goes before each key, so that no key and value look like another pair. Labels are text of any
-- kind; what is no such object, or has \u0000, has none. 64 pairs of 1,024 bytes bound the index.
CREATE FUNCTION ledger_labels(labels text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
  RETURN (SELECT array_agg(octet_length(key) || ':' || key || value) FROM (
    SELECT key, value #>> '{}' AS value FROM json_each(labels::json)
    WHERE json_typeof(value) = 'string' LIMIT 64
  ) pairs WHERE octet_length(key) + octet_length(value) <= 1024);
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE UNIQUE INDEX "session_events_key" ON "session_events" USING btree ("session_id","idempotency_key") WHERE idempotency_key is not null;--> statement-breakpoint
CREATE INDEX "session_events_recorded" ON "session_events" USING btree ("recorded_at");--> statement-breakpoint
CREATE UNIQUE INDEX "session_messages_key" ON "session_messages" USING btree ("session_id","idempotency_key") WHERE idempotency_key is not null;--> statement-breakpoint
CREATE INDEX "session_messages_recorded" ON "session_messages" USING btree ("recorded_at");--> statement-breakpoint
CREATE INDEX "session_runs_started" ON "session_runs" USING btree ("started_at");--> statement-breakpoint
CREATE INDEX "session_texts_row" ON "session_texts" USING btree ("session_id","stream","seq");--> statement-breakpoint
CREATE INDEX "session_texts_created" ON "session_texts" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "session_texts_words" ON "session_texts" USING gin ("words") WITH (fastupdate=false);--> statement-breakpoint
CREATE INDEX "session_tool_calls_started" ON "session_tool_calls" USING btree ("started_at");--> statement-breakpoint
CREATE INDEX "sessions_newest" ON "sessions" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE deleted_at is null;--> statement-breakpoint
CREATE INDEX "sessions_of_project" ON "sessions" USING btree ("project_id","created_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE deleted_at is null and project_id is not null;--> statement-breakpoint
CREATE INDEX "sessions_of_parent" ON "sessions" USING btree ("parent_session_id","created_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE deleted_at is null and parent_session_id is not null;--> statement-breakpoint
CREATE INDEX "sessions_waiting" ON "sessions" USING btree ("waiting_since","id") WHERE deleted_at is null and waiting_since is not null;--> statement-breakpoint
CREATE INDEX "sessions_running" ON "sessions" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE deleted_at is null and open_run_id is not null;--> statement-breakpoint
CREATE INDEX "sessions_cancelled" ON "sessions" USING btree ("id") WHERE deleted_at is null and cancel_seq is not null;--> statement-breakpoint
CREATE INDEX "sessions_changed" ON "sessions" USING btree ("changed_at");--> statement-breakpoint
CREATE INDEX "sessions_labels" ON "sessions" USING gin (ledger_labels("labels")) WITH (fastupdate=false) WHERE deleted_at is null and labels is not null;--> statement-breakpoint
-- Room in each page for the next version of its rows: each push updates its session's row.
ALTER TABLE "sessions" SET (fillfactor = 70);--> statement-breakpoint
-- include ledger.sql
--> statement-breakpoint
-- include texts.sql
--> statement-breakpoint
-- include fork.sql
--> statement-breakpoint
-- include analytics.sql

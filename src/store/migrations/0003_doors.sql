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
CREATE TABLE "token_keys" (
	"id" text PRIMARY KEY NOT NULL,
	"private_jwk" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "row_count" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "payload_bytes" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "erased_at" timestamp(6) with time zone;--> statement-breakpoint
-- What the sessions hold already. One statement over all rows: on a large database it takes its time,
-- and the sessions that it has come to are locked until it is done.
UPDATE "sessions" SET "row_count" = held.n, "payload_bytes" = held.bytes FROM (
	SELECT session_id, count(*) AS n, sum(octet_length(payload)) AS bytes FROM (
		SELECT session_id, payload FROM session_messages
		UNION ALL SELECT session_id, payload FROM session_events
	) AS kept GROUP BY session_id
) AS held WHERE sessions.id = held.session_id;

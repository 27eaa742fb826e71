DROP VIEW :"analytics".version, :"analytics".daily_usage, :"analytics".tools, :"analytics".sessions, :"analytics".runs;
--> statement-breakpoint
DROP FUNCTION :"analytics".tools_since(timestamptz);
--> statement-breakpoint
DROP VIEW :"analytics".tool_calls;
--> statement-breakpoint
-- Another program may have put something into it.
DO $$
BEGIN
  DROP SCHEMA :"analytics";
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN
  NULL;
END
$$;
--> statement-breakpoint
DROP FUNCTION ledger_append(text[], boolean, boolean, json, json, json, json);
--> statement-breakpoint
DROP FUNCTION ledger_open_stream(text, bigint, boolean, boolean);
--> statement-breakpoint
DROP FUNCTION ledger_store_texts(text, json, json, regconfig, json, json, json);
--> statement-breakpoint
DROP FUNCTION ledger_forget_texts(text, text, bigint);
--> statement-breakpoint
DROP FUNCTION ledger_fork(text, text, bigint, bigint, text, bigint, bigint);
--> statement-breakpoint
DROP FUNCTION ledger_messages_at(text, bigint, bigint);
--> statement-breakpoint
DROP TABLE "session_texts";
--> statement-breakpoint
DROP TABLE "session_runs";
--> statement-breakpoint
DROP TABLE "session_tool_calls";
--> statement-breakpoint
DROP TABLE "indexed_sessions";
--> statement-breakpoint
DROP TABLE "leases";
--> statement-breakpoint
DROP TABLE "imported_rows";
--> statement-breakpoint
DROP TABLE "imports";
--> statement-breakpoint
DROP TABLE "session_events";
--> statement-breakpoint
DROP TABLE "session_messages";
--> statement-breakpoint
DROP TABLE "sessions";
--> statement-breakpoint
DROP FUNCTION ledger_labels(text);
--> statement-breakpoint
DROP TABLE "token_keys";

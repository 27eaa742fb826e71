DROP FUNCTION ledger_append(text[], boolean, boolean, json, json, json, json);
--> statement-breakpoint
ALTER TABLE "sessions" RESET (fillfactor);

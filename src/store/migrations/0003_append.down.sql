DROP FUNCTION ledger_open_producer_stream(text, bigint, boolean, boolean);
--> statement-breakpoint
DROP FUNCTION ledger_append_pushes;

DROP FUNCTION ledger_fork_session;
--> statement-breakpoint
DROP FUNCTION ledger_last_message_at;
--> statement-breakpoint
DROP FUNCTION ledger_erase_rows;
--> statement-breakpoint
DROP FUNCTION ledger_store_session_texts;

DROP FUNCTION ledger_fork_session;
--> statement-breakpoint
DROP FUNCTION ledger_last_message_at;
--> statement-breakpoint
DROP FUNCTION ledger_erase_rows;
--> statement-breakpoint
DROP FUNCTION ledger_read_turns;
--> statement-breakpoint
DROP FUNCTION ledger_store_session_texts;
--> statement-breakpoint
DROP FUNCTION ledger_fix_plans;

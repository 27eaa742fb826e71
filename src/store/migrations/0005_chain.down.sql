-- replace session.sql
--> statement-breakpoint
DROP FUNCTION ledger_append_chained_pushes;
--> statement-breakpoint
DROP FUNCTION ledger_extend_chains;
--> statement-breakpoint
DROP FUNCTION ledger_chain;
--> statement-breakpoint
DROP FUNCTION ledger_event_link;
--> statement-breakpoint
DROP FUNCTION ledger_message_link;
--> statement-breakpoint
ALTER TABLE "sessions"
  DROP COLUMN "message_chain",
  DROP COLUMN "message_chain_seq",
  DROP COLUMN "message_chain_from",
  DROP COLUMN "message_chain_cut",
  DROP COLUMN "event_chain",
  DROP COLUMN "event_chain_seq",
  DROP COLUMN "event_chain_from",
  DROP COLUMN "event_chain_cut";

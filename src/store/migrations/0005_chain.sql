ALTER TABLE "sessions"
  ADD COLUMN "message_chain" "bytea",
  ADD COLUMN "message_chain_seq" bigint,
  ADD COLUMN "message_chain_from" bigint,
  ADD COLUMN "message_chain_cut" "bytea",
  ADD COLUMN "event_chain" "bytea",
  ADD COLUMN "event_chain_seq" bigint,
  ADD COLUMN "event_chain_from" bigint,
  ADD COLUMN "event_chain_cut" "bytea";
--> statement-breakpoint
-- include chain.sql
--> statement-breakpoint
-- include append-0005.sql
--> statement-breakpoint
-- replace erase-0005.sql

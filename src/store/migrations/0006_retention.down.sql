DROP FUNCTION ledger_retain_sessions;
--> statement-breakpoint
DROP FUNCTION ledger_ended_runs;
--> statement-breakpoint
DROP INDEX "sessions_unlooked";
--> statement-breakpoint
ALTER TABLE "sessions" DROP COLUMN "retained_until";

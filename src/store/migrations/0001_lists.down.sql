-- replace ledger.sql
--> statement-breakpoint
-- replace fork.sql
--> statement-breakpoint
DROP INDEX "sessions_of_phase";
--> statement-breakpoint
DROP INDEX "sessions_newest";
--> statement-breakpoint
CREATE INDEX "sessions_newest" ON "sessions" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE deleted_at is null;
--> statement-breakpoint
ALTER TABLE "sessions" DROP COLUMN "active_at";
--> statement-breakpoint
ALTER TABLE "leases" DROP COLUMN "done_until";

ALTER TABLE "leases" ADD COLUMN "done_until" timestamp(6) with time zone;--> statement-breakpoint
-- Pushes wait for this and what follows: with 1,000,000 sessions for 21 s.
ALTER TABLE "sessions" ADD COLUMN "active_at" timestamp(6) with time zone;--> statement-breakpoint
UPDATE "sessions" SET "active_at" = coalesce("last_activity_at", "created_at");--> statement-breakpoint
ALTER TABLE "sessions" ALTER COLUMN "active_at" SET DEFAULT clock_timestamp(), ALTER COLUMN "active_at" SET NOT NULL;--> statement-breakpoint
DROP INDEX "sessions_newest";--> statement-breakpoint
CREATE INDEX "sessions_newest" ON "sessions" USING btree ("created_at" DESC NULLS FIRST,"id" DESC NULLS FIRST) WHERE deleted_at is null;--> statement-breakpoint
CREATE INDEX "sessions_active" ON "sessions" USING btree ("active_at" DESC NULLS FIRST,"id" DESC NULLS FIRST) WHERE deleted_at is null;--> statement-breakpoint
CREATE INDEX "sessions_active_of_project" ON "sessions" USING btree ("project_id","active_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE deleted_at is null and project_id is not null;--> statement-breakpoint
CREATE INDEX "sessions_of_phase" ON "sessions" USING btree ("phase") WHERE deleted_at is null and phase is not null;--> statement-breakpoint
-- replace ledger-0001.sql
--> statement-breakpoint
-- replace fork-0001.sql

ALTER TABLE "sessions" ADD COLUMN "retained_until" timestamp(6) with time zone DEFAULT 'epoch' NOT NULL;
--> statement-breakpoint
-- Pushes wait for this: with 1,000,000 sessions for 0.7 s.
CREATE INDEX "sessions_unlooked" ON "sessions" USING btree ("retained_until","id") WHERE erased_at is null and hold is null;
--> statement-breakpoint
-- include retain.sql

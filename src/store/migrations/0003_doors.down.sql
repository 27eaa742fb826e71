ALTER TABLE "sessions" DROP COLUMN "erased_at";
--> statement-breakpoint
ALTER TABLE "sessions" DROP COLUMN "payload_bytes";
--> statement-breakpoint
ALTER TABLE "sessions" DROP COLUMN "row_count";
--> statement-breakpoint
DROP TABLE "token_keys";
--> statement-breakpoint
DROP TABLE "imports";
--> statement-breakpoint
DROP TABLE "imported_rows";

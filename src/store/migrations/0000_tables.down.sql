DROP TABLE "session_events";
--> statement-breakpoint
DROP TABLE "session_messages";
--> statement-breakpoint
DROP TABLE "sessions";

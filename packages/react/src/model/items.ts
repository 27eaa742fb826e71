/** The items of a conversation, as its view shows them at one moment. */
import type { JsonObject } from "@session-ledger/agui/json";
import type { ModelUsage } from "@session-ledger/agui/run-end";

interface ItemBase {
  /** Of this item at every moment; unique in the session. */
  readonly key: string;
  /** The number of the event that made it; for a message row, of the event before it. */
  readonly seq: number;
  readonly atMs: number;
  /** Empty outside a run. */
  readonly runId: string;
}

export interface MessageItem extends ItemBase {
  readonly kind: "message";
  /** The name of the subagent that it is of, or its id; undefined: it is the agent's own. */
  readonly subagent: string | undefined;
  readonly id: string;
  readonly role: string;
  /** Of the sender, or what the agent calls itself. */
  readonly name: string | undefined;
  /** A text, or the parts of a user's message. */
  readonly content: unknown;
  readonly isStreaming: boolean;
  /** A row of the messages' stream said it; undefined: an event did. */
  readonly by: "person" | "agent" | undefined;
  /** The number of that row. */
  readonly messageSeq: number | undefined;
  /** No run has taken it. */
  readonly isPending: boolean;
  readonly sender: JsonObject | undefined;
  readonly feedback: readonly JsonObject[];
  /** Events with which runs began that answered it, or an edit of it, again; empty: none. */
  readonly branches: readonly number[];
  /** The message as a transcript has it, without feedback. */
  readonly message: JsonObject;
}

export interface ThinkingItem extends ItemBase {
  readonly kind: "thinking";
  readonly subagent: string | undefined;
  readonly id: string;
  readonly text: string;
  readonly isStreaming: boolean;
}

export interface ToolItem extends ItemBase {
  readonly kind: "tool";
  readonly subagent: string | undefined;
  /** Of the call. */
  readonly id: string;
  readonly messageId: string;
  readonly name: string;
  /** JSON text, if the agent wrote correct JSON and has written all of it. */
  readonly args: string;
  readonly isStreaming: boolean;
  readonly status: "pending" | "done" | "failed" | "unanswered";
  /** The message with the result; undefined: none yet. */
  readonly result: JsonObject | undefined;
  /** Undefined also where one event, a snapshot, has brought both the call and the result. */
  readonly resultMs: number | undefined;
}

export interface ActivityItem extends ItemBase {
  readonly kind: "activity";
  readonly subagent: string | undefined;
  readonly id: string;
  readonly type: string;
  readonly content: unknown;
}

export interface StateItem extends ItemBase {
  readonly kind: "state";
  /** Of the last change; consecutive changes are one item. */
  readonly change: "snapshot" | "delta";
  /** The first pointers of the last delta. */
  readonly paths: readonly string[];
  readonly count: number;
  /** The number of the last change. */
  readonly lastSeq: number;
}

export interface RunItem extends ItemBase {
  readonly kind: "run";
  readonly phase: "start" | "end" | "error";
  /** Of an end: `success` or `interrupt`. */
  readonly outcome: string | undefined;
  /** From 1; 0: its beginning is not in the log. */
  readonly number: number;
  /** Of an end, where it is known. */
  readonly tookMs: number | undefined;
  readonly toolCalls: number;
  readonly usage: readonly ModelUsage[];
  /** What became of its interrupts; undefined: they wait, or none exist. */
  readonly answer: "answered" | "unanswered" | undefined;
  /** Of an error. */
  readonly message: string | undefined;
  readonly code: string | undefined;
}

export type Item = MessageItem | ThinkingItem | ToolItem | ActivityItem | StateItem | RunItem;

/**
 * What the conversation view shows at one moment of a session: items in the order of the
 * conversation. An item that did not change between two moments is the same object.
 */
import type { JsonObject } from "../../../src/agui/json.ts";

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
  readonly saidSeq: number | undefined;
  /** No run has taken it. */
  readonly isPending: boolean;
  readonly sender: JsonObject | undefined;
  readonly feedback: readonly JsonObject[];
  /** The message as a transcript has it, without feedback. */
  readonly message: JsonObject;
}

export interface ThinkingItem extends ItemBase {
  readonly kind: "thinking";
  readonly id: string;
  readonly text: string;
  readonly isStreaming: boolean;
}

export interface ToolItem extends ItemBase {
  readonly kind: "tool";
  /** Of the call. */
  readonly id: string;
  readonly messageId: string;
  readonly name: string;
  /** JSON text, if the agent wrote correct JSON and has written all of it. */
  readonly args: string;
  readonly isStreaming: boolean;
  readonly status: "pending" | "done" | "failed";
  /** The message with the result; undefined: there is none yet. */
  readonly result: JsonObject | undefined;
  readonly resultMs: number | undefined;
}

export interface ActivityItem extends ItemBase {
  readonly kind: "activity";
  readonly id: string;
  readonly type: string;
  readonly content: unknown;
}

export interface StateItem extends ItemBase {
  readonly kind: "state";
  readonly change: "snapshot" | "delta";
  /** The pointers of a delta. */
  readonly paths: readonly string[];
}

export interface RunItem extends ItemBase {
  readonly kind: "run";
  readonly phase: "start" | "end" | "error";
  /** Of an end: `success` or `interrupt`. */
  readonly outcome: string | undefined;
  /** Of an error. */
  readonly message: string | undefined;
  readonly code: string | undefined;
}

export type Item = MessageItem | ThinkingItem | ToolItem | ActivityItem | StateItem | RunItem;

export interface Moment {
  /** The event it stands behind. */
  readonly seq: number;
  readonly items: readonly Item[];
  /** As the transcript has them at this number, with feedback. */
  readonly messages: readonly JsonObject[];
  /** Undefined: no state was set. The same object as long as the state does not change. */
  readonly state: unknown;
  /** What the agent waits for. */
  readonly interrupts: readonly JsonObject[];
  readonly run: { readonly runId: string; readonly isOpen: boolean } | undefined;
}

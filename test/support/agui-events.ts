/** Events and messages as agents and pages send them. */

export interface AguiEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

export const started = (runId = "r1", more: object = {}) => ({
  type: "RUN_STARTED",
  threadId: "t",
  runId,
  ...more,
});

export const finished = (runId = "r1", more: object = {}) => ({
  type: "RUN_FINISHED",
  threadId: "t",
  runId,
  ...more,
});

export const start = (messageId: string) => ({
  type: "TEXT_MESSAGE_START",
  messageId,
  role: "assistant",
});

export const content = (messageId: string, delta: string) => ({
  type: "TEXT_MESSAGE_CONTENT",
  messageId,
  delta,
});

export const end = (messageId: string) => ({ type: "TEXT_MESSAGE_END", messageId });

/** One whole message. */
export const text = (messageId: string, ...deltas: readonly string[]): readonly AguiEvent[] => [
  start(messageId),
  ...deltas.map((delta) => content(messageId, delta)),
  end(messageId),
];

export const state = (snapshot: unknown) => ({ type: "STATE_SNAPSHOT", snapshot });

export const snapshot = (...messages: readonly object[]) => ({
  type: "MESSAGES_SNAPSHOT",
  messages,
});

export const user = (id: string, shown = id) => ({ id, role: "user", content: shown }) as const;

export const assistant = (id: string, shown = id) => ({ id, role: "assistant", content: shown });

/**
 * The expected view of a session: the real client, fed with every event. If the client refuses one of
 * the stored events, it is fed
 *
 * - all in order: without steps, and without the second end of a run. Neither changes messages or state,
 *   so the view is complete.
 * - a translation: events of another generation, and events out of order, as docs/ag-ui.md says that
 *   they are served. This second implementation shares no code with src/conversation.
 *
 * A client that refuses even the translation fails the test.
 */
import { type AguiClient, type Conversation, typeOf } from "./agui-clients.ts";

export interface Oracle {
  readonly conversation: Conversation;
  readonly fed: "everything" | "all in order" | "a translation";
}

export async function oracleOf(client: AguiClient, events: readonly string[]): Promise<Oracle> {
  const isReadable = !isThinking(events) && !hasLooseFragment(events);
  const everything = isReadable ? await fed(client, events) : undefined;
  if (everything !== undefined) return { conversation: everything, fed: "everything" };
  const ordered = isReadable ? await fed(client, inOrder(events)) : undefined;
  if (ordered !== undefined) return { conversation: ordered, fed: "all in order" };
  return { conversation: await client.fed(translated(client, events)), fed: "a translation" };
}

/** Undefined when the client ends the stream. */
async function fed(
  client: AguiClient,
  events: readonly string[],
): Promise<Conversation | undefined> {
  try {
    return await client.fed(events);
  } catch {
    return undefined;
  }
}

/** No client shows the served form: 0.0.59 omits it, and 1.0.0 gives it random ids. */
function isThinking(events: readonly string[]): boolean {
  return events.some((event) => typeOf(event).startsWith("THINKING_"));
}

/** A fragment whose START was lost is ignored by a client, or ends the stream. */
function hasLooseFragment(events: readonly string[]): boolean {
  const started = new Set<unknown>();
  return events
    .map((event) => fieldsOf(JSON.parse(event)))
    .some(({ type, toolCallId }) => {
      if (type === "TOOL_CALL_START") started.add(toolCallId);
      return type === "TOOL_CALL_ARGS" && !started.has(toolCallId);
    });
}

const RUN_ENDS: ReadonlySet<string> = new Set(["RUN_FINISHED", "RUN_ERROR"]);
const STEPS: ReadonlySet<string> = new Set(["STEP_STARTED", "STEP_FINISHED"]);

function inOrder(events: readonly string[]): readonly string[] {
  let isOpen = false;
  return events.filter((event) => {
    const type = typeOf(event);
    const endsTwice = RUN_ENDS.has(type) && !isOpen;
    if (type === "RUN_STARTED") isOpen = true;
    if (RUN_ENDS.has(type)) isOpen = false;
    return !endsTwice && !STEPS.has(type);
  });
}

type Fields = Readonly<Record<string, unknown>>;

function translated(client: AguiClient, events: readonly string[]): readonly string[] {
  const started = new Set<unknown>();
  let thoughts = 0;
  return inOrder(events)
    .map((event) => fieldsOf(JSON.parse(event)))
    .flatMap((event): readonly Fields[] => {
      const { type, messageId, toolCallId } = event;
      switch (type) {
        case "META": // They come as CUSTOM, of which no client keeps anything.
        case "CUSTOM":
          return [];
        case "RUN_STARTED":
          started.clear();
          return [event];
        case "TEXT_MESSAGE_START":
          if (started.has(messageId)) return [];
          started.add(messageId);
          return [event];
        case "TOOL_CALL_ARGS":
          if (started.has(toolCallId)) return [event];
          started.add(toolCallId);
          return [{ type: "TOOL_CALL_START", toolCallId, toolCallName: "unknown" }, event];
        case "TOOL_CALL_START":
          started.add(toolCallId);
          return [event];
        case "TOOL_CALL_RESULT":
          return [client.generation === "1.0.0" ? event : withText(event)];
        case "THINKING_START":
        case "THINKING_END":
          return [reasoning(event, "THINKING_", "thinking")];
        case "THINKING_TEXT_MESSAGE_START":
          thoughts += 1;
          return [
            { ...reasoning(event, "THINKING_TEXT_", `thought-${thoughts}`), role: "reasoning" },
          ];
        case "THINKING_TEXT_MESSAGE_CONTENT":
        case "THINKING_TEXT_MESSAGE_END":
          return [reasoning(event, "THINKING_TEXT_", `thought-${thoughts}`)];
        default:
          return [event];
      }
    })
    .map((event) => JSON.stringify(event));
}

function reasoning(event: Fields, prefix: string, messageId: string): Fields {
  return { ...event, type: String(event["type"]).replace(prefix, "REASONING_"), messageId };
}

/** 0.0.59 knows no parts in a tool result. */
function withText(event: Fields): Fields {
  const { content } = event;
  if (!Array.isArray(content)) return event;
  const parts = content.map(fieldsOf);
  return { ...event, content: parts.map(({ text }) => text).join("\n") };
}

/**
 * THINKING becomes REASONING, with ids that the ledger chooses. The comparison matches the ids by their
 * order.
 */
export function comparable(conversation: Conversation, events: readonly string[]): Conversation {
  if (!isThinking(events)) return conversation;
  let thoughts = 0;
  const messages = conversation.messages.map(fieldsOf).map((message) => {
    if (message["role"] !== "reasoning") return message;
    thoughts += 1;
    return { ...message, id: `thought-${thoughts}` };
  });
  return { ...conversation, messages };
}

function fieldsOf(value: unknown): Fields {
  if (typeof value !== "object" || value === null) throw new TypeError("not a JSON object");
  return { ...value };
}

/**
 * Narrows events for a client of one generation. One event that a client cannot parse ends its
 * stream, in CopilotKit's client without a message, so only events that the client's schemas accept
 * are sent. Accepted events pass as the stored bytes. Other events lose their faulty optional
 * fields, or become an equivalent event. An event whose type the generation does not have goes out
 * as CUSTOM with its name. A state event without a state has no meaning and is left out.
 * docs/ag-ui.md, "Served", has the table.
 */
import { customOf, tagOf, without } from "../canonical/event.ts";
import { isObject, type JsonObject } from "../../agui/json.ts";
import { mapped, withField, withoutFaults } from "./faults.ts";
import { eventSchemas, innerSchemas, type Generation } from "./generation-schemas.ts";
import {
  narrowedInput,
  narrowedMessages,
  toolContent,
  withoutMessages,
} from "./narrowed-messages.ts";

export type { Generation } from "./generation-schemas.ts";

/**
 * `protocolVersion` of RunAgentInput: 1.0 and later versions; older clients do not send the field.
 */
export function generationOf(protocolVersion: string | undefined): Generation {
  return protocolVersion !== undefined && /^[1-9]\d*(\.\d+)+$/.test(protocolVersion)
    ? "1.0.0"
    : "common";
}

/** The results are JSON texts, one event each. */
export function servedTo(
  generation: Generation,
  { value, text }: { readonly value: JsonObject; readonly text: string | undefined },
): readonly string[] {
  const served = narrowed(generation, value);
  if (served === value) return [text ?? JSON.stringify(value)];
  return served === undefined ? [] : [JSON.stringify(served)];
}

/** Returns the same event when it needs no change; undefined: it is left out. */
function narrowed(generation: Generation, value: JsonObject): JsonObject | undefined {
  const type = String(value["type"]);
  const schemas = isKnown(generation, type, value) ? eventSchemas(generation, type) : [];
  if (schemas.length > 0) {
    // A null in this field ends a stream on any event, also on types that do not have the field.
    const said = value["subagentRunId"] === null ? without(value, "subagentRunId") : value;
    const shaped = SHAPES[type]?.(generation, said) ?? said;
    // The messages were checked one by one, more strictly than by a schema.
    const checked = withoutMessages(shaped);
    const kept = withoutFaults(schemas, checked);
    if (kept === checked) return shaped;
    if (kept !== undefined) return { ...kept, ...messagesOf(shaped) };
    if (type === "STATE_SNAPSHOT") return undefined;
  }
  return withoutFaults(eventSchemas(generation, "CUSTOM"), customOf(type, value));
}

/** Before 0.0.59 a step had no owner, and could not be open twice. */
function isKnown(generation: Generation, type: string, value: JsonObject): boolean {
  const isStep = type === "STEP_STARTED" || type === "STEP_FINISHED";
  return generation === "1.0.0" || !isStep || tagOf(value) === undefined;
}

type Shape = (generation: Generation, value: JsonObject) => JsonObject;

const SHAPES: Readonly<Record<string, Shape>> = {
  RUN_STARTED: (generation, value) => {
    const { input } = value;
    return isObject(input) ? withField(value, "input", narrowedInput(generation, input)) : value;
  },
  RUN_FINISHED: (generation, value) => {
    const { outcome } = value;
    return isObject(outcome)
      ? withField(value, "outcome", narrowedOutcome(generation, outcome))
      : value;
  },
  TOOL_CALL_RESULT: (generation, value) =>
    withField(value, "content", toolContent(generation, value["content"])),
  MESSAGES_SNAPSHOT: (generation, value) =>
    withField(value, "messages", narrowedMessages(generation, value["messages"])),
  CUSTOM: (_, value) => (value["value"] === undefined ? { ...value, value: null } : value),
  RAW: (_, value) => (value["event"] === undefined ? { ...value, event: null } : value),
};

function messagesOf({ input, messages }: JsonObject): JsonObject {
  if (isObject(input)) return { input };
  return Array.isArray(messages) ? { messages } : {};
}

/** Undefined: the generation has no such outcome, and takes a missing one for success. */
function narrowedOutcome(generation: Generation, outcome: JsonObject): JsonObject | undefined {
  const { type, interrupts } = outcome;
  const isCommon = generation === "common";
  if (type === "success" && isCommon && Object.keys(outcome).length > 1) return { type };
  if (type === "cancelled" && isCommon) return undefined;
  if (type !== "interrupt" || !Array.isArray(interrupts)) return outcome;
  const { interrupt } = innerSchemas(generation);
  const kept = mapped(interrupts, (one) => withoutFaults(interrupt, one));
  const hasMore = isCommon && Object.keys(outcome).length > 2;
  if (hasMore) return { type, interrupts: kept };
  return withField(outcome, "interrupts", kept);
}

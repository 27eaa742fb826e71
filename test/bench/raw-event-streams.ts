/**
 * Streams whose fragments carry a `rawEvent` each. No recording has .NET's, so text streams are given
 * the form that the Agent Framework's hosting for ASP.NET sends: the update of the chat from which the
 * event was made, with its text and, from some models, the time of the update. LangGraph's are recorded
 * with a RAW event between two fragments, which it can leave out.
 */
import { isCompressible } from "@session-ledger/agui/catalogue";
import { parseObject } from "@session-ledger/agui/json";
import type { Stream, StreamEvent } from "../support/streams.ts";

/** 2026-01-01T00:00:00Z. */
const BEGAN_MS = 1_767_225_600_000;
const UPDATE_MS = 20;
export const DOTNET = ".NET";

export function rawEventStreams(
  texts: readonly Stream[],
  recorded: readonly Stream[],
): readonly Stream[] {
  const dotnet = (form: string, isTimed: boolean) => (stream: Stream) => ({
    ...stream,
    agent: `${form}, ${stream.agent}`,
    events: stream.events.map((event, at) =>
      asDotnet(event, BEGAN_MS + (isTimed ? at : 0) * UPDATE_MS),
    ),
  });
  const carriers = recorded.filter(({ events }) => events.some(carriesRaw));
  return [
    ...texts.map(dotnet(DOTNET, false)),
    ...texts.map(dotnet(`${DOTNET} timed`, true)),
    ...carriers.map(({ agent, events, ...stream }) => ({
      ...stream,
      agent: `${agent}, no RAW`,
      events: events.filter(({ eventType }) => eventType !== "RAW"),
    })),
  ];
}

function carriesRaw({ eventType, payload }: StreamEvent): boolean {
  return isCompressible(eventType) && "rawEvent" in parseObject(payload);
}

function asDotnet({ eventType, payload }: StreamEvent, createdMs: number): StreamEvent {
  if (!isCompressible(eventType)) return { eventType, payload };
  const event = parseObject(payload);
  const messageId = "chatcmpl-0a1b2c3d4e5f6071";
  const text = {
    $type: "text",
    text: event["delta"],
    annotations: null,
    additionalProperties: null,
  };
  const rawEvent = {
    authorName: "Assistant",
    role: "assistant",
    contents: [text],
    responseId: messageId,
    messageId,
    createdAt: new Date(createdMs).toISOString(),
    conversationId: null,
    finishReason: null,
    modelId: "gpt-4o",
    continuationToken: null,
    additionalProperties: null,
  };
  return { eventType, payload: JSON.stringify({ ...event, rawEvent }) };
}

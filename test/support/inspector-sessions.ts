/**
 * Sessions to look at with the inspector: recorded agents, long ones, languages, and hostile payloads.
 * All of them are pushed through the public HTTP API.
 */
import { z } from "zod";
import { noVersionAccepts } from "./recorded.ts";
import { ownStreams, recordedStreams, type Stream } from "./streams.ts";

export type AguiEvent = Readonly<Record<string, unknown>> & { readonly type: string };

const API = "/api/ambient/v1";
const madeSchema = z.looseObject({ metadata: z.looseObject({ id: z.string() }) });
const storedSchema = z.looseObject({ last_seq: z.number() });

/** A service, and the token if it wants one. */
export interface Door {
  readonly httpAddress: string;
  readonly token?: string;
}

/** Events and characters of one request of `pushAll`, below the limits of a body. */
const REQUEST_EVENTS = 5_000;
const REQUEST_CHARACTERS = 1_000_000;

/** Resolves with the number of the last event. */
export async function pushAll(
  door: Door,
  sessionId: string,
  events: readonly (AguiEvent | string)[],
): Promise<number> {
  const bodies: string[][] = [];
  let characters = Number.POSITIVE_INFINITY;
  for (const event of events) {
    const line = typeof event === "string" ? event : JSON.stringify(event);
    const isFull = bodies.at(-1)?.length === REQUEST_EVENTS;
    if (isFull || characters + line.length > REQUEST_CHARACTERS) {
      bodies.push([]);
      characters = 0;
    }
    bodies.at(-1)?.push(line);
    characters += line.length;
  }
  let lastSeq = 0;
  for (const lines of bodies) {
    const body = `${lines.join("\n")}\n`;
    const path = `/sessions/${encodeURIComponent(sessionId)}/events`;
    const answer = await post(door, path, { type: "application/x-ndjson", body });
    lastSeq = storedSchema.parse(answer).last_seq;
  }
  return lastSeq;
}

export async function say(door: Door, sessionId: string, message: object): Promise<void> {
  const body = JSON.stringify(message);
  await post(door, `/sessions/${encodeURIComponent(sessionId)}/messages`, { body });
}

export async function makeSession(door: Door, fields: object): Promise<string> {
  const made = await post(door, "/sessions", { body: JSON.stringify(fields) });
  return madeSchema.parse(made).metadata.id;
}

/** Names an existing session. */
export async function rename(door: Door, sessionId: string, name: string): Promise<void> {
  const body = JSON.stringify({ name });
  await post(door, `/sessions/${encodeURIComponent(sessionId)}`, { body, method: "PATCH" });
}

async function post(
  { httpAddress, token }: Door,
  path: string,
  {
    body,
    method = "POST",
    type = "application/json",
  }: { body: string; method?: string; type?: string },
): Promise<unknown> {
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(`http://${httpAddress}${API}${path}`, {
    method,
    headers: { "content-type": type, ...authorization },
    body,
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

/** Five streams of different agents: recorded ones, or without CORPUS the project's own. */
export function fiveAgents(): readonly Stream[] {
  const recorded = recordedStreams();
  if (recorded === undefined) return ownStreams().slice(0, 5);
  return FIVE.map(([agent, scenario]) => {
    const found = recorded.find((one) => one.agent === agent && one.scenario === scenario);
    if (found === undefined) throw new Error(`the corpus has no ${scenario} of ${agent}`);
    return { ...found, events: found.events.filter((event) => !noVersionAccepts(event)) };
  });
}

const FIVE = [
  ["langgraph-openai", "multi_tool"],
  ["openai-raw", "hitl_approval"],
  ["pydantic-anthropic", "thinking"],
  ["agno-openai", "error_handling"],
  ["vercel-gemini", "tool_calc"],
] as const;

/** A run with the given events between its ends. */
export function run(runId: string, events: readonly AguiEvent[]): readonly AguiEvent[] {
  return [
    { type: "RUN_STARTED", threadId: "t", runId },
    ...events,
    { type: "RUN_FINISHED", threadId: "t", runId },
  ];
}

/** A message in as many pieces as are given. */
export function spoken(messageId: string, ...deltas: readonly string[]): readonly AguiEvent[] {
  return [
    { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
    ...deltas.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta })),
    { type: "TEXT_MESSAGE_END", messageId },
  ];
}

export interface Call {
  readonly id: string;
  readonly name: string;
  /** The JSON of the arguments, in pieces; whole or not. */
  readonly args: readonly string[];
  /** Without one the call is pending. */
  readonly result?: string;
}

export function called({ id, name, args, result }: Call): readonly AguiEvent[] {
  const answered =
    result === undefined
      ? []
      : [{ type: "TOOL_CALL_RESULT", messageId: `${id}-result`, toolCallId: id, content: result }];
  return [
    { type: "TOOL_CALL_START", toolCallId: id, toolCallName: name },
    ...args.map((delta) => ({ type: "TOOL_CALL_ARGS", toolCallId: id, delta })),
    { type: "TOOL_CALL_END", toolCallId: id },
    ...answered,
  ];
}

export function toolCalls(count: number): readonly AguiEvent[] {
  const calls = Array.from({ length: count }, (_, n) =>
    called({
      id: `call-${n}`,
      name: n % 3 === 0 ? "read_file" : "search",
      args: [`{"n":${n},`, `"path":"src/file-${n}.ts"}`],
      result: `{"lines":${n},"ok":true}`,
    }),
  );
  return run("tools", calls.flat());
}

/** Whole runs of 500 events: text by tokens, thinking, tools, steps and state; `count` is a multiple of it. */
export function manyEvents(count: number): readonly AguiEvent[] {
  const runs = count / EVENTS_OF_RUN;
  if (!Number.isInteger(runs))
    throw new RangeError(`${count} is not a multiple of ${EVENTS_OF_RUN}`);
  return Array.from({ length: runs }, (_, n) => longRun(n)).flat();
}

const EVENTS_OF_RUN = 500;

function longRun(n: number): readonly AguiEvent[] {
  const id = `run-${n}`;
  const calls = Array.from({ length: 10 }, (_, c) =>
    called({
      id: `${id}-call-${c}`,
      name: "search",
      args: [`{"query":`, `"number ${n}.${c}"}`],
      result: `{"found":${c}}`,
    }),
  ).flat();
  const state = Array.from({ length: 10 }, (_, value) => ({
    type: "STATE_DELTA",
    delta: [{ op: "replace", path: "/progress", value }],
  }));
  const rest = [
    { type: "STATE_SNAPSHOT", snapshot: { run: n, progress: 0 } },
    { type: "STEP_STARTED", stepName: "work" },
    ...calls,
    ...state,
    { type: "STEP_FINISHED", stepName: "work" },
  ];
  const tokens = EVENTS_OF_RUN - rest.length - 4;
  const words = Array.from({ length: tokens - 1 }, (_, word) => `word${word} `);
  return run(id, [...rest, ...spoken(`${id}-answer`, `Answer ${n}: `, ...words)]);
}

export const ARABIC = {
  question: "ما هي عاصمة المغرب؟",
  answer: "عاصمة المغرب هي **الرباط**، وهي مدينة على المحيط الأطلسي.",
} as const;

export const CHINESE = {
  question: "长城有多长？",
  answer: "长城全长约**两万一千**公里，横跨中国北部。",
} as const;

export function conversationIn({ answer }: { readonly answer: string }): readonly AguiEvent[] {
  return run("r1", spoken("a1", ...answer.split(/(?<= )/)));
}

export const FAILURE = "The model did not answer within 30 seconds";

/** A run that fails in the middle of a tool call. */
export function failing(): readonly AguiEvent[] {
  return [
    { type: "RUN_STARTED", threadId: "t", runId: "failed" },
    ...spoken("f1", "I shall look."),
    { type: "TOOL_CALL_START", toolCallId: "f-call", toolCallName: "look_up" },
    { type: "TOOL_CALL_ARGS", toolCallId: "f-call", delta: '{"name":' },
    { type: "RUN_ERROR", message: FAILURE, code: "TIMEOUT" },
  ];
}

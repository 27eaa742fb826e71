/**
 * The requests of CopilotKit's client (@copilotkit/core 1.75.0) to a runtime, as far as a ledger
 * can answer them: the list of agents, connect, run, and stop. The thread is the session. The agent
 * may have any name, but a page only uses agents that `info` names or the page registers
 * (`registerProxiedAgent`); the default is `default`. A page with a single endpoint sends the same
 * in an envelope: `{ method, params, body }`.
 *
 * `connect` stores nothing: a new message is refused. The agent counts as running, and a chat as
 * busy, until the answer has ended (`connectWithoutEventVerification`). So a session without a run,
 * or an unknown one, gets an empty answer at once, as from CopilotKit's own runtime. And the answer
 * waits for further runs only if the page states in its `properties` (forwardedProps) that it only
 * watches.
 */
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { isObject } from "@session-ledger/agui/json";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { flatMap, only } from "../base/pull.ts";
import type { AguiRun, AguiRunRequest } from "../handlers/agui-run.ts";
import type { AguiFrames } from "../conversation/event-writer.ts";
import type { CallContext } from "../contract/context.ts";
import { type AguiRouteParts, INPUT_ERROR, runAgentInput, sendAguiStream } from "./agui-routes.ts";
import { answer, PROBLEMS, type RouteParts, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf, streamContextOf } from "./plumbing/call-context.ts";
import { refusalOfIssues } from "./plumbing/problem.ts";
import { NO_QUERY, SESSION_ID, textMember } from "./parameters.ts";
import { checkSessionId } from "../contract/checks.ts";

const AGENT = {
  name: "default",
  className: "SessionLedger",
  description: "Shows the session that the thread names.",
};

/** Every field that the client reads, so that no default of the client applies. */
const INFO = JSON.stringify({
  version: "1",
  mode: "sse",
  agents: { [AGENT.name]: AGENT },
  audioFileTranscriptionEnabled: false,
  threadEndpoints: { list: false, inspect: false, mutations: false, realtimeMetadata: false },
  inspectorMetadata: false,
  suggestions: false,
  a2uiEnabled: false,
  openGenerativeUIEnabled: false,
  telemetryDisabled: true,
});

const connectInput = z.object(
  {
    ...runAgentInput.shape,
    threadId: z
      .string({ error: "must be a session id" })
      .meta({ description: "The session.", ...SESSION_ID }),
    forwardedProps: z
      .unknown()
      .optional()
      .meta({ description: "With `follow: true` the answer stays for further runs." }),
  },
  { error: INPUT_ERROR },
);

type ConnectInput = z.infer<typeof connectInput>;

export function copilotKitRoutes(app: App, parts: AguiRouteParts): void {
  app.get("/copilotkit/info", { schema: INFORM }, (_request, reply) => sendJson(reply, INFO));
  app.post("/copilotkit/agent/:agent/connect", { schema: CONNECT }, (request, reply) =>
    serve(parts, reply, { input: request.body, isReadOnly: true }),
  );
  app.post("/copilotkit/agent/:agent/run", { schema: RUN }, (request, reply) =>
    serve(parts, reply, { input: request.body, isReadOnly: false }),
  );
  app.post("/copilotkit/agent/:agent/stop/:thread", { schema: STOP }, (request, reply) =>
    stop(parts, reply, { thread: request.params.thread, field: "thread", named: request.body }),
  );
  app.post("/copilotkit", { schema: ENVELOPE }, async (request, reply) => {
    const { method, params, body } = request.body;
    if (method === "info") return sendJson(reply, INFO);
    if (method === "agent/stop") {
      const { threadId: thread = "" } = stopParams.safeParse(params).data ?? {};
      const named = parsed(stopBody, body);
      return stop(parts, reply, { thread, field: "params.threadId", named, path: "body." });
    }
    const isReadOnly = AGENT_METHODS.get(method);
    if (isReadOnly === undefined)
      throw new ServiceError("unimplemented", "NOT_IMPLEMENTED", ONLY_READS);
    await serve(parts, reply, { input: parsed(connectInput, body), isReadOnly, path: "body." });
    return reply;
  });
}

/** Whether the request only reads. */
const AGENT_METHODS: ReadonlyMap<string, boolean> = new Map([
  ["agent/connect", true],
  ["agent/run", false],
]);

interface AgentCall {
  readonly input: ConnectInput;
  readonly isReadOnly: boolean;
  /** The path of the input in the body, for errors. */
  readonly path?: "body.";
}

function serve(
  { runAgent, inputs, ...stream }: AguiRouteParts,
  reply: FastifyReply,
  { input, isReadOnly, path }: AgentCall,
): Promise<void> {
  const { threadId: sessionId, messages, protocolVersion, forwardedProps } = input;
  refuseThread(sessionId, `${path ?? ""}threadId`);
  const context = streamContextOf(reply.request);
  // Other properties belong to the app and are ignored.
  const follow = isObject(forwardedProps) && forwardedProps["follow"] === true;
  const { runInput, ...rest } = inputs.keep(messages, reply);
  const asked: AguiRunRequest = {
    sessionId,
    protocolVersion: protocolVersion ?? undefined,
    ...rest,
    // The page reloads by `connect`, so a run is a new one, also with a message that was answered.
    runInput: runInput && { ...runInput, regenerates: true },
    isReadOnly,
    follow,
    canWait: follow,
    replay: "snapshot",
  };
  return sendAguiStream(reply, context, framesOf(runAgent, asked, context), stream);
}

interface Stop {
  readonly thread: string;
  /** The field of the thread, for errors. */
  readonly field: string;
  readonly named: z.infer<typeof stopBody>;
  readonly path?: "body.";
}

/**
 * The core names its own request (`runId`) after a `run`, and no run after a `connect`: then it
 * means the open one. The answer is that of CopilotKit's own runtime.
 */
async function stop(
  { handlers }: RouteParts,
  reply: FastifyReply,
  { thread: sessionId, field, named, path }: Stop,
): Promise<FastifyReply> {
  refuseThread(sessionId, field);
  const { runId, threadId } = named ?? {};
  if (threadId !== undefined && threadId !== sessionId) {
    const other = `${path ?? ""}threadId`;
    const description = `${other} must be ${sessionId}, as ${field}, or absent`;
    throw invalidArgument([{ field: other, description }]);
  }
  try {
    await handlers.stopRun({ sessionId, runId }, callContextOf(reply.request));
    return sendJson(reply, JSON.stringify({ stopped: true }));
  } catch (error) {
    const { reason, message } = ServiceError.from(error);
    if (reason !== "SESSION_NOT_FOUND" && reason !== "RUN_NOT_FOUND") throw error;
    return sendJson(reply, JSON.stringify({ stopped: false, message }));
  }
}

function refuseThread(sessionId: string, field: string): void {
  const wrong = checkSessionId(sessionId);
  if (wrong === undefined) return;
  throw invalidArgument([{ field, description: wrong.description.replace(wrong.field, field) }]);
}

function framesOf(runAgent: AguiRun, asked: AguiRunRequest, context: CallContext): AguiFrames {
  // A caller without the right is refused by the call itself.
  return flatMap(
    async () => runAgent(asked, context),
    only,
    (error) => {
      const isMissing = error instanceof ServiceError && error.reason === "SESSION_NOT_FOUND";
      if (!isMissing || !asked.isReadOnly) throw error;
    },
  );
}

/** The member `body` of an envelope. */
function parsed<T>(schema: z.ZodType<T>, value: unknown): T {
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  throw refusalOfIssues(error.issues.map((issue) => ({ ...issue, path: ["body", ...issue.path] })));
}

const ONLY_READS = "the ledger runs no agents, and offers info, connect and run";

const TAGS = ["copilotkit"];
const EVENTS = answer("Events; none without a run.", z.string(), "text/event-stream");
const RUNTIME_INFO = z.looseObject({
  version: z.string(),
  mode: z.literal("sse"),
  agents: z.record(
    z.string(),
    z.strictObject({ name: z.string(), className: z.string(), description: z.string() }),
  ),
});
const agent = z.string().meta({ description: "Any name." });

const INFORM = {
  operationId: "getCopilotKitInfo",
  summary: "What CopilotKit's client asks of a runtime first",
  tags: TAGS,
  querystring: NO_QUERY,
  response: {
    200: answer("The agents, and the features of this runtime.", RUNTIME_INFO),
    ...PROBLEMS,
  },
};

const STREAM = {
  tags: TAGS,
  params: z.object({ agent }),
  querystring: NO_QUERY,
  body: connectInput,
  response: { 200: EVENTS, ...PROBLEMS },
};

const CONNECT = {
  operationId: "connectCopilotKit",
  summary: "The session that a thread names, for CopilotKit's client",
  ...STREAM,
};

const RUN = {
  operationId: "runCopilotKit",
  summary: "Talk to the session that a thread names, as CopilotKit's client",
  ...STREAM,
};

const STOPPED = z.strictObject({ stopped: z.boolean(), message: z.string().optional() });
const id = textMember().min(1, { error: "must not be empty" }).optional();
const stopBody = z
  .looseObject(
    {
      runId: id.meta({
        description: "The run, or the page's request that it answers; without it, the open run.",
      }),
      threadId: id.meta({ description: "The thread again, or nothing." }),
    },
    { error: "must be an object" },
  )
  .nullish();
const stopParams = z.looseObject({ threadId: z.string() });

const STOP = {
  operationId: "stopCopilotKit",
  summary: "Ask to end a run of the session that a thread names",
  tags: TAGS,
  params: z.object({
    agent,
    thread: z.string().meta({ description: "The session.", ...SESSION_ID }),
  }),
  body: stopBody,
  response: {
    200: answer("Whether that run was open; `message` has the reason if not.", STOPPED),
    ...PROBLEMS,
  },
};

const ENVELOPE = {
  operationId: "callCopilotKit",
  summary: "The same by one endpoint",
  tags: TAGS,
  querystring: NO_QUERY,
  body: z.looseObject(
    {
      method: z
        .string({ error: "must be info, agent/connect, agent/run or agent/stop" })
        .meta({ description: "`info`, `agent/connect`, `agent/run` or `agent/stop`." }),
      params: z.unknown().optional().meta({ description: "With `threadId`, to stop." }),
      body: z
        .unknown()
        .optional()
        .meta({ description: "RunAgentInput, to connect or run; with `runId`, to stop." }),
    },
    { error: "must be an object with a method" },
  ),
  response: {
    200: {
      description: "As the method answers.",
      content: {
        ...answer("", z.union([RUNTIME_INFO, STOPPED])).content,
        ...EVENTS.content,
      },
    },
    ...PROBLEMS,
  },
};

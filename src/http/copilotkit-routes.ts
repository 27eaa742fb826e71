/**
 * The requests of CopilotKit's client (@copilotkit/core 1.75.0) to a runtime, as far as a ledger
 * can answer them: the list of agents, and a connection to an agent. The thread is the session. The
 * agent may have any name, because a session is one conversation for every agent name. But a page
 * only uses agents that `info` has named, or that the page registers (`registerProxiedAgent`).
 * Without a name the client asks for `default`.
 *
 * The answer to `connect` is the answer to any AG-UI client, with two differences. Both have one
 * cause: the agent counts as running, and a chat as busy, until the answer has ended
 * (`connectWithoutEventVerification`).
 *
 * - A session without a run, or a session that does not exist, gets an empty answer at once, as
 * from CopilotKit's own runtime. A refusal would be shown to a user who opens an empty chat.
 * - The answer does not wait for further runs, unless the page states that it only watches. The
 * page states it in its `properties`, which arrive as forwardedProps: an app can set nothing else
 * of the input.
 *
 * A page with a single endpoint sends the same requests in an envelope: `{ method, params, body }`.
 */
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import type { AguiFrame, AguiJoin, AguiRequest } from "../conversation/join.ts";
import type { CallContext } from "../contract/context.ts";
import { checkSessionId } from "../contract/session-id.ts";
import type { AguiInputs } from "./agui-input.ts";
import { INPUT_ERROR, runAgentInput, sendAguiStream } from "./agui-routes.ts";
import { answer, PROBLEMS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { streamContextOf } from "./plumbing/call-context.ts";
import { NO_QUERY, SESSION_ID } from "./parameters.ts";
import type { EventStreamOptions } from "./sse.ts";

export interface CopilotKitRouteParts extends EventStreamOptions {
  readonly join: AguiJoin;
  readonly inputs: AguiInputs;
}

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

type Input = z.infer<typeof connectInput>;

export function copilotKitRoutes(app: App, parts: CopilotKitRouteParts): void {
  app.get("/copilotkit/info", { schema: INFORM }, (_request, reply) => sendJson(reply, INFO));
  app.post("/copilotkit/agent/:agent/connect", { schema: CONNECT }, (request, reply) =>
    connect(parts, reply, request.body),
  );
  app.post("/copilotkit/agent/:agent/run", { schema: RUN }, refuseRun);
  app.post("/copilotkit/agent/:agent/stop/:thread", { schema: STOP }, refuse);
  app.post("/copilotkit", { schema: ENVELOPE }, async (request, reply) => {
    const { method, body } = request.body;
    if (method === "info") return sendJson(reply, INFO);
    if (method === "agent/run") return refuseRun();
    if (method !== "agent/connect") return refuse();
    await connect(parts, reply, inputIn(body), "body.");
    return reply;
  });
}

/** `path` is the path of the input in the body, for errors. */
function connect(
  { join, inputs, ...stream }: CopilotKitRouteParts,
  reply: FastifyReply,
  { threadId: sessionId, messages, protocolVersion, forwardedProps }: Input,
  path: "" | "body." = "",
): Promise<void> {
  const wrong = checkSessionId(sessionId);
  if (wrong !== undefined) {
    const field = `${path}threadId`;
    throw invalidArgument([{ field, description: wrong.description.replace(wrong.field, field) }]);
  }
  const context = streamContextOf(reply.request);
  const follow = follows(forwardedProps);
  const asked: AguiRequest = {
    sessionId,
    protocolVersion: protocolVersion ?? undefined,
    messages: inputs.keep(messages, reply),
    follow,
    waits: follow,
    replay: "snapshot",
    speed: undefined,
  };
  return sendAguiStream(reply, context, framesOf(join, asked, context), stream);
}

/** Other properties belong to the app and are ignored. */
function follows(properties: unknown): boolean {
  return (
    typeof properties === "object" &&
    properties !== null &&
    "follow" in properties &&
    properties.follow === true
  );
}

async function* framesOf(
  join: AguiJoin,
  asked: AguiRequest,
  context: CallContext,
): AsyncGenerator<AguiFrame, void, undefined> {
  try {
    yield* join(asked, context);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.reason !== "SESSION_NOT_FOUND") throw error;
  }
}

function inputIn(body: unknown): Input {
  const parsed = connectInput.safeParse(body);
  if (parsed.success) return parsed.data;
  throw invalidArgument(
    parsed.error.issues.map(({ path, message }) => {
      const field = ["body", ...path].join(".");
      return { field, description: `${field} ${message}` };
    }),
  );
}

/** A chat sends typed text with this request. */
function refuseRun(): never {
  const message =
    "the ledger runs no agents, and what was typed is not stored: push it as a message of the session";
  throw new ServiceError("failed_precondition", "MESSAGE_NOT_STORED", message);
}

function refuse(): never {
  const message = "the ledger runs no agents: a user's turn is pushed as a message";
  throw new ServiceError("unimplemented", "NOT_IMPLEMENTED", message);
}

const TAGS = ["copilotkit"];
const EVENTS = {
  description: "Events; none when there is no run.",
  content: { "text/event-stream": { schema: z.string() } },
};
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
  response: { 200: answer("The agents, and what is offered.", RUNTIME_INFO), ...PROBLEMS },
};

const CONNECT = {
  operationId: "connectCopilotKit",
  summary: "The session that a thread names, for CopilotKit's client",
  tags: TAGS,
  params: z.object({ agent }),
  querystring: NO_QUERY,
  body: connectInput,
  response: { 200: EVENTS, ...PROBLEMS },
};

const RUN = {
  operationId: "runCopilotKit",
  summary: "Refused with 409: the ledger runs no agents, and what was typed is not stored",
  tags: TAGS,
  params: z.object({ agent }),
  response: PROBLEMS,
};

const STOP = {
  ...RUN,
  summary: "Refused: the ledger runs no agents",
  operationId: "stopCopilotKit",
  params: z.object({ agent, thread: z.string().meta({ description: "Not looked at." }) }),
};

const ENVELOPE = {
  operationId: "callCopilotKit",
  summary: "The same by one endpoint",
  tags: TAGS,
  querystring: NO_QUERY,
  body: z.looseObject(
    {
      method: z
        .string({ error: "must be info or agent/connect" })
        .meta({ description: "`info` or `agent/connect`." }),
      body: z.unknown().optional().meta({ description: "RunAgentInput, to connect." }),
    },
    { error: "must be an object with a method" },
  ),
  response: {
    200: {
      description: "As the method answers.",
      content: { ...answer("", RUNTIME_INFO).content, ...EVENTS.content },
    },
    ...PROBLEMS,
  },
};

/** What the caller of a request may do, for pages that show only what would not be refused. */
import { z } from "zod";
import { type Action, RULES } from "../auth/actions.ts";
import { denialOf } from "../auth/authorizer.ts";
import { ROLES } from "../auth/principal.ts";
import { answer, PROBLEMS, sendJson, timeText } from "./answers.ts";
import { NO_QUERY } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";

const ACTIONS = Object.keys(RULES).filter((name): name is Action => Object.hasOwn(RULES, name));

/** What a million tokens of a model cost, in USD. */
const modelPrice = z.strictObject({ input: z.number(), output: z.number() });
export type ModelPrice = z.output<typeof modelPrice>;

export function callerRoutes(
  app: App,
  { modelPrices = {} }: { readonly modelPrices?: Readonly<Record<string, ModelPrice>> },
): void {
  app.get("/caller", { schema: CALLER }, (request, reply) => {
    const { principal } = callContextOf(request);
    const { id, kind, roles, projectId, sessionId, expiresAtMs } = principal;
    const caller = {
      id,
      kind,
      roles,
      actions: ACTIONS.filter((action) => denialOf(principal, action) === undefined),
      project_id: projectId,
      session_id: sessionId,
      expires_at: expiresAtMs === undefined ? undefined : new Date(expiresAtMs).toISOString(),
      model_prices: modelPrices,
    };
    return sendJson(reply, JSON.stringify(caller));
  });
}

const callerSchema = z
  .strictObject({
    id: z.string().meta({ description: "Of the token." }),
    kind: z.enum(["anonymous", "static", "oidc", "session"]),
    roles: z.array(z.enum(ROLES)),
    actions: z
      .array(z.string())
      .meta({ description: "What the roles allow, by the names in docs/security.md." }),
    project_id: z.string().optional().meta({ description: "Only sessions of this project." }),
    session_id: z.string().optional().meta({ description: "Only this session." }),
    expires_at: timeText.optional(),
    model_prices: z
      .record(z.string(), modelPrice)
      .meta({ description: "What a million tokens of a model cost in USD (MODEL_PRICES)." }),
  })
  .meta({ id: "Caller" });

const CALLER = {
  operationId: "getCaller",
  summary: "Who the caller is, and what it may do",
  description: "A page can hide what would be refused. Without tokens, every caller is an admin.",
  tags: ["description"],
  querystring: NO_QUERY,
  response: { 200: answer("The caller.", callerSchema), ...PROBLEMS },
};

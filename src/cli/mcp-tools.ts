/**
 * The parts that all tools of the command `mcp` share: a tool is a call of the service in a form for
 * models. Its answer is bounded, and given as JSON and as text, because a client shows its model one of them.
 */
import type {
  McpServer,
  StandardSchemaWithJSON,
  ToolAnnotations,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Run } from "@session-ledger/proto/ambient/v1/conversation_pb";
import type { JsonObject } from "@session-ledger/agui/json";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import type { Connection } from "./connection.ts";
import { runsOf } from "./conversation.ts";
import { explainCall, tell, UsageError } from "./io.ts";

/** Of a tool's arguments, of its result, and of other texts of a session. */
const VALUE_CHARS_MAX = 2_000;

export const id = z.string().min(1).max(1_024);
export const sessionId = id.describe("The id of a session");

export interface Answer {
  readonly json: JsonObject;
  readonly text: string;
}

/**
 * Adds tools with these annotations. A failure of the call is an error of the tool, which the model
 * reads; the server continues.
 */
export function toolAdder(server: McpServer, connection: Connection, annotations: ToolAnnotations) {
  return <T>(
    name: string,
    description: string,
    inputSchema: StandardSchemaWithJSON<unknown, T>,
    run: (connection: Connection, asked: T) => Promise<Answer>,
  ): void => {
    const tool = { description, inputSchema, annotations };
    server.registerTool(name, tool, async (asked, { mcpReq: { signal } }) => {
      try {
        const retry = { ...connection.retry, signal };
        const { json, text } = await run({ ...connection, retry }, asked);
        return { content: [{ type: "text", text }], structuredContent: { ...json } };
      } catch (error) {
        return { content: [{ type: "text", text: sentenceOf(error, connection) }], isError: true };
      }
    });
  };
}

function sentenceOf(error: unknown, { io }: Connection): string {
  if (error instanceof RpcFailure) return explainCall(error);
  if (error instanceof UsageError) return error.message;
  tell(io, error instanceof Error ? (error.stack ?? error.message) : String(error));
  return "INTERNAL: the command has a defect; its stderr has the details";
}

/** The named run, or the newest. A service has runs in their order only. */
export async function runOf(
  connection: Connection,
  session: string,
  runId: string | undefined,
): Promise<Run> {
  let found: Run | undefined;
  for await (const run of runsOf(connection, session))
    if (runId === undefined || run.runId === runId) found = run;
  if (found !== undefined) return found;
  const what = runId === undefined ? "run" : `run ${JSON.stringify(runId)}`;
  throw new UsageError(`run_id: session ${session} has no ${what}`);
}

export function textIn(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function cut(text: string): string {
  return text.length <= VALUE_CHARS_MAX
    ? text
    : `${text.slice(0, VALUE_CHARS_MAX).toWellFormed()}…`;
}

export function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ").trim();
}

/** Commands of a person who talks to an agent: make a session, say something in it, and stop the agent. */
import { randomUUID } from "node:crypto";
import { addAbortSignal } from "node:stream";
import type { Command } from "commander";
import { utf8Of } from "@session-ledger/base/utf8";
import { ledger } from "@session-ledger/runner/internal/client";
import { noConnectionOf } from "@session-ledger/runner/internal/failure";
import { LINE_BYTES_MAX } from "@session-ledger/runner/internal/lines";
import { rowJson, sessionJson } from "@session-ledger/runner/internal/rows";
import { type Labels, labelOption, seqArgument, type TextFlags } from "./arguments.ts";
import { callsService, type Connection } from "./connection.ts";
import { type CliIo, EXIT, printLine, tell, UsageError, visible } from "./io.ts";
import type { Finish } from "./serve.ts";

export function addCreate(program: Command, io: CliIo): void {
  const command = program
    .command("create")
    .description("make a session, and print its id")
    .argument("<name>", "a name for people")
    .option("--prompt <text>", "the task of the agent")
    .option("--model <name>", "the model of the agent")
    .option("--project <id>", "the project of the session")
    .option("--parent <session>", "the session that starts this one")
    .addOption(labelOption("a label; the option can be repeated"))
    .option("--json", "the session as JSON");
  callsService(command, io, create);
}

export function addFork(program: Command, io: CliIo): void {
  const command = program
    .command("fork")
    .summary("make a session with the history of another one up to a number")
    .description("make a session with the history of another one up to a number, and print its id")
    .argument("<session>", "the session to branch")
    .option("--at <seq>", "the number of the last event", seqArgument)
    .option("--at-message <seq>", "the number of the last message, instead", seqArgument)
    .option("--id <id>", "the id of the new session, with a token that sees every session")
    .option("--key <key>", "the idempotency key; default: a random one for this command")
    .option("--json", "the session as JSON");
  callsService(command, io, fork);
}

export function addSay(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("say")
    .summary("send a user message to a session")
    .description("send a user message to a session, and print the message's number")
    .argument("<session>", "the session to send to")
    .argument("<text>", "the message; - reads it from stdin")
    .option("--sender-id <id>", "the id of the sender in the sender's own system")
    .option("--sender-name <name>", "the sender's name to show to people")
    .option("--key <text>", "the idempotency key; default: a random one for this command")
    .option("--json", "the message as JSON");
  callsService(
    command,
    io,
    async (
      { client, retry },
      sessionId: string,
      text: string,
      flags: TextFlags<"senderId" | "senderName" | "key">,
    ) => {
      const payload = text === "-" ? await textOf(io) : text;
      if (payload === undefined) return finish(EXIT.interrupted);
      if (payload === "") throw new UsageError("text: expected a message that is not empty");
      const { senderId: id = "", senderName: displayName = "", key } = flags;
      const sender = id === "" && displayName === "" ? undefined : { id, displayName };
      const message = { sessionId, eventType: "user", payload, sender };
      const request = { ...message, idempotencyKey: key ?? randomUUID() };
      const row = await client.call(ledger.pushSessionMessage, request, retry);
      await printLine(io, flags.json === true ? rowJson(row) : String(row.seq));
    },
  );
}

export function addFeedback(program: Command, io: CliIo): void {
  const command = program
    .command("feedback")
    .summary("say what you think of a message")
    .description("say what you think of a message, and print the number of the event")
    .argument("<session>", "the session of the message")
    .argument("<message>", "the id of the message in the transcript")
    .argument("<kind>", "thumbs_up, thumbs_down, or another word")
    .option("--comment <text>", "the reason, for people")
    .option("--trace-id <id>", "the trace that the feedback is about")
    .option("--json", "the event as JSON");
  callsService(command, io, feedback);
}

export function addCancel(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("cancel")
    .summary("ask to end the open run of a session")
    .description("ask to end the open run of a session, and print the run's id")
    .argument("<session>", "the session of the run")
    .argument("[run]", "the run; default: the open one")
    .option("--reason <text>", "why, for the agent and for readers")
    .option("--json", "the message of the cancel, as JSON");
  callsService(
    command,
    io,
    async (
      { client, retry },
      sessionId: string,
      named: string | undefined,
      { reason = "", json = false }: TextFlags<"reason">,
    ) => {
      const runId =
        named ?? (await client.call(ledger.getSession, { id: sessionId }, retry)).openRunId;
      if (runId === undefined) {
        tell(io, `no run is open in session ${sessionId}`);
        return finish(EXIT.refused);
      }
      const row = await client.call(ledger.cancelRun, { sessionId, runId, reason }, retry);
      await printLine(io, json ? rowJson(row) : visible(runId));
    },
  );
}

async function create(
  { client, retry, io }: Connection,
  name: string,
  flags: TextFlags<"prompt" | "model" | "project" | "parent"> & { readonly label?: Labels },
): Promise<void> {
  const { prompt, model: llmModel, project: projectId, parent: parentSessionId } = flags;
  const labels = flags.label && JSON.stringify(flags.label);
  const request = { name, prompt, llmModel, projectId, parentSessionId, labels };
  // A call whose answer was lost may have made the session, and a repeat would make another one.
  const session = await client.call(ledger.createSession, request, {
    ...retry,
    mayRepeat: (failure) => failure.wasRefusedForNow || noConnectionOf(failure) === "nobody",
  });
  // The plain id is for `$(…)`.
  await printLine(io, flags.json === true ? sessionJson(session) : (session.metadata?.id ?? ""));
}

interface ForkFlags extends TextFlags<"id" | "key"> {
  readonly at?: bigint;
  readonly atMessage?: bigint;
}

async function fork(
  { client, retry, io }: Connection,
  sessionId: string,
  flags: ForkFlags,
): Promise<void> {
  const { at: atSeq = 0n, atMessage: atMessageSeq = 0n, id: newId, key = randomUUID() } = flags;
  if ((atSeq === 0n) === (atMessageSeq === 0n))
    throw new UsageError("fork: expected --at or --at-message, with a number from 1");
  if (newId !== undefined && flags.key !== undefined)
    throw new UsageError("fork: expected --id or --key, and not both");
  const named = newId === undefined ? { idempotencyKey: key } : { newId };
  const request = { sessionId, ...named, atSeq, atMessageSeq };
  const session = await client.call(ledger.forkSession, request, retry);
  await printLine(io, flags.json === true ? sessionJson(session) : (session.metadata?.id ?? ""));
}

async function feedback(
  { client, retry, io }: Connection,
  sessionId: string,
  messageId: string,
  kind: string,
  { comment = "", traceId = "", json = false }: TextFlags<"comment" | "traceId">,
): Promise<void> {
  const given = { sessionId, messageId, kind, comment, traceId };
  const event = await client.call(ledger.giveFeedback, given, retry);
  await printLine(io, json ? rowJson(event) : String(event.seq));
}

/** Above the largest message that a service can be configured to accept. */
const TEXT_BYTES_MAX = LINE_BYTES_MAX;

/** Stdin without the line break that `echo` adds; undefined: the user has stopped the command. */
async function textOf({ stdin, signal }: CliIo): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of addAbortSignal(signal, stdin)) {
      const part = Buffer.from(chunk);
      bytes += part.length;
      if (bytes > TEXT_BYTES_MAX)
        throw new UsageError(`text: expected at most ${TEXT_BYTES_MAX} bytes on stdin`);
      chunks.push(part);
    }
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error;
  }
  const text = utf8Of(Buffer.concat(chunks), { isStart: true });
  if (text === undefined) throw new UsageError("text: expected UTF-8 on stdin");
  return text.replace(/\r?\n$/, "");
}

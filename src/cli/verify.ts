/** `verify` and `digest`: compare the rows of sessions with their counters and chains, on the database itself. */
import type { Command } from "commander";
import { decodeLine, readLines } from "@session-ledger/runner/internal/lines";
import type { Head } from "../maintenance/chains.ts";
import type { VerifiedSession } from "../maintenance/verify.ts";
import type { TextFlags } from "./arguments.ts";
import { inDatabase } from "./database.ts";
import { type CliIo, EXIT, type ExitCode, Printer, tell, UsageError, visible } from "./io.ts";
import { openInput } from "./push-rows.ts";
import { configOf, type Finish } from "./serve.ts";

export function addVerify(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("verify")
    .summary("check that no row was lost or changed")
    .description(
      "compare the rows of all sessions, or chosen ones, with their counters and chains, on the database itself: numbers, counts, digests, fragment indexes",
    )
    .argument("[sessions...]", "only these sessions; default: all")
    .option(
      "--against <file>",
      "what `digest` has printed earlier, or - for stdin: compare with it too",
    )
    .option("--json", "each session as JSON on stdout, not only damaged ones")
    .action(async (sessions: readonly string[], flags: TextFlags<"against">) =>
      finish(await verifySessions(sessions, flags, io)),
    );
  program
    .command("digest")
    .summary("print the chains of rows, to store them elsewhere")
    .description(
      "print the chain of each stream of all sessions, or chosen ones, from the database itself: session, stream, number, SHA-256; `verify --against` compares with it later",
    )
    .argument("[sessions...]", "only these sessions; default: all")
    .option("--json", "each line as JSON")
    .action(async (sessions: readonly string[], flags: TextFlags) =>
      finish(await printHeads(sessions, flags, io)),
    );
}

async function verifySessions(
  sessions: readonly string[],
  { json = false, against }: TextFlags<"against">,
  io: CliIo,
): Promise<ExitCode> {
  const heads = against === undefined ? new Map() : await headsIn(against, io);
  const { verify } = await import("../maintenance/verify.ts");
  const printer = new Printer(io.stdout, io.signal);
  const count = { sessions: 0, damaged: 0, uncovered: 0 };
  const call = {
    sessionIds: chosen(sessions),
    heads,
    signal: io.signal,
    verified: async (session: VerifiedSession) => {
      count.sessions += 1;
      count.uncovered += session.uncovered;
      if (session.problems.length > 0) count.damaged += 1;
      for (const line of linesOf(session, json)) if (!(await printer.print(line))) return false;
      return true;
    },
  };
  await inDatabase(configOf(io), (database) => verify(database, call));
  if (io.signal.aborted) return EXIT.interrupted;
  const rest = count.uncovered === 0 ? "" : `; ${count.uncovered} rows are in no chain`;
  tell(io, `verified ${count.sessions} sessions, ${count.damaged} are damaged${rest}`);
  return count.damaged === 0 ? EXIT.done : EXIT.incomplete;
}

function linesOf(session: VerifiedSession, json: boolean): readonly string[] {
  if (json) return [JSON.stringify(session)];
  const lines = [...session.problems, ...session.notes];
  return lines.map((line) => `${visible(session.sessionId)}: ${visible(line)}`);
}

async function printHeads(
  sessions: readonly string[],
  { json = false }: TextFlags,
  io: CliIo,
): Promise<ExitCode> {
  const { readHeads } = await import("../maintenance/chains.ts");
  const printer = new Printer(io.stdout, io.signal);
  const call = {
    sessionIds: chosen(sessions),
    signal: io.signal,
    read: async (session: string, heads: readonly Head[]) => {
      for (const { stream, number, chain } of heads) {
        const line = json
          ? JSON.stringify({ session, stream, number: number.toString(), chain })
          : `${session} ${stream} ${number} ${chain}`;
        if (!(await printer.print(line))) return false;
      }
      return true;
    },
  };
  await inDatabase(configOf(io), (database) => readHeads(database, call));
  return io.signal.aborted ? EXIT.interrupted : EXIT.done;
}

function chosen(sessions: readonly string[]): readonly string[] | undefined {
  return sessions.length === 0 ? undefined : sessions;
}

const HEAD_BYTES_MAX = 1_024;
/** A head takes about 300 bytes of memory. */
const HEADS_MAX = 5_000_000;

/** Of a file that `digest` has written, in either form, or of several such files in one. */
async function headsIn(file: string, io: CliIo): Promise<ReadonlyMap<string, readonly Head[]>> {
  const { stream } = await openInput(file, io);
  const heads = new Map<string, Head[]>();
  let count = 0;
  for await (const line of readLines(stream, { bytesMax: HEAD_BYTES_MAX })) {
    const text = decodeLine(line) ?? "";
    const [, session = "", name, number = "", chain = ""] =
      HEAD.exec(text) ?? JSON_HEAD.exec(text) ?? [];
    if (name !== "messages" && name !== "events")
      throw new UsageError(`--against: line ${line.number} is not a line of \`digest\``);
    if (++count > HEADS_MAX)
      throw new UsageError(`--against: the file has more than ${HEADS_MAX} lines: split it`);
    const head: Head = { stream: name, number: BigInt(number), chain };
    const own = heads.get(session);
    if (own === undefined) heads.set(session, [head]);
    else own.push(head);
  }
  return heads;
}

const HEAD = /^(\S+) (messages|events) (\d{1,19}) ([0-9a-f]{64})$/;
const JSON_HEAD =
  /^\{"session":"([^"\\]+)","stream":"(messages|events)","number":"(\d{1,19})","chain":"([0-9a-f]{64})"\}$/;

/** `verify`: compares the rows of sessions with their counters, on the database itself. */
import type { Command } from "commander";
import type { VerifiedSession } from "../maintenance/verify.ts";
import { inDatabase } from "./database.ts";
import { type CliIo, EXIT, type ExitCode, Printer, tell, visible } from "./io.ts";
import { configOf, type Finish } from "./serve.ts";

export function addVerify(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("verify")
    .summary("check that no row was lost or changed")
    .description(
      "compare the rows of all sessions, or chosen ones, with their counters, on the database itself: numbers, counts, fragment indexes",
    )
    .argument("[sessions...]", "only these sessions; default: all")
    .option("--json", "each session as JSON on stdout, not only damaged ones")
    .action(async (sessions: readonly string[], flags: VerifyFlags) =>
      finish(await verifySessions(sessions, flags, io)),
    );
}

interface VerifyFlags {
  readonly json?: boolean;
}

async function verifySessions(
  sessions: readonly string[],
  { json = false }: VerifyFlags,
  io: CliIo,
): Promise<ExitCode> {
  const { verify } = await import("../maintenance/verify.ts");
  const { refuseOtherSchema } = await import("../store/migrate.ts");
  const printer = new Printer(io.stdout, io.signal);
  const count = { sessions: 0, damaged: 0 };
  const call = {
    sessionIds: sessions.length === 0 ? undefined : sessions,
    signal: io.signal,
    verified: async (session: VerifiedSession) => {
      count.sessions += 1;
      if (session.problems.length > 0) count.damaged += 1;
      for (const line of linesOf(session, json)) if (!(await printer.print(line))) return false;
      return true;
    },
  };
  await inDatabase(configOf(io), refuseOtherSchema, (database) => verify(database, call));
  if (io.signal.aborted) return EXIT.interrupted;
  tell(io, `verified ${count.sessions} sessions, ${count.damaged} are damaged`);
  return count.damaged === 0 ? EXIT.done : EXIT.incomplete;
}

function linesOf(session: VerifiedSession, json: boolean): readonly string[] {
  if (json) return [JSON.stringify(session)];
  return session.problems.map((problem) => `${visible(session.sessionId)}: ${visible(problem)}`);
}

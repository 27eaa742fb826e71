/** The command `demo`: recorded sessions to look at, and a scripted agent to talk to. */
import { type Command, Option } from "commander";
import { ledger } from "@session-ledger/runner/internal/client";
import { durationArgument } from "./arguments.ts";
import { idOf } from "./columns.ts";
import {
  addConnectionOptions,
  type Connection,
  connected,
  type ConnectionFlags,
} from "./connection.ts";
import { type CliIo, EXIT, type ExitCode, tell, unlessStopped, visible } from "./io.ts";
import type { Finish } from "./serve.ts";

const PACE = "40ms";

export function addDemo(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("demo")
    .summary("fill a new ledger, and answer on its page")
    .description(
      "fill a new ledger with recorded sessions, and run a scripted agent that answers people on the page of the service, until Ctrl-C",
    )
    .option("--no-agent", "only the recorded sessions; then the command ends")
    .addOption(
      new Option("--pace <duration>", "the time in which the agent writes a word")
        .argParser(durationArgument)
        .default(durationArgument(PACE), PACE),
    )
    .option("-y, --yes", "also in a ledger that has other sessions");
  addConnectionOptions(command).action(async (flags: DemoFlags) => finish(await demo(flags, io)));
}

interface DemoFlags extends ConnectionFlags {
  readonly agent: boolean;
  /** Milliseconds. */
  readonly pace: number;
  readonly yes?: boolean;
}

async function demo(flags: DemoFlags, io: CliIo): Promise<ExitCode> {
  // Loaded here: the other commands start without the sessions and the agent.
  const { demoSessions, isOfDemo } = await import("../demo/sessions.ts");
  const { fillSession } = await import("../demo/fill.ts");
  return connected(io, flags, async (connection) => {
    try {
      const { client, retry } = connection;
      const { items } = await client.call(ledger.listSessions, { size: PAGE_SIZE }, retry);
      const other = items.find((session) => !isOfDemo(session));
      if (other !== undefined && flags.yes !== true) {
        const id = visible(idOf(other));
        tell(
          io,
          `the ledger has sessions other than those of the demo, such as ${id}; add --yes to add the demo to them`,
        );
        return EXIT.refused;
      }
      const sessions = demoSessions();
      let written = 0;
      for (const session of sessions) written += (await fillSession(session, connection)) ? 1 : 0;
      tell(io, `recorded sessions: ${written} written, ${sessions.length - written} stored before`);
      if (flags.agent) await talk(connection, flags, io);
    } catch (error) {
      unlessStopped(io)(error);
    }
    return EXIT.done;
  });
}

/** More than the demo has. */
const PAGE_SIZE = 1_000;

/** Ends with the signal, or when the service refuses the agent. */
async function talk(connection: Connection, { pace }: DemoFlags, io: CliIo): Promise<void> {
  const { answerPeople, askQuestions } = await import("../demo/talk.ts");
  const ended = new AbortController();
  const signal = AbortSignal.any([io.signal, ended.signal]);
  const onProblem = (problem: string): void => tell(io, visible(problem));
  const to = { ...connection, retry: { ...connection.retry, signal } };
  tell(io, "the agent answers in all sessions of the demo; Ctrl-C ends it");
  tell(io, "open the page of the service, usually http://127.0.0.1:8000/sessions/demo-live");
  const work = [
    answerPeople(to, { paceMs: pace, onProblem, signal }),
    askQuestions(to, { signal }),
  ];
  try {
    await Promise.all(work);
  } finally {
    ended.abort();
    await Promise.allSettled(work);
  }
}

import { stat } from "node:fs/promises";
import { type Account, runProgram } from "./program.ts";
import { refusal } from "./refusal.ts";

const COMMAND_MS_MAX = 10_000;

/**
 * The commands that make a user without login on the systems we know; the first that works is
 * enough.
 */
const WAYS_TO_ADD_USER = [
  ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/false"],
  ["adduser", "--system", "--group", "--no-create-home", "--quiet"], // Debian without `passwd`.
  ["adduser", "-S", "-D", "-H", "-s", "/bin/false"], // BusyBox.
] as const;

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** The user of that name; created when it does not exist. */
export async function accountNamed(name: string): Promise<Account> {
  const known = await lookUp(name);
  if (known !== undefined) return known;
  const failures: string[] = [];
  for (const [command, ...args] of WAYS_TO_ADD_USER) {
    const outcome = await ask(command, [...args, name]);
    const made = await lookUp(name); // Also finds a user that another service made in the meantime.
    if (made !== undefined) return made;
    failures.push(`${command}: ${outcome.spawnError?.message ?? firstLine(outcome.output)}`);
  }
  throw refusal(
    `PostgreSQL does not run as root, and the user "${name}" to run it as could not be made ` +
      `(${failures.join("; ")}): make that user, start the service as another user, or set DATABASE_URL`,
  );
}

/**
 * The owner of a directory: the maker of a cluster keeps running it, also when the service is root
 * now.
 */
export async function ownerOf(path: string): Promise<Account> {
  const { uid, gid } = await stat(path);
  const { code, output } = await ask("id", ["-un", String(uid)]);
  return { uid, gid, name: code === 0 ? output.trim() : String(uid) };
}

/** Tested as that user, because modes alone do not decide: there are ACLs and mounts. */
export async function canEnter(account: Account, directory: string): Promise<boolean> {
  const args = ["-c", 'test -x "$1"', "sh", directory];
  const outcome = await runProgram("/bin/sh", args, { account, timeoutMs: COMMAND_MS_MAX });
  if (outcome.spawnError !== undefined) {
    throw refusal(
      `this process is root but may not run a program as user ${account.name} ` +
        `(${outcome.spawnError.message}): start the service as another user, or set DATABASE_URL`,
      outcome.spawnError,
    );
  }
  return outcome.code === 0;
}

async function lookUp(name: string): Promise<Account | undefined> {
  const uid = await ask("id", ["-u", name]);
  const gid = await ask("id", ["-g", name]);
  if (uid.code !== 0 || gid.code !== 0) return undefined;
  return { uid: Number(uid.output), gid: Number(gid.output), name };
}

function firstLine(text: string): string {
  return text.trim().split("\n")[0] ?? "";
}

function ask(command: string, args: readonly string[]): ReturnType<typeof runProgram> {
  return runProgram(command, args, { account: undefined, timeoutMs: COMMAND_MS_MAX });
}

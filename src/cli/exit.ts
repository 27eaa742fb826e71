/** The exit codes for shell scripts; a number never changes its meaning. */
export const EXIT = {
  done: 0,
  incomplete: 1,
  usage: 2,
  unavailable: 3,
  refused: 4,
  failed: 5,
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

const MEANINGS: Record<keyof typeof EXIT, string> = {
  done: "Done. `tail` also ends with it on Ctrl-C, and `tail` and `export` at the next line when their reader is gone.",
  incomplete:
    "Done, but not all of it: `push` had lines refused, `import` sessions, `retention` met sessions that others held, `migrate status` found pending migrations.",
  usage:
    "Nothing was done: a wrong option, a wrong setting in the environment, a database that refuses what its URL says, or a file, also one that a setting names, that cannot be read or written or does not hold what it has to.",
  unavailable:
    "The service or the database could not be reached for as long as `--retry-for` allows. The same command can succeed later, and `push` goes on where it stopped.",
  refused:
    "Refused for a reason that waiting does not change: no such session, a port or a DATA_DIR that is in use, a schema newer than this version, `migrate down` while instances are connected.",
  failed: "Something that should not happen. What is known of it is on stderr.",
  interrupted:
    "`push`, `export`, `retention` or `import` was interrupted. The same command goes on where it stopped; `export` begins anew.",
};

export function exitHelp(): string {
  return rows()
    .map(({ code, meaning }) => `  ${String(code).padStart(3)}  ${meaning}`)
    .join("\n");
}

/** The table for docs/operations.md. */
export function exitMarkdown(): string {
  const lines = rows().map(({ code, meaning }) => `| ${code} | ${meaning} |`);
  return ["| exit code | meaning |", "| --- | --- |", ...lines].join("\n");
}

function rows(): readonly { readonly code: number; readonly meaning: string }[] {
  return (
    ["done", "incomplete", "usage", "unavailable", "refused", "failed", "interrupted"] as const
  ).map((name) => ({ code: EXIT[name], meaning: MEANINGS[name] }));
}

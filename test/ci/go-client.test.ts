/** The Go client as a module: its own tests, and a program that gets it with `go get`. */
import { execFile } from "node:child_process";
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { GO_CLIENT } from "../support/foreign-clients.ts";
import { needs, toolPath } from "../support/tools.ts";
import { say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const run = promisify(execFile);
const { service, client } = useService();

afterAll(cleanUp);

/** The page of the module has it as an example. */
async function readmeProgram(): Promise<string> {
  const readme = await readFile(join(GO_CLIENT, "README.md"), "utf8");
  const [, program = ""] = /^```go\n(.*?)^```$/ms.exec(readme) ?? [];
  return program;
}

/**
 * A repository with the module as it is in the working tree, and its commit. Equal files make an equal
 * commit, so Go's cache gets no new version at each run.
 */
async function publishedRepository(): Promise<readonly [folder: string, commit: string]> {
  const folder = await makeDirectory();
  const date = "2026-01-01T00:00:00Z";
  const env = { ...process.env, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date };
  const git = (...args: readonly string[]) =>
    run("git", ["-c", "user.name=t", "-c", "user.email=t@t", ...args], { cwd: folder, env });
  const listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const { stdout: files } = await run("git", listed, { cwd: GO_CLIENT });
  for (const file of files.split("\0").filter((name) => name !== ""))
    await cp(join(GO_CLIENT, file), join(folder, "clients/go", file));
  await git("init", "-q");
  await git("add", "-A");
  await git("commit", "-qm", "All");
  const { stdout: commit } = await git("rev-parse", "HEAD");
  return [folder, commit.trim()];
}

describe("the Go client", { ...needs("go") }, () => {
  test("its own tests pass against a service", async () => {
    const env = { ...process.env, LEDGER_ADDRESS: service.grpcAddress };
    const options = { cwd: GO_CLIENT, env };
    const { stdout } = await run(toolPath("go"), ["test", "-count=1", "-v", "./..."], options);
    expect(stdout).toContain("--- PASS: TestServeEndsEachRunAsItWent");
    expect(stdout).not.toMatch(/--- (FAIL|SKIP)/);
  });

  test("a program of a user gets the module, and answers a message", async () => {
    const [repository, commit] = await publishedRepository();
    const program = await makeDirectory();
    await writeFile(join(program, "main.go"), await readmeProgram());
    const module = "github.com/session-ledger/session-ledger";
    const env = {
      ...process.env,
      GOPRIVATE: `${module}/*`,
      GIT_CONFIG_COUNT: "1",
      GIT_CONFIG_KEY_0: `url.file://${repository}.insteadOf`,
      GIT_CONFIG_VALUE_0: `https://${module}`,
    };
    const go = (...args: readonly string[]) => run(toolPath("go"), args, { cwd: program, env });
    await go("mod", "init", "example.com/program");
    await go("get", `${module}/clients/go/ledger@${commit}`);
    await go("mod", "tidy");
    const { stdout } = await go("list", "-m", `${module}/clients/go`);
    expect(stdout).toContain(commit.slice(0, 12));
    const sessionId = "go-program";
    await say(client, sessionId, "Hello");
    await go("run", ".", service.grpcAddress, sessionId);
    const listed = await client.unary(SessionService.method.listSessionMessages, { sessionId });
    expect(listed.items.map(({ eventType, payload }) => [eventType, payload])).toEqual([
      ["user", "Hello"],
      ["assistant", "You said: Hello"],
    ]);
  });
});

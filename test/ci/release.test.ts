/**
 * What each registry would get, made as for a release and checked by tools/release.ts. Nothing is sent.
 * test/ci/container.test.ts builds the image.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { needs } from "../support/tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

afterAll(cleanUp);

/** Without the settings of the npm that runs the tests. Rejects with what it found wrong. */
async function release(
  cwd: string,
  args: readonly string[],
  more: NodeJS.ProcessEnv = {},
): Promise<string> {
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
  const options = { cwd, env: { ...Object.fromEntries(own), ...more } };
  const ended = promisify(execFile)(process.execPath, ["tools/release.ts", ...args], options);
  return (await ended).stdout;
}

const TARGETS = [
  { target: "npm", tool: "npm", packages: 3, command: "npm publish --access public --provenance" },
  { target: "pypi", tool: "python3", packages: 2, command: "twine upload" },
  { target: "go", tool: "go", packages: 1, command: "git push origin refs/tags/clients/go/v" },
  // Of three modules: the list of their jars, the compiled jar and the sources.
  { target: "maven", tool: "mvn", packages: 9, command: "mvn -B -ntp -Prelease,publish" },
  { target: "bsr", tool: "git", packages: 1, command: "buf push --label v" },
  { target: "image", tool: "git", packages: 0, command: "docker buildx build" },
];

for (const { target, tool, packages, command } of TARGETS) {
  test(`${tool}: the packages of ${target} are whole, and not published`, needs(tool), async () => {
    const stdout = await release(ROOT, [target]);
    const lines = stdout.trim().split("\n");
    const commands = lines.filter((line) => line.startsWith("not run: "));
    expect(commands.join("\n")).toContain(command);
    const listed = lines.filter((line) => line.endsWith(" files"));
    expect(listed).toHaveLength(packages);
    expect(lines).toHaveLength(packages + commands.length);
  });
}

test("git: only a tagged commit with a dated changelog is published", needs("git"), async () => {
  const folder = await makeDirectory();
  const copy = join(folder, "copy");
  const git = async (cwd: string, ...args: readonly string[]) => {
    const user = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgSign=false"];
    const options = { cwd, maxBuffer: 16 * 1024 * 1024 };
    return (await promisify(execFile)("git", [...user, ...args], options)).stdout;
  };
  const listed = await git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard");
  for (const file of listed.split("\0"))
    if (file !== "" && existsSync(join(ROOT, file))) await cp(join(ROOT, file), join(copy, file));
  await symlink(join(ROOT, "node_modules"), join(copy, "node_modules"));
  await git(copy, "init", "--quiet");

  // In place of Docker.
  await mkdir(join(folder, "bin"));
  const docker = join(folder, "bin/docker");
  await writeFile(docker, '#!/bin/sh\necho "$PWD: $*" >>"$0.log"\n', { mode: 0o755 });
  const path = { PATH: [join(folder, "bin"), process.env["PATH"]].join(delimiter) };
  const publish = () => release(copy, ["image", "--publish"], path);

  const version = (await release(copy, ["version"])).trim();
  await git(copy, "add", "--all");
  await git(copy, "commit", "--quiet", "--message", "All");
  await expect(publish()).rejects.toMatchObject({
    code: 1,
    stderr: `HEAD has no tag v${version}\nCHANGELOG.md has no part [${version}] with a day\n`,
  });
  await release(copy, ["changelog", "2026-12-01"]);
  await expect(publish()).rejects.toMatchObject({
    stderr: expect.stringContaining("changes that are not committed\n"),
  });
  await git(copy, "commit", "--quiet", "--all", "--message", "Release");
  await git(copy, "tag", `v${version}`);
  expect(existsSync(`${docker}.log`)).toBe(false);
  await publish();
  const calls = (await readFile(`${docker}.log`, "utf8")).trim().split("\n");
  expect(calls).toHaveLength(2);
  for (const call of calls) {
    expect(call).toMatch(/^.*\/copy: buildx build .* --push /);
    expect(call).toContain(`session-ledger:${version}`);
  }
});

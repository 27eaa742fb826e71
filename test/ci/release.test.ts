/**
 * What each registry would get, made as for a release and checked by tools/release.ts. Nothing is sent.
 * test/ci/container.test.ts builds the image.
 */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { needs } from "../support/tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

const TARGETS = [
  { target: "npm", tool: "npm", packages: 2, command: "npm publish --access public --provenance" },
  { target: "pypi", tool: "python3", packages: 2, command: "twine upload" },
  { target: "go", tool: "go", packages: 1, command: "git push origin refs/tags/clients/go/v" },
  // Of three modules: the list of their jars, the compiled jar and the sources.
  { target: "maven", tool: "mvn", packages: 9, command: "mvn -B -ntp -Prelease,publish" },
  { target: "bsr", tool: "git", packages: 1, command: "buf push --label v" },
  { target: "image", tool: "git", packages: 0, command: "docker buildx build" },
];

for (const { target, tool, packages, command } of TARGETS) {
  test(`${tool}: the packages of ${target} are whole, and not published`, needs(tool), async () => {
    const own = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
    const options = { cwd: ROOT, env: Object.fromEntries(own) };
    const args = ["tools/release.ts", target];
    const { stdout } = await promisify(execFile)(process.execPath, args, options);
    const lines = stdout.trim().split("\n");
    const commands = lines.filter((line) => line.startsWith("not run: "));
    expect(commands.join("\n")).toContain(command);
    const listed = lines.filter((line) => line.endsWith(" files"));
    expect(listed).toHaveLength(packages);
    expect(lines).toHaveLength(packages + commands.length);
  });
}

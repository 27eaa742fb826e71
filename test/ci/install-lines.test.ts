/**
 * Every line of the page, the README, the documents and the clients that installs something or starts
 * an installed program works from a clone: each distinct one is run, in a copy of the repository or in
 * an empty folder beside it. A line that names a package which is not ours and which we do not use
 * would run the code of whoever registers the name; none is left over without a rule.
 */
import { execFile } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { cp, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { blocksOf } from "../support/readme.ts";
import { needs, toolPath } from "../support/tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const NAME = "@session-ledger/runner";
const GO_MODULE = "github.com/session-ledger/session-ledger/clients/go";

const PAGES = ["*.md", "docs/**/*.md", "clients/*/*.md", "examples/**/*.md"];
const CODE = [
  "web/src/**/*.{ts,tsx}",
  "{src,packages}/**/*.{ts,tsx}",
  "examples/*.{ts,html}",
  "clients/*/*.py",
];

const COMMAND =
  /(?<![\w./-])(?:npx|npm (?:ci|exec|i|install|pack|run|start)|[\w./-]*pip3? install|uvx?|go (?:get|install|mod edit)|mvn)(?= |$)/;

/** A line as a shell takes it, and each file that has it. */
type Lines = ReadonlyMap<string, readonly string[]>;

function linesIn(text: string, end: RegExp): readonly string[] {
  return text.split("\n").flatMap((line) =>
    line.split(/ && |`/).flatMap((part) => {
      const at = part.search(COMMAND);
      if (at === -1) return [];
      const [command = ""] = part.slice(at).split(end);
      return [command.trim()];
    }),
  );
}

function collect(): Lines {
  const lines = new Map<string, string[]>();
  const add = (patterns: readonly string[], end: RegExp) => {
    for (const file of globSync(patterns, { cwd: ROOT, exclude: ["**/node_modules/**"] })) {
      for (const line of linesIn(readFileSync(join(ROOT, file), "utf8"), end)) {
        lines.set(line, [...(lines.get(line) ?? []), file]);
      }
    }
  };
  add(PAGES, /\s+#|\s[<>|]/);
  add(CODE, /["'<]/);
  return lines;
}

/** What a line may be, in the order of the rules. Each names what it installs or starts. */
type Kind =
  | "script"
  | "lock"
  | "program"
  | "runner"
  | "react"
  | "example"
  | "pip"
  | "go"
  | "tool"
  | "mvn";

const PYTHON = /^(?:\.venv\/bin\/)?pip install (.+)$/;

/** The kind of a line, or why nobody may be asked to run it. */
function kindOf(line: string): Kind | { readonly refused: string } {
  const words = line.split(" ");
  const [program, verb, ...rest] = words;
  if (["npm install", "npm pack", "npm run -s"].includes(line)) return "lock";
  if (/^npm (run|start)\b/.test(line)) {
    const script = verb === "start" ? verb : rest.find((word) => !word.startsWith("-"));
    return script !== undefined && script in scripts ? "script" : { refused: `script ${script}` };
  }
  if (/^npm ci( --prefix [\w./-]+)?$/.test(line)) return "lock";
  if (program === "npx") {
    const bin = verb !== undefined && existsSync(join(ROOT, "node_modules/.bin", verb));
    return bin ? "program" : { refused: `npx would ask the registry for ${verb}` };
  }
  if (line === 'npm install "$(npm pack ../session-ledger/dist-runner)"') return "runner";
  if (line === 'npm install "$(npm pack ../session-ledger/dist-react)"') return "react";
  const [, folder] = /^npm install --prefix (examples\/[\w-]+)$/.exec(line) ?? [];
  if (folder !== undefined && existsSync(join(ROOT, folder, "package.json"))) return "example";
  const [, packages] = PYTHON.exec(line) ?? [];
  if (packages !== undefined) {
    const names = packages.split(" ").map((name) => name.replaceAll('"', ""));
    const unknown = names.filter(
      (name) => !/^(?:\.|\.\/clients\/python)(?:\[[\w-]+\])?$/.test(name) && !pythonUses.has(name),
    );
    return unknown.length === 0 ? "pip" : { refused: `not ours and not used: ${unknown.join()}` };
  }
  const replaced = `go mod edit -replace ${GO_MODULE}=../session-ledger/clients/go`;
  if (line === replaced || line === `go get ${GO_MODULE}@v0.0.0`) return "go";
  if (/^go install github\.com\/fullstorydev\/grpcurl\/cmd\/grpcurl@latest$/.test(line))
    return "tool";
  if (line.startsWith("mvn -f clients/java/pom.xml ")) return "mvn";
  return { refused: "no rule" };
}

const { scripts } = z
  .object({ scripts: z.record(z.string(), z.string()) })
  .parse(JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")));
const pythonUses = new Set(
  readFileSync(join(ROOT, "test/python/requirements.txt"), "utf8").match(/^[\w-]+/gm),
);

const LINES = collect();

function linesOf(kind: Kind): readonly string[] {
  return [...LINES.keys()].filter((line) => kindOf(line) === kind);
}

test("no line names a package that is neither ours nor used here", () => {
  const refused = [...LINES].flatMap(([line, files]) => {
    const kind = kindOf(line);
    return typeof kind === "object" ? [{ line, files, why: kind.refused }] : [];
  });
  expect(refused).toEqual([]);
  expect([...LINES.keys()]).toContain("npm run -s ledger -- demo");
});

test.each([
  "npx session-ledger demo",
  "npx @session-ledger/runner",
  "npm install session-ledger",
  "npm i @session-ledger/runner",
  "npm install @session-ledger/react",
  "npm exec session-ledger",
  "npm run -s no-such-script",
  "npm install --prefix examples/none",
  "pip install session-ledger",
  "pip install session-ledger[langchain]",
  "uvx session-ledger",
  "go get github.com/session-ledger/session-ledger/clients/go",
  "go install github.com/session-ledger/session-ledger@latest",
])("a page may not say: %s", (line) => {
  expect(linesIn(`Run \`${line}\` first.`, /\s+#/)).toEqual([line]);
  expect(kindOf(line)).toHaveProperty("refused");
});

describe("in a clone", () => {
  let clone: string;
  /** Without the settings of the npm that runs the tests, and with a cache that has no package. */
  let env: NodeJS.ProcessEnv;

  beforeAll(async () => {
    const folder = await makeDirectory();
    clone = join(folder, "session-ledger");
    await mkdir(clone);
    const own = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
    env = Object.fromEntries(own);
    const listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    const { stdout } = await promisify(execFile)("git", listed, {
      cwd: ROOT,
      maxBuffer: 16 * 1024 * 1024,
    });
    const files = new Set(stdout.split("\0").filter((file) => existsSync(join(ROOT, file))));
    files.delete("");
    for (const file of files) await cp(join(ROOT, file), join(clone, file));
    await symlink(join(ROOT, "node_modules"), join(clone, "node_modules"));
  });

  /** What a shell prints. */
  async function shell(
    script: string,
    { cwd = clone, more = {} }: { readonly cwd?: string; readonly more?: NodeJS.ProcessEnv } = {},
  ): Promise<string> {
    const options = { cwd, env: { ...env, ...more }, maxBuffer: 64 * 1024 * 1024 };
    const strict = `set -euo pipefail; exec 2>&1\n${script}`;
    const ended = promisify(execFile)("bash", ["-c", strict], options);
    const failed = (error: { readonly stdout: string }) => {
      throw new Error(`${script}\n${error.stdout}`);
    };
    return (await ended.catch(failed)).stdout;
  }

  async function besideClone(name: string): Promise<string> {
    const folder = join(dirname(clone), name);
    await mkdir(folder);
    return folder;
  }

  test("every program of npx is one of the clone", async () => {
    const cache = await besideClone("no-packages");
    const started = new Set<string>();
    for (const line of linesOf("program")) {
      const [npx = "", program = "", ...args] = line.split(" ");
      const files = args.filter((word) => /^examples\/.*\.\w+$/.test(word));
      for (const file of files) expect([line, existsSync(join(clone, file))]).toEqual([line, true]);
      started.add(`${npx} ${program}`);
    }
    for (const program of started) {
      const more = { npm_config_cache: cache, npm_config_offline: "true" };
      expect(await shell(`${program} --version`, { more })).toMatch(/\d+\.\d+/);
    }
    expect(started).toContain("npx node");
  });

  test("every command of the ledger exists", async () => {
    const commands = linesOf("script").flatMap(
      (line) => /^npm run -s ledger -- ([\w-]+)/.exec(line)?.[1] ?? [],
    );
    expect(commands).toContain("demo");
    const help = await shell("npm run -s ledger -- --help");
    const listed = Array.from(help.matchAll(/^ {2}([a-z-]+) {2,}/gm), ([, name]) => name);
    expect(listed).toEqual(expect.arrayContaining(commands));
  });

  test("the packages of each lock file are those of its package.json", async () => {
    const installs = linesOf("lock").filter((line) => line.startsWith("npm ci"));
    expect(installs).toContain("npm ci");
    for (const line of installs) await shell(`${line} --dry-run --offline --ignore-scripts`);
  });

  test("an empty project installs the runner package, and loads it", async () => {
    const [line = ""] = linesOf("runner");
    const build = scripts["build"] ?? "";
    expect(build).toContain("node packages/runner/build.ts");
    await shell("node packages/runner/build.ts");
    const project = await besideClone("project");
    const more = { npm_config_prefer_offline: "true", npm_config_audit: "false" };
    await shell(line, { cwd: project, more });
    const load = `node -e 'import("${NAME}").then((entry) => console.log(Object.keys(entry).join()))'`;
    expect(await shell(load, { cwd: project })).toContain("createSessionWriter");
  });

  test("an empty project installs the React package, and a server loads it", async () => {
    const [line = ""] = linesOf("react");
    expect(scripts["build"]).toContain("node packages/react/build.ts");
    await shell("node packages/react/build.ts");
    const cwd = await besideClone("react-project");
    const more = { npm_config_prefer_offline: "true", npm_config_audit: "false" };
    await shell(line, { cwd, more });
    const load = `node -e 'import("@session-ledger/react").then((entry) => console.log(Object.keys(entry).join()))'`;
    expect(await shell(load, { cwd })).toBe("SessionView\n");
  });

  test("the packages of an example are in the registry", async () => {
    const lines = linesOf("example");
    expect(lines).not.toEqual([]);
    for (const line of lines) await shell(`${line} --dry-run --prefer-offline --no-audit`);
  });

  test("python3: pip installs the package, with each of its extras", needs("python3"), async () => {
    const home = await besideClone("python");
    await shell(`${toolPath("python3")} -m venv .venv`, { cwd: home });
    const path = [join(home, ".venv/bin"), process.env["PATH"]].join(delimiter);
    const lines = linesOf("pip");
    expect(lines).toContain("pip install ./clients/python");
    // What other packages it needs, test/ci/python-package.test.ts shows.
    const install = "pip install --no-deps --no-compile --disable-pip-version-check";
    const isInClient = (line: string) => line.endsWith(" .");
    const packagesOf = (line: string) => PYTHON.exec(line)?.[1] ?? "";
    const more = { PATH: path };
    const all = lines.filter((line) => !isInClient(line)).map(packagesOf);
    const output = await shell(`${install} ${all.join(" ")}`, { more });
    expect(output).toMatch(/Successfully installed .*session-ledger-/);
    expect(output).not.toContain("does not provide the extra");
    expect(lines.filter(isInClient)).toHaveLength(1);
    const cwd = join(clone, "clients/python");
    await shell(`${install} --force-reinstall .`, { cwd, more });
  });

  test("go: a new module gets the client from the clone", needs("go"), async () => {
    const cwd = await besideClone("module");
    const more = { PATH: [dirname(toolPath("go")), process.env["PATH"]].join(delimiter) };
    await shell("go mod init example.com/module", { cwd, more });
    expect(linesOf("go")).toHaveLength(2);
    for (const line of linesOf("go")) await shell(line, { cwd, more });
    const [program = ""] = blocksOf(
      await readFile(join(clone, "clients/go/README.md"), "utf8"),
      "go",
    );
    await writeFile(join(cwd, "main.go"), program);
    await shell("go mod tidy && go vet .", { cwd, more });
  });

  test("mvn: an empty project compiles with the installed client", needs("mvn"), async () => {
    const more = { PATH: [dirname(toolPath("mvn")), process.env["PATH"]].join(delimiter) };
    const option = `-q -B -ntp -Dmaven.repo.local=${await repository()}`;
    const parent = join(clone, "clients/java/pom.xml");
    const lines = linesOf("mvn");
    expect(lines).toHaveLength(1);
    for (const line of lines)
      await shell(`${line} ${option} -Dmaven.test.skip -pl core -am`, { more });
    const page = await readFile(join(clone, "clients/java/README.md"), "utf8");
    const [dependency = ""] = blocksOf(page, "xml");
    const cwd = await besideClone("java");
    // Its plugins are on this machine already.
    const [build = ""] = /<build>[^]*?<\/build>/.exec(await readFile(parent, "utf8")) ?? [];
    const project = `<modelVersion>4.0.0</modelVersion>
      <groupId>a</groupId><artifactId>a</artifactId><version>1</version>
      <properties><maven.compiler.release>17</maven.compiler.release></properties>
      <dependencies>${dependency}</dependencies>${build}`;
    await writeFile(join(cwd, "pom.xml"), `<project>${project}</project>`);
    const source = "import io.sessionledger.client.LedgerWriter; class A { LedgerWriter writer; }";
    await mkdir(join(cwd, "src/main/java"), { recursive: true });
    await writeFile(join(cwd, "src/main/java/A.java"), source);
    await shell(`mvn ${option} compile`, { cwd, more });
  });

  /** The packages of this machine's Maven without ours, which would hide that the line does nothing. */
  async function repository(): Promise<string> {
    const cached = join(homedir(), ".m2/repository");
    const folder = await besideClone("maven");
    await mkdir(join(folder, "io"));
    const groups = await readdir(cached).catch(() => []);
    const below = await readdir(join(cached, "io")).catch(() => []);
    const all = [...groups, ...below.map((name) => `io/${name}`)];
    for (const name of all.filter((one) => one !== "io" && one !== "io/sessionledger"))
      await symlink(join(cached, name), join(folder, name));
    return folder;
  }
});

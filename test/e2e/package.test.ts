/**
 * The package of the service, and that of runners as their authors have it: built, laid out as
 * `npm install` does, imported by its name, checked against its declarations, and run against a real
 * service.
 */
import { execFile } from "node:child_process";
import {
  appendFile,
  cp,
  link,
  mkdir,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { bundle } from "../../tools/bundle.ts";
import { buildRunner } from "../../packages/runner/build.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { MAIN } from "../support/service-process.ts";
import { useService } from "../support/use-service.ts";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const TSC = join(ROOT, "node_modules/.bin/tsc");

/** What npm unpacks: the package, and those that it asks for. */
async function install(consumer: string): Promise<string> {
  const home = join(consumer, "node_modules", "@session-ledger/runner");
  await buildRunner(home);
  await symlink(join(ROOT, "node_modules"), join(home, "node_modules"));
  await mkdir(join(consumer, "node_modules", "@types"));
  await symlink(
    join(ROOT, "node_modules", "@types", "node"),
    join(consumer, "node_modules", "@types", "node"),
  );
  return home;
}

const { service } = useService();
let consumer: string;
let home: string;

beforeAll(async () => {
  consumer = await makeDirectory();
  home = await install(consumer);
  await cp(join(ROOT, "test/support/consumer.ts"), join(consumer, "main.ts"));
  await writeFile(join(consumer, "package.json"), '{"name":"consumer","type":"module"}');
});

/** The bundle of this run, which was made from the same sources. */
function copyBundle(folder: string): Promise<void> {
  const filter = (path: string): boolean => !path.endsWith("compile-cache");
  return cp(dirname(MAIN), folder, { recursive: true, filter });
}

// A service that started during an `npm start` in the same folder did not find its migrations.
test("a bundle that is made again leaves an unchanged migration where it is", async () => {
  const folder = await makeDirectory();
  await copyBundle(folder);
  const file = join(folder, "migrations/0000_ledger.sql");
  const witness = join(folder, "witness.sql");
  await link(file, witness); // Its number is not given to another file.
  await bundle(folder);
  expect((await stat(file)).ino).toBe((await stat(witness)).ino);
});

test("regression: an old Node met a SyntaxError instead of the required version", async () => {
  const bin = join(ROOT, "bin/session-ledger.cjs");
  const old = "Object.defineProperty(process, 'versions', { value: { node: '20.20.2' } });";
  const script = `${old} require(${JSON.stringify(bin)})`;
  const ended = run(process.execPath, ["-e", script]);
  await expect(ended).rejects.toMatchObject({
    code: 2,
    stderr: "session-ledger: Node.js 22.18 or newer is needed; this is 20.20.2\n",
  });
  // What an old Node has to parse has no newer syntax than a function call.
  const text = await readFile(bin, "utf8");
  expect(text).not.toMatch(/=>|\bconst\b|\blet\b|\bawait\b|\?\.|\?\?|`/);
});

test("a command keeps compiled code next to the bundle, and runs where it cannot", async () => {
  const folder = join(home, "dist");
  await copyBundle(folder);
  const { NODE_COMPILE_CACHE: _, ...env } = process.env;
  const version = () => run(process.execPath, [join(folder, "main.js"), "--version"], { env });
  const first = await version();
  const cache = join(folder, "compile-cache");
  expect(await readdir(cache)).not.toEqual([]);
  await rm(cache, { recursive: true });
  await writeFile(cache, ""); // In a file no other can be made, not even by root.
  expect(await version()).toEqual(first);
});

describe.skipIf(process.platform === "win32")("the size of V8's young generation", () => {
  const FLAG = "--max-semi-space-size=64";
  const dockerfile = async () => readFile(join(ROOT, "Dockerfile"), "utf8");

  /** The arguments of Node in the process of a service that refuses its settings, from first to last. */
  async function nodeArguments(
    [program = "", ...args]: readonly string[],
    options: readonly string[] = [],
  ): Promise<readonly (readonly string[])[]> {
    const probe = `const [, path = ""] = process.argv;
      if (/main[.]js|ledger/.test(path)) console.log("argv " + JSON.stringify(process.execArgv));`;
    const module = `data:text/javascript,${encodeURIComponent(probe)}`;
    const env = {
      ...process.env,
      PATH: `${join(ROOT, "node_modules/.bin")}:${process.env["PATH"]}`,
      NODE_OPTIONS: [`--import=${module}`, ...options].join(" "),
      GRPC_ADDRESS: "nowhere",
    };
    const { stdout } = await run(program, args, { cwd: ROOT, env }).catch((error: unknown) =>
      z.object({ code: z.literal(2), stdout: z.string() }).parse(error),
    );
    const lines = [...stdout.matchAll(/^argv (.*)$/gm)].map(([, json = ""]) => json);
    return lines.map((json) => z.array(z.string()).parse(JSON.parse(json)));
  }

  test.each([
    ["node dist/main.js", () => [process.execPath, MAIN]],
    ["session-ledger serve", () => [join(consumer, "session-ledger"), "serve"]],
    ["npm start", () => ["npm", "start"]],
    ["npm run ledger", () => ["npm", "run", "ledger", "--", "serve"]],
    [
      "the image",
      async () => {
        const lines = (await dockerfile()).matchAll(/^(?:ENTRYPOINT|CMD) (.*)$/gm);
        const all = Array.from(lines, ([, json = ""]) =>
          z.array(z.string()).parse(JSON.parse(json)),
        );
        const command = all.flat();
        return command.slice(command.indexOf("--") + 1); // tini has the part before.
      },
    ],
  ] as const)("is set by %s, in the process that was started", async (name, command) => {
    if (name === "session-ledger serve")
      await symlink(join(ROOT, "bin/session-ledger.cjs"), join(consumer, "session-ledger"));
    expect(await nodeArguments((await command()).flat())).toEqual([[], [FLAG]]);
  });

  test("is the user's, if NODE_OPTIONS or the command line has it", async () => {
    expect(await nodeArguments(["node", MAIN], ["--max_semi_space_size=8"])).toEqual([[]]);
    const own = "--max-semi-space-size=8";
    expect(await nodeArguments(["node", own, MAIN, "serve"])).toEqual([[own]]);
  });

  test("stays as it is for commands, whose start takes no longer", async () => {
    expect(await nodeArguments(["node", MAIN, "--version"])).toEqual([[]]);
  });
});

describe("npm run -s ledger", () => {
  let checkout: string;

  beforeAll(async () => {
    checkout = await makeDirectory();
    await symlink(join(ROOT, "node_modules"), join(checkout, "node_modules"));
    for (const name of ["package.json", "src", "gen", "packages", "tools"]) await copy(name);
  });

  /** With its time to the nanosecond, which `fs.cp` rounds. */
  async function copy(name: string): Promise<void> {
    await run("cp", ["-a", join(ROOT, name), join(checkout, name)]);
  }

  /** The folders of the checkout that the command has loaded modules of. */
  async function loaded(): Promise<readonly string[]> {
    const script = await ledgerScript();
    const { stdout, modules } = await runWatched([join(checkout, script), "--version"]);
    expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    const inside = modules.filter((url) => url.startsWith(pathToFileURL(checkout).href));
    const folders = inside.map(
      (url) => url.slice(pathToFileURL(checkout).href.length).split("/")[1],
    );
    return [...new Set(folders.filter((name) => name === "src" || name === "dist"))].map(String);
  }

  async function ledgerScript(): Promise<string> {
    const text = await readFile(join(checkout, "package.json"), "utf8");
    const { scripts } = z
      .object({ scripts: z.object({ ledger: z.string() }) })
      .parse(JSON.parse(text));
    expect(scripts.ledger).toMatch(/^exec node \S+$/);
    return scripts.ledger.replace("exec node ", "");
  }

  test("takes the sources when no bundle exists", async () => {
    expect(await loaded()).toEqual(["src"]);
  });

  test("takes the bundle while no source is newer", async () => {
    await copyBundle(join(checkout, "dist"));
    expect(await loaded()).toEqual(["dist"]);
  });

  test.each(["src/cli/program.ts", "src/store/migrations/ledger.sql", "package.json"])(
    "takes the sources when %s has changed since",
    async (name) => {
      const path = join(checkout, name);
      await appendFile(path, "\n");
      expect(await loaded()).toEqual(["src"]);
      await copy(name);
      expect(await loaded()).toEqual(["dist"]);
    },
  );
});

test("the page is made with the bundle, and again only when a source changes", async () => {
  const folder = join(home, "page");
  const index = join(folder, "web/index.html");
  const stampOf = async (path: string) => (await stat(path, { bigint: true })).mtimeNs;
  await copyBundle(folder);
  const html = await readFile(index, "utf8");
  const assets = [...html.matchAll(/"(\/assets\/[^"]+)"/g)].map(([, path = ""]) => path);
  expect(assets.length).toBeGreaterThan(1);
  for (const path of assets) {
    for (const copy of ["", ".br", ".gz"]) {
      await expect(stat(join(folder, "web", path + copy))).resolves.toBeDefined();
    }
  }
  // NODE_ENV of a test run must not choose the React for developers.
  const script = await readFile(join(folder, "web", assets[0] ?? ""), "utf8");
  expect(script).not.toContain("jsxDEV");
  const list = join(folder, "web-sources.json");
  const made = await stampOf(list);
  await bundle(folder);
  expect(await stampOf(list)).toBe(made);
  const sources = await readFile(list, "utf8");
  await writeFile(list, sources.replace('"web/src/app.tsx":"', '"web/src/app.tsx":"0'));
  const unchanged = await stampOf(index);
  await bundle(folder);
  expect((await readFile(list, "utf8")) === sources).toBe(true); // Hundreds of lines otherwise.
  expect(await stampOf(index)).toBe(unchanged);
});

test("the tarball has every file that its README links to, and no generated client", async () => {
  const { stdout } = await run("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: ROOT,
    maxBuffer: 16 * 1024 * 1024,
  });
  const listed = z
    .union([z.array(z.unknown()), z.record(z.string(), z.unknown())])
    .parse(JSON.parse(stdout));
  const [packed] = Object.values(listed);
  const { files } = z.object({ files: z.array(z.object({ path: z.string() })) }).parse(packed);
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const linked = [...readme.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, path = ""]) => path);
  expect(linked.length).toBeGreaterThan(5);
  // The links of "How a push goes" are for readers of the repository.
  const pages = linked.filter((target) => !/^(?:src|gen|packages)\//.test(target));
  const missing = pages.filter(
    (target) => !files.some(({ path }) => path === target || path.startsWith(`${target}/`)),
  );
  expect(missing).toEqual([]);
  // The page, with the copies that are sent compressed, and without what only a build reads.
  const paths = files.map(({ path }) => path).filter((path) => path.startsWith("dist/"));
  expect(paths).toEqual(
    expect.arrayContaining(["dist/main.js", "dist/web/index.html", "dist/web/index.html.br"]),
  );
  expect(paths.filter((path) => path.endsWith("sources.json"))).toEqual([]);
  // Bug: a checkout with generated clients packed 2,145 files of their Python environment.
  const made = files.filter(({ path }) => /^clients\/[^/]+\/(\.|ambient)/.test(path));
  expect(made).toEqual([]);
});

/** The examples of the pages, each as a file of its own, and those of the folder. */
async function writeExamples(pages: readonly string[]): Promise<readonly string[]> {
  const names: string[] = [];
  for (const page of pages) {
    const text = await readFile(join(ROOT, "docs", page), "utf8");
    for (const [, code = ""] of text.matchAll(/^```ts\n(.*?)^```$/gms)) {
      const name = `example-${names.length}.ts`;
      const declared = "declare const address: string; declare const event: object;";
      await writeFile(join(consumer, name), `${declared}\n${code}`);
      names.push(name);
    }
  }
  for (const name of ["writer.ts", "runner.ts"]) {
    const text = await readFile(join(ROOT, "examples", name), "utf8");
    await writeFile(join(consumer, name), text);
    names.push(name);
  }
  return names;
}

test("code of a consumer and of the documents compiles with the declarations alone", async () => {
  const examples = await writeExamples(["reading.md", "dual-push.md"]);
  expect(examples).toHaveLength(6);
  const strict = ["--strict", "--target", "es2024", "--module", "nodenext", "--types", "node"];
  const { stdout } = await run(TSC, [...strict, "--noEmit", "main.ts", ...examples], {
    cwd: consumer,
  }).catch((error: unknown) => ({
    stdout: String(error instanceof Error && "stdout" in error ? error.stdout : error),
  }));
  expect(stdout).toBe("");
});

test("the declarations of the compressor need only the library of ES2020, and no Node", async () => {
  const main = 'import { Compressor, expand } from "@session-ledger/runner/compressor";';
  await writeFile(join(consumer, "old.ts"), `${main}\nexport const used = [Compressor, expand];`);
  const old = ["--strict", "--lib", "es2020", "--module", "nodenext", "--types", ""];
  const { stdout } = await run(TSC, [...old, "--skipLibCheck", "false", "--noEmit", "old.ts"], {
    cwd: consumer,
  }).catch((error: unknown) => ({
    stdout: String(error instanceof Error && "stdout" in error ? error.stdout : error),
  }));
  expect(stdout).toBe("");
});

const outputSchema = z.object({
  merged: z.object({ rows: z.number(), events: z.array(z.string()) }),
  closed: z.object({ complete: z.boolean(), dropped: z.number(), refused: z.number() }),
  events: z.array(z.string()),
  tokens: z.array(z.string()),
  messages: z.array(z.string()),
  copied: z.array(z.string()),
  failure: z.string(),
});

/** Writes the modules that a program has loaded to its standard error. */
const LOADED = `
import { registerHooks } from "node:module";
const urls = [];
registerHooks({ load: (url, context, next) => (urls.push(url), next(url, context)) });
process.on("exit", () => process.stderr.write(JSON.stringify(urls)));
`;

async function runWatched(
  args: readonly string[],
): Promise<{ readonly stdout: string; readonly modules: readonly string[] }> {
  await writeFile(join(consumer, "loaded.mjs"), LOADED);
  const watched = ["--import", "./loaded.mjs", ...args];
  const { stdout, stderr } = await run(process.execPath, watched, { cwd: consumer });
  return { stdout, modules: z.array(z.string()).parse(JSON.parse(stderr)) };
}

describe("a program of a consumer", () => {
  let output: z.infer<typeof outputSchema>;
  let modules: readonly string[];

  beforeAll(async () => {
    const ended = await runWatched(["main.ts", service.grpcAddress]);
    output = outputSchema.parse(JSON.parse(ended.stdout));
    ({ modules } = ended);
  });

  test("compresses and expands", () => {
    const { rows, events } = output.merged;
    expect(rows).toBe(1);
    expect(events).toEqual(["Hel", "lo"].map((delta) => expect.stringContaining(delta)));
  });

  test("writes both streams of a session and reads them", () => {
    expect(output.closed).toEqual({ complete: true, dropped: 0, refused: 0 });
    expect(output.events).toEqual([
      "RUN_STARTED",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT Hel",
      "TEXT_MESSAGE_CONTENT lo",
      "TEXT_MESSAGE_END",
      "RUN_FINISHED",
    ]);
    expect(output.tokens).toEqual(output.events);
    expect(output.messages).toEqual([
      'lifecycle {"event":"run_started"}',
      "assistant Hello",
      'lifecycle {"event":"run_finished"}',
    ]);
  });

  test("copies a session by JSON lines", () => {
    expect(output.copied).toEqual(output.events);
  });

  test("gets a typed error from a failed call", () => {
    expect(output.failure).toBe("NOT_FOUND SESSION_NOT_FOUND");
  });

  test("loads no code of the server", () => {
    const packages = new Set(
      modules.flatMap((url) => {
        const [, path] = url.split(/.*\/node_modules\/(?!\.)/);
        const name = path?.match(/^(?:@[^/]+\/)?[^/]+/)?.[0];
        return name === undefined || name === "@session-ledger/runner" ? [] : [name];
      }),
    );
    expect(packages).toContain("@grpc/grpc-js");
    for (const name of ["drizzle-orm", "postgres", "fastify", "zod", "@ag-ui/core", "pino"])
      expect(packages).not.toContain(name);
    const own = modules.flatMap(
      (url) => url.match(/\/@session-ledger\/runner\/packages\/([^/]+)\//)?.[1] ?? [],
    );
    expect([...new Set(own)].toSorted()).toEqual(["agui", "base", "compressor", "runner"]);
  });
});

test("the compressor loads no other file", async () => {
  await writeFile(join(consumer, "only.mjs"), 'import "@session-ledger/runner/compressor";');
  const { modules } = await runWatched(["only.mjs"]);
  const urls = modules.filter((url) => !url.endsWith("/only.mjs"));
  expect(urls.length).toBeGreaterThan(3);
  const expected =
    /\/@session-ledger\/runner\/packages\/(?:(?:agui|base|compressor)\/|runner\/src\/compressor\.js)/;
  expect(urls.filter((url) => !expected.test(url))).toEqual([]);
});

/**
 * The steps of `npm run check`, `npm test` and `.ci/run`: `node test/gate.ts check|test|ci`.
 *
 * Checks run side by side, and beside the tests, because most of them use one processor at a time. The
 * output of a failed step is printed when it has ended, that of the tests as it comes. Each step has a line
 * with its seconds; the last line has the slowest test files. The result is 0 if every step has ended with 0.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { z } from "zod";
import { Semaphore } from "../src/base/semaphore.ts";

interface Step {
  readonly name: string;
  /** For bash. */
  readonly script: string;
  /** Names of steps that must have ended well before. */
  readonly after?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The tests: they wait for no free place, and their output is printed as it comes. */
  readonly isMain?: boolean;
}

/** More would only take processors from each other. */
const CHECKS_AT_ONCE = 3;

/** The last lines of the run, from test/support/vitest-extensions.ts. */
const SUMMARY = join(mkdtempSync(join(tmpdir(), "session-ledger-gate-")), "summary");

const { scripts } = z
  .object({ scripts: z.record(z.string(), z.string()) })
  .parse(JSON.parse(readFileSync("package.json", "utf8")));

/** Scripts of package.json, by the same name. */
const CHECKS = ["format:check", "lint", "types", "unused"].map((name) => script(name));

const VITEST = "vitest run --config test/vitest.config.ts";

/** Installs packages that the frameworks' tests need; those of the root are there already. */
const FRAMEWORKS = "npm ci --no-audit --no-fund --prefix test/frameworks";
const FRAMEWORKS_TYPES = `tsc --noEmit -p test/frameworks
for example in copilotkit-app openai-agents; do
  ln -sfn ../../test/frameworks/node_modules "examples/$example/node_modules"
  tsc --noEmit -p "examples/$example"
done`;

const PYTHON = `python3 -m venv clients/python/.venv-frameworks
clients/python/.venv-frameworks/bin/pip install --quiet --no-compile --disable-pip-version-check \
  -r test/python/requirements.txt ./clients/python`;
const PYTHON_CHECKS = `cd clients/python
files=(. ../../test/python ../../examples/langgraph-python)
.venv/bin/mypy --python-executable .venv-frameworks/bin/python "\${files[@]}"
.venv/bin/ruff check --quiet --config pyproject.toml "\${files[@]}"
.venv/bin/ruff format --quiet --check --config pyproject.toml "\${files[@]}"`;

const GO_CHECKS = `cd clients/go
go vet ./...
test -z "$(gofmt -l conformance example ledger runner)"`;

/** Compares with the last release, or with what is on main elsewhere. */
const COMPATIBILITY = `tag="$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || true)"
if [ -n "$tag" ]; then
  against=".git#tag=$tag"
elif [ "$(git rev-parse --verify -q origin/main)" != "$(git rev-parse HEAD)" ] \
  && git cat-file -e origin/main:buf.yaml 2>/dev/null; then
  against=".git#ref=origin/main"
else
  echo "nothing released to compare with"
  exit 0
fi
buf breaking --against "$against"`;

/** Compares with the commit from which the branch comes, or else with the one before. */
const STORE_UNCHANGED = `base="$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)"
if [ "$base" = "$(git rev-parse HEAD)" ]; then base=HEAD~1; fi
git diff --quiet "$base" -- src/store src/ingest src/service-store.ts`;

const GRPCURL = "go install github.com/fullstorydev/grpcurl/cmd/grpcurl";

/** The tests use what these steps make. */
const PREPARED: readonly Step[] = [
  { name: "grpcurl", script: `${GRPCURL}@latest` },
  { name: "an older grpcurl", script: `GOBIN="$GRPCURL_OLDER" ${GRPCURL}@v1.9.3` },
  { name: "packages of the frameworks", script: FRAMEWORKS },
  script("gen:check"),
  { name: "packages of Python", script: PYTHON },
  { name: "Java", script: "mvn -q -B -ntp -f clients/java/pom.xml test-compile" },
];

const PREPARED_NAMES = PREPARED.map(({ name }) => name);

/** It copies gigabytes: during the tests only if their databases are in memory. */
const IMAGE_AFTER = process.argv[2] === "ci" && (await isInMemory()) ? PREPARED_NAMES : ["tests"];

const LISTS: Readonly<Record<string, readonly Step[]>> = {
  check: [...CHECKS, { name: "tests", script: `${VITEST} --project unit`, isMain: true }],
  test: [
    ...CHECKS,
    {
      name: "tests",
      script: `${VITEST} --project unit --project postgres --project e2e`,
      isMain: true,
    },
  ],
  ci: [
    ...PREPARED,
    ...CHECKS,
    {
      name: "Python",
      script: PYTHON_CHECKS,
      after: ["gen:check", "packages of Python"],
    },
    { name: "Go", script: GO_CHECKS, after: ["gen:check"] },
    {
      name: "types of the frameworks",
      script: FRAMEWORKS_TYPES,
      after: ["packages of the frameworks"],
    },
    { name: "alerts, dashboard and manifests", script: ".ci/check-operations" },
    { name: "compatibility of the contract", script: COMPATIBILITY },
    {
      name: "tests",
      script: `${VITEST} --project '!image'`,
      after: PREPARED_NAMES,
      env: { REQUIRE_TOOLS: "1", PROPERTY_SHARE: "1", ...corpus(), ...shardedSuites() },
      isMain: true,
    },
    {
      name: "image",
      script: `${VITEST} --project image`,
      after: IMAGE_AFTER,
      env: { REQUIRE_TOOLS: "1", SUMMARY_FILE: `${SUMMARY}-image` },
    },
  ],
};

const steps = LISTS[process.argv[2] ?? ""];
if (steps === undefined) {
  process.stderr.write(`usage: node test/gate.ts ${Object.keys(LISTS).join("|")}\n`);
  process.exitCode = 2;
} else {
  process.exitCode = await runAll(steps);
}

async function runAll(list: readonly Step[]): Promise<number> {
  const outcomes = new Map<string, Promise<boolean>>();
  const checks = new Semaphore({ atOnce: CHECKS_AT_ONCE });
  const outcomeOf = async (step: Step): Promise<boolean> => {
    const before = await Promise.all((step.after ?? []).map(async (name) => outcomes.get(name)));
    if (before.includes(false)) return report(step, "not run", 0, "");
    return step.isMain === true ? run(step) : checks.run(() => run(step));
  };
  for (const step of list) outcomes.set(step.name, outcomeOf(step));
  const all = await Promise.all(outcomes.values());
  if (existsSync(SUMMARY)) process.stdout.write(readFileSync(SUMMARY));
  return all.every(Boolean) ? 0 : 1;
}

async function run(step: Step): Promise<boolean> {
  const startedMs = performance.now();
  const child = spawn("bash", ["-euo", "pipefail", "-c", `exec 2>&1\n${step.script}`], {
    stdio: ["ignore", step.isMain === true ? "inherit" : "pipe", "inherit"],
    env: { ...process.env, SUMMARY_FILE: SUMMARY, ...step.env },
  });
  const ended = Promise.withResolvers<number | null>();
  child.once("error", ended.reject);
  child.once("close", ended.resolve);
  const [output, code] = await Promise.all([child.stdout && text(child.stdout), ended.promise]);
  const seconds = (performance.now() - startedMs) / 1_000;
  return report(step, code === 0 ? "ok" : `exit ${code}`, seconds, output ?? "");
}

/** One write: steps end at the same time. True for a step that has ended well. */
function report({ name }: Step, outcome: string, seconds: number, output: string): boolean {
  const isOk = outcome === "ok";
  const shown = isOk ? "" : output;
  process.stdout.write(`== ${name}: ${outcome}, ${seconds.toFixed(1)} s\n${shown}`);
  return isOk;
}

function script(name: string): Step {
  return { name, script: scripts[name] ?? "exit 1" };
}

/** After a change of the store or of ingest, or if git cannot compare. */
function shardedSuites(): Readonly<Record<string, string>> {
  const { status } = spawnSync("bash", ["-euc", STORE_UNCHANGED]);
  return status === 0 ? {} : { SHARDED_SUITES: "1" };
}

async function isInMemory(): Promise<boolean> {
  const { runFolder } = await import("./support/postgres-server.ts");
  return (await runFolder()) !== tmpdir();
}

function corpus(): Readonly<Record<string, string>> {
  const folder = "../shared/data/agui-streams";
  return existsSync(folder) ? { CORPUS: folder } : {};
}

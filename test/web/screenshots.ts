/**
 * Takes the pictures of the inspector that the documents show, into docs/pictures:
 *
 *   node test/web/screenshots.ts [NAME …]
 *
 * It starts a service with a database of its own and the demo, and needs Chromium.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser } from "playwright-core";
import { bundle } from "../../tools/bundle.ts";
import { openChromium } from "../support/browser.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import {
  endService,
  runCommand,
  type ServiceProcess,
  startCommand,
  startService,
} from "../support/service-process.ts";

const FOLDER = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));
const BYTES_MAX = 200_000;
const SETTLING_MS = 3_000;

interface Shot {
  readonly path: string;
  readonly size: { readonly width: number; readonly height: number };
  readonly scheme: "light" | "dark";
  /** A text that the page shows when it is ready. */
  readonly shows: string;
  /** A message to the scripted agent. */
  readonly says?: string;
}

const WIDE = { width: 1200, height: 700 };

const SHOTS: Readonly<Record<string, Shot>> = {
  "inspector-session": {
    path: "/sessions/demo-live",
    size: WIDE,
    scheme: "light",
    says: "Which tools do you have?",
    shows: "All three have answered:",
  },
  "inspector-talk": {
    path: "/sessions/demo-live",
    size: WIDE,
    scheme: "dark",
    says: "Deploy it.",
    shows: "Deploy version 2.0 to production?",
  },
  "inspector-sessions": {
    path: "/",
    size: { width: 1360, height: 360 },
    scheme: "light",
    says: "Give me a long answer.",
    shows: "running",
  },
  "inspector-inbox": {
    path: "/inbox",
    size: { width: 1000, height: 560 },
    scheme: "light",
    shows: "wait for you",
  },
  "inspector-compare": {
    path: "/sessions/demo-three-models/compare",
    size: WIDE,
    scheme: "light",
    shows: "calculator",
  },
};

async function take(browser: Browser, name: string, on: ServiceProcess): Promise<void> {
  const shot = SHOTS[name];
  if (shot === undefined) throw new Error(`${name}: expected ${Object.keys(SHOTS).join(", ")}`);
  const { path, size: viewport, scheme: colorScheme, shows } = shot;
  if (shot.says !== undefined) await say(shot.says, on);
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto(`http://${on.httpAddress}${path}`);
  await page.getByText(shows).filter({ visible: true }).first().waitFor();
  // The parts that are loaded later, and their data: streams are open, so the network is never idle.
  await page.waitForTimeout(SETTLING_MS);
  const png = await page.screenshot();
  if (png.length > BYTES_MAX) throw new Error(`${name} has ${png.length} bytes`);
  await writeFile(join(FOLDER, `${name}.png`), png);
  process.stdout.write(`${name}.png ${png.length} bytes\n`);
  await context.close();
}

async function say(text: string, { grpcAddress }: ServiceProcess): Promise<void> {
  const env = { SESSION_LEDGER_ADDRESS: grpcAddress };
  const { exitCode, stderr } = await runCommand(["say", "demo-live", text], { env });
  if (exitCode !== 0) throw new Error(stderr);
}

/** The agent of the demo has said something. */
async function firstAnswer({ grpcAddress }: ServiceProcess): Promise<void> {
  const env = { SESSION_LEDGER_ADDRESS: grpcAddress };
  const messages = startCommand(["tail", "demo-live", "--stream", "messages", "--follow"], env);
  for await (const line of messages.stdout) if (line.includes('"assistant"')) break;
  messages.kill("SIGTERM");
  await messages.result;
}

await bundle(fileURLToPath(new URL("../../dist", import.meta.url)));
const service = await startService({ embedded: true });
const agent = startCommand(["demo", "--pace", "15ms"], {
  SESSION_LEDGER_ADDRESS: service.grpcAddress,
});
const browser = await openChromium();
try {
  const names = process.argv.slice(2);
  await firstAnswer(service);
  for (const name of names.length > 0 ? names : Object.keys(SHOTS))
    await take(browser, name, service);
} finally {
  agent.kill("SIGTERM");
  await agent.result;
  await browser.close();
  await endService(service);
  await cleanUp();
}

/**
 * The first hour of a newcomer, with the commands of the README and a real browser: open the page with the
 * demo, find a text, approve in the inbox, see the agent continue, start a runner, and see its answer.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { faultsOfLooks } from "../support/inspector-looks.ts";
import { useInspector } from "../support/inspector.ts";
import {
  endService,
  runCommand,
  type ServiceProcess,
  startCommand,
  startService,
} from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const ROOT = join(import.meta.dirname, "../..");
/** In the order of the walk; `npm ci` and the clone are before them. */
const COMMANDS = [
  "npm ci && npm start",
  "npm run -s ledger -- demo",
  "npx node examples/runner.ts",
  "npm run -s ledger -- say talk 'Is anybody there?'",
];

const inspector = useInspector();
let service: ServiceProcess;
let url: string;
const ends: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  service = await startService({ embedded: true });
  url = `http://${service.httpAddress}/`;
  ends.push(() => endService(service));
});
afterAll(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

test("the README has the commands of the walk", () => {
  const readme = readFileSync(join(ROOT, "README.md"), "utf8");
  expect(COMMANDS.filter((command) => !readme.includes(command))).toEqual([]);
});

describe("in chromium", needs("chromium"), () => {
  test("the page fills, a text is found, an approval lets the agent go on, and a runner answers", async () => {
    const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
    const demo = startCommand(["demo", "--pace", "2ms"], env);
    ends.push(async () => {
      demo.kill("SIGKILL");
      await demo.result;
    });
    await inspector.visit(url, {}, async (page) => {
      await page.getByText("A broken lamp").first().waitFor();
      // A text of another session.
      await page.getByLabel("Search names, ids and texts").fill("594,500 tonnes");
      const found = page.getByRole("region", { name: "Found texts" });
      // The index is some seconds behind.
      await found.getByRole("link").first().click();
      await page.getByText("A number with its source").first().waitFor();
      await page.getByText("Reader").first().waitFor();
      // The approval.
      await page.getByRole("link", { name: /^Inbox/ }).click();
      const asking = page.getByRole("article", { name: "A broken lamp" });
      await asking.getByText("refund_order").waitFor();
      await asking.getByRole("button", { name: "Approve" }).click();
      await asking.waitFor({ state: "detached" });
      await page.getByRole("link", { name: "Sessions" }).click();
      await page.getByRole("link", { name: "A broken lamp" }).click();
      await page.getByText("Thank you. It is refunded.").waitFor();
      expect(await faultsOfLooks(page)).toEqual([]);
      await expect.poll(() => page.getByRole("img").count()).toBeGreaterThan(0);
      // The runner of ten lines.
      const args = ["examples/runner.ts", "talk", service.grpcAddress];
      const runner = spawn(process.execPath, args, { cwd: ROOT, stdio: "ignore" });
      ends.push(async () => {
        runner.kill("SIGKILL");
        if (runner.exitCode === null && runner.signalCode === null) await once(runner, "exit");
      });
      const sent = await runCommand(["say", "talk", "Is anybody there?"], { env });
      expect(sent.exitCode).toBe(0);
      await page.goto(`${url}sessions/talk`);
      await page.getByText("You said: Is anybody there?").first().waitFor();
      // And from the page.
      await page.getByRole("textbox", { name: "Message" }).fill("And now?");
      await page.keyboard.press("Enter");
      await page.getByText("You said: And now?").first().waitFor();
    });
  });
});

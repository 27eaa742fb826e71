/** Rows and sessions that are erased while a page shows them. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { openDatabase, type OpenDatabase } from "../support/database.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { items, region, useInspector } from "../support/inspector.ts";
import {
  endService,
  runCommand,
  type ServiceProcess,
  startService,
} from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const inspector = useInspector();
let database: OpenDatabase;
let service: ServiceProcess;
let client: RpcClient;
const urlOf = (path: string): string => `http://${service.httpAddress}/sessions/${path}`;

beforeAll(async () => {
  database = await openDatabase();
  service = await startService({ env: { DATABASE_URL: database.url } });
  client = new RpcClient(service.grpcAddress);
});

afterAll(async () => {
  client.close();
  await endService(service);
  await database.stop();
});

/** Two runs of five events with a question before each; the first one is forty days old. */
async function aged(sessionId: string): Promise<void> {
  await say(service, sessionId, { payload: "Old question" });
  await pushAll(service, sessionId, run("old", spoken("m1", "Old answer")));
  const { sql } = database;
  await sql`update session_events set recorded_at = now() - interval '40 days'
    where session_id = ${sessionId}`;
  await sql`update session_messages set recorded_at = now() - interval '41 days'
    where session_id = ${sessionId}`;
  await say(service, sessionId, { payload: "New question" });
  await pushAll(service, sessionId, run("new", spoken("m2", "New answer")));
}

async function retention(sessionId: string): Promise<void> {
  const options = ["--older-than", "30d", "--session", sessionId];
  const { exitCode, stderr } = await runCommand(["retention", ...options], {
    env: { DATABASE_URL: database.url },
  });
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
}

describe("in chromium", needs("chromium"), () => {
  test("a page keeps what retention erases, and goes on", async () => {
    await aged("aged");
    await inspector.visit(urlOf("aged"), {}, async (page) => {
      await page.getByRole("article", { name: "Run new, end" }).waitFor();
      await retention("aged");
      await pushAll(service, "aged", run("newest", spoken("m3", "Newest answer")));
      await items(page).getByText("Newest answer").waitFor();
      await page.keyboard.press("g");
      await page.keyboard.type("4");
      await page.keyboard.press("Enter");
      await expect.poll(() => items(page).getByText("New answer").count()).toBe(0);
      await expect.poll(() => items(page).getByText("Old answer").count()).toBe(1);
    });
  });

  test("a page of a session without its beginning begins at the first row, also at an erased number", async () => {
    await aged("shortened");
    await retention("shortened");
    for (const query of ["", "?at=2"]) {
      await inspector.visit(urlOf(`shortened${query}`), {}, async (page) => {
        const grid = region(page, "Events").getByRole("grid");
        await expect.poll(() => grid.getAttribute("aria-rowcount")).toBe("6");
        await region(page, "Timeline")
          .getByText(/^1 run/)
          .waitFor();
        expect(await items(page).getByText("Old answer").count()).toBe(0);
        await page.getByRole("button", { name: "Live" }).click();
        await items(page).getByText("New answer").waitFor();
        await page.getByRole("article", { name: "Run new, end" }).waitFor();
        expect(await items(page).getByText("Old question").count()).toBe(0);
      });
    }
  });

  test("a session that is erased while it is shown says so, and takes nothing more", async () => {
    await aged("erased");
    await inspector.visit(urlOf("erased"), {}, async (page) => {
      await page.getByRole("article", { name: "Run new, end" }).waitFor();
      await client.unary(SessionService.method.eraseSession, { id: "erased" });
      await page
        .getByRole("alert")
        .filter({ hasText: /^. session erased/ })
        .waitFor();
      await expect.poll(() => page.getByLabel("Message", { exact: true }).count()).toBe(0);
      await page.reload();
      await page.getByRole("alert").getByText("This session was deleted.").waitFor();
      expect(await items(page).count()).toBe(0);
    });
  });
});

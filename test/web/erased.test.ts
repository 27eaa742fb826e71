/** Rows and sessions that are erased while a page shows them. */
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { withSql } from "../support/embedded-fixture.ts";
import { pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { isRead, items, region, useInspector } from "../support/inspector.ts";
import { runCommand } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service, client } = useService();
const urlOf = (path: string): string => `http://${service.httpAddress}/sessions/${path}`;

/** Two runs of five events with a question before each; the first one is forty days old. */
async function aged(sessionId: string): Promise<void> {
  await say(service, sessionId, { payload: "Old question" });
  await pushAll(service, sessionId, run("old", spoken("m1", "Old answer")));
  await withSql(service.databaseUrl, async (sql) => {
    await sql`update session_events set recorded_at = now() - interval '40 days'
      where session_id = ${sessionId}`;
    await sql`update session_messages set recorded_at = now() - interval '41 days'
      where session_id = ${sessionId}`;
  });
  await say(service, sessionId, { payload: "New question" });
  await pushAll(service, sessionId, run("new", spoken("m2", "New answer")));
}

async function retention(sessionId: string): Promise<void> {
  const options = ["--older-than", "30d", "--session", sessionId];
  const { exitCode, stderr } = await runCommand(["retention", ...options], {
    env: { DATABASE_URL: service.databaseUrl },
  });
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
}

describe("in chromium", needs("chromium"), () => {
  test("a page keeps the rows that retention erases, and continues", async () => {
    await aged("aged");
    await inspector.visit(urlOf("aged"), {}, async (page) => {
      await isRead(page, { message: "Message of Person", run: "Run old, end" });
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
    await inspector.visit(urlOf("shortened"), {}, async (page) => {
      for (const query of ["", "?at=2"]) {
        if (query !== "") await page.goto(urlOf(`shortened${query}`));
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
      }
    });
  });

  // Bug: the page kept the field and the button, whose messages were then refused.
  test("a session that is deleted or erased while it is shown reports it, and takes nothing more", async () => {
    const { deleteSession, eraseSession } = SessionService.method;
    const ways: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
      deleted: (id) => client.unary(deleteSession, { id }),
      erased: (id) => client.unary(eraseSession, { id }),
    };
    await inspector.visit(urlOf("none"), {}, async (page) => {
      for (const [id, remove] of Object.entries(ways)) {
        await say(service, id, { payload: "hello" });
        await pushAll(service, id, run("only", spoken("m", "An answer")));
        await page.goto(urlOf(id));
        await isRead(page, { message: "Message of Person", run: "Run only, end" });
        await page.getByLabel("Message", { exact: true }).waitFor();
        await remove(id);
        await page
          .getByRole("alert")
          .filter({ hasText: new RegExp(`^. session ${id}`) })
          .waitFor();
        await expect.poll(() => page.getByLabel("Message", { exact: true }).count()).toBe(0);
        await items(page).getByText("hello").waitFor();
        await page.reload();
        await page.getByRole("alert").getByText("This session was deleted.").waitFor();
        expect(await items(page).count()).toBe(0);
      }
    });
  });
});

/** Forks on a session page: made at an event, and named by both sessions. */
import { beforeAll, describe, expect, test } from "vitest";
import { pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService();

beforeAll(async () => {
  await say(service, "branched", { payload: "What is it?" });
  await pushAll(service, "branched", run("first", spoken("m1", "A house.")));
  await say(service, "branched", { payload: "And this?" });
  await pushAll(service, "branched", run("second", spoken("m2", "A tree.")));
});

describe("in chromium", needs("chromium"), () => {
  test("a person forks a session at an event, and goes from the fork to the parent and back", async () => {
    await inspector.visit(
      `http://${service.httpAddress}/sessions/branched?at=5`,
      {},
      async (page) => {
        const events = region(page, "Events");
        await events.getByRole("row").filter({ hasText: "RUN_FINISHED" }).first().click();
        await events.getByRole("button", { name: "Fork here" }).click();
        const toParent = page.getByRole("link", { name: "Forked from branched" });
        await toParent.waitFor();
        const forkUrl = page.url();
        expect(forkUrl).toMatch(/\/sessions\/web-[0-9a-f]{32}$/);
        await page.getByText("A house.").first().waitFor();
        expect(await page.getByText("A tree.").count()).toBe(0);
        await toParent.click();
        await page.getByText("A tree.").first().waitFor();
        expect(page.url()).toMatch(/\/sessions\/branched\?at=\d+$/);
        await page.getByRole("button", { name: "1 fork" }).click();
        await page.getByRole("dialog").getByRole("link").click();
        await toParent.waitFor();
        expect(page.url()).toBe(forkUrl);
      },
    );
  });
});

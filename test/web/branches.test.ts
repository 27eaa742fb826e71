/** Branches on the page: a person edits a message, has one answered again, and goes back to what was. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pushAll, say } from "../support/inspector-sessions.ts";
import { useInspector } from "../support/inspector.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const inspector = useInspector();
let service: ServiceProcess;

beforeAll(async () => {
  service = await startService();
});
afterAll(() => endService(service));

/** A run that takes what waits, and answers; it ends when `finish` has resolved. */
async function answer(
  sessionId: string,
  { runId, delta, finish }: { runId: string; delta: string; finish?: () => Promise<unknown> },
): Promise<void> {
  const messageId = `answer-${runId}`;
  await pushAll(service, sessionId, [
    { type: "RUN_STARTED", threadId: sessionId, runId },
    { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId, delta },
    { type: "TEXT_MESSAGE_END", messageId },
  ]);
  await finish?.();
  await pushAll(service, sessionId, [{ type: "RUN_FINISHED", threadId: sessionId, runId }]);
}

describe("in chromium", needs("chromium"), () => {
  test("a message is edited and answered again, and each branch can be shown", async () => {
    const id = "branched";
    await say(service, id, { payload: "How high is Kenya?" });
    await answer(id, { runId: "r1", delta: "Mount Kenya has 5,199 m." });
    await inspector.visit(`http://${service.httpAddress}/sessions/${id}`, {}, async (page) => {
      const items = page.locator(".conversation-item");
      const person = (text: string) =>
        items.filter({ hasText: "Person" }).filter({ hasText: text });
      await items.getByText("5,199 m").waitFor();
      // The focus stays at the message while the page moves; the pointer does not.
      await person("How high is Kenya?").focus();
      await person("How high is Kenya?").getByRole("button", { name: "Edit" }).click();
      await page.getByLabel("Edited message").fill("How large is Kenya?");
      await page.getByRole("button", { name: "Send the edit" }).click();
      await person("How large is Kenya?").getByText("waiting").waitFor();
      // The page shows the run while it is open: its buttons come back when it ends.
      const finish = async (): Promise<unknown> => await page.getByText("a run is open").waitFor();
      await answer(id, { runId: "r2", delta: "It has 580,367 km².", finish });
      await items.getByText("580,367 km²").waitFor();
      await expect.poll(() => items.getByText("5,199 m").count()).toBe(0);
      const choice = (text: string) => person(text).getByRole("group", { name: "Branches" });
      await expect.poll(() => choice("How large").innerText()).toMatch(/2\/2/);
      await person("How large").focus();
      await person("How large").getByRole("button", { name: "Answer again" }).click();
      await expect
        .poll(async () => {
          const response = await fetch(
            `http://${service.httpAddress}/api/ambient/v1/sessions/${id}/messages`,
          );
          return (await response.text()).includes("regenerates");
        })
        .toBe(true);
      await answer(id, { runId: "r3", delta: "About 580,000 km²." });
      await items.getByText("About 580,000 km²").waitFor();
      await expect.poll(() => items.getByText("580,367 km²").count()).toBe(0);
      await expect.poll(() => person("How large is Kenya?").count()).toBe(1);
      await expect.poll(() => choice("How large").innerText()).toMatch(/3\/3/);
      await choice("How large").getByRole("button", { name: "Branch before" }).click();
      await items.getByText("580,367 km²").waitFor();
      await expect.poll(() => choice("How large").innerText()).toMatch(/2\/3/);
      await choice("How large").getByRole("button", { name: "Branch before" }).click();
      await items.getByText("5,199 m").waitFor();
      await expect.poll(() => choice("How high").innerText()).toMatch(/1\/3/);
      await choice("How high").getByRole("button", { name: "Next branch" }).click();
      await choice("How large").getByRole("button", { name: "Next branch" }).click();
      await items.getByText("About 580,000 km²").waitFor();
    });
  });
});

/** What the page does when the service refuses: it says why, and neither asks nor tries without end. */
import { beforeAll, describe, expect, test } from "vitest";
import { say } from "../support/inspector-sessions.ts";
import { useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService("tokens");
let url: string;
let token: string;

beforeAll(async () => {
  ({ token } = await (await sharedIssuer("tokens")).signed("admin", ["admin"]));
  url = `http://${service.httpAddress}`;
  await say({ httpAddress: service.httpAddress, token }, "refused-guarded", { payload: "hello" });
});

describe("in chromium", needs("chromium"), () => {
  // The state of the service is read every two seconds, and each refusal asked for a token again.
  test("a reader who gives no token is left alone until they try again", async () => {
    await inspector.visit(`${url}/service`, {}, async (page, { requests }) => {
      const asked = page.getByRole("dialog", { name: "Token" });
      await asked.waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("alert").filter({ hasText: "UNAUTHENTICATED" }).waitFor();
      const before = requests.length;
      await expect.poll(() => requests.length).toBeGreaterThan(before + 1);
      expect(await asked.count()).toBe(0);
      await page.getByRole("button", { name: "Try again" }).click();
      await asked.getByLabel("This service wants a token").fill(token);
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Service" }).waitFor();
    });
    await inspector.visit(`${url}/sessions/refused-guarded`, {}, async (page) => {
      await page.getByRole("dialog", { name: "Token" }).waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Try again" }).click();
      await page.getByRole("dialog", { name: "Token" }).waitFor();
    });
  });

  // A browser sends no such header, which the page took for a lost connection, without end.
  test("a token that no header can carry is refused in the dialog", async () => {
    await inspector.visit(url, {}, async (page) => {
      const field = page.getByLabel("This service wants a token");
      for (const unfit of [`“${token}”`, `${token}\u200b`, `${token} twice`, "x".repeat(8_193)]) {
        await field.fill(unfit);
        await page.getByText("A token has no spaces").waitFor();
        await page.keyboard.press("Enter");
        const go = page.getByRole("button", { name: "Continue" });
        await expect.poll(() => go.isDisabled()).toBe(true);
      }
      await field.fill(`Bearer ${token}`);
      await page.keyboard.press("Enter");
      await page.getByRole("link", { name: "refused-guarded" }).waitFor();
      // The page said for ever that it reconnects to such a session.
      await page.goto(`${url}/sessions/no%2Fid`);
      await page.getByText("id must be 1 to 128 bytes").waitFor();
    });
  });

  // The page kept the field and the button, whose messages were then refused.
  test("a session that is deleted while it is shown says so, and takes nothing more", async () => {
    const door = { httpAddress: service.httpAddress, token };
    await say(door, "short", { payload: "hello" });
    await inspector.visit(`${url}/sessions/short`, {}, async (page) => {
      await page.getByLabel("This service wants a token").fill(token);
      await page.keyboard.press("Enter");
      await page.getByLabel("Message", { exact: true }).waitFor();
      await page.getByText("hello").first().waitFor();
      // The transcript shows it before the log has its row.
      await page.locator(".header-counts").getByText("message", { exact: true }).waitFor();
      const headers = { authorization: `Bearer ${token}` };
      await fetch(`${url}/api/ambient/v1/sessions/short`, { method: "DELETE", headers });
      await page
        .getByRole("alert")
        .filter({ hasText: /^. session short/ })
        .waitFor();
      await expect.poll(() => page.getByLabel("Message", { exact: true }).count()).toBe(0);
      await page.getByText("hello").first().waitFor();
    });
  });
});

/** A service that wants tokens: the page asks for one, keeps it to itself, and shows what it allows. */
import { text as textOf } from "node:stream/consumers";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { type Caller, sessionCaller } from "../support/callers.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { items, region, type Seen, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService("tokens");
let callers: Readonly<Record<"admin" | "editor" | "viewer" | "runner", Caller>>;
const urlOf = (path: string): string => `http://${service.httpAddress}${path}`;
const ALL = { send: 1, cancel: 1, thumbs: 1 } as const;
const NONE = { send: 0, cancel: 0, thumbs: 0 } as const;

beforeAll(async () => {
  const issuer = await sharedIssuer("tokens");
  callers = {
    admin: await issuer.signed("admin", ["admin"]),
    editor: await issuer.signed("editor", ["editor"]),
    viewer: await issuer.signed("viewer", ["viewer"]),
    runner: await issuer.signed("runner", ["runner"]),
  };
  const door = { httpAddress: service.httpAddress, token: callers.admin.token };
  await say(door, "guarded", { payload: "A guarded question" });
  await say(door, "hidden", { payload: "Of somebody else" });
  await pushAll(door, "guarded", run("r0", [])); // Two runs can be compared.
  // The run stays open, so it could be cancelled.
  await pushAll(door, "guarded", run("r1", spoken("m1", "A guarded answer")).slice(0, -1));
});

async function give(page: Page, token: string): Promise<void> {
  const dialog = page.getByRole("dialog", { name: "Token" });
  await dialog.getByLabel(/token/i).fill(token);
  await dialog.getByRole("button", { name: "Continue" }).click();
}

/** Answers that are errors, but for those that ask for a token. */
function failures({ requests }: Seen): readonly string[] {
  return requests.flatMap((request) => {
    const status = request.existingResponse()?.status() ?? 0;
    return status >= 400 && status !== 401 ? [`${status} ${request.url()}`] : [];
  });
}

/** Controls that some callers may not use. */
async function controls(page: Page): Promise<object> {
  return {
    send: await page.getByRole("textbox", { name: "Message" }).count(),
    cancel: await page.getByRole("button", { name: "Cancel the run" }).count(),
    thumbs: await items(page).getByRole("button", { name: "Good" }).count(),
  };
}

/** The page then asks for another one. */
async function forget(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Forget token" }).click();
  await page.getByRole("dialog", { name: "Token" }).waitFor();
}

describe("a token in chromium", needs("chromium"), () => {
  // Bug: what the page reads again and again asked for a token after each refusal.
  test("that a reader does not give is asked for again when they try again, and no more", async () => {
    await inspector.visit(urlOf("/sessions/guarded"), {}, async (page, { requests }) => {
      const asked = page.getByRole("dialog", { name: "Token" });
      const refused = page.getByText("a bearer token is required");
      const again = page.getByRole("button", { name: "Try again" });
      await asked.waitFor();
      await page.keyboard.press("Escape");
      await refused.waitFor();
      const before = requests.length;
      await expect.poll(() => requests.length).toBeGreaterThan(before);
      expect(await asked.count()).toBe(0);
      await again.click();
      for (const path of ["/sessions/guarded", "/"]) {
        await asked.waitFor();
        await page.goto(urlOf(path));
        await asked.waitFor();
        await page.keyboard.press("Escape");
        await again.click();
      }
      await give(page, callers.admin.token);
      await page.getByRole("link", { name: "guarded" }).waitFor();
      await expect.poll(() => refused.count()).toBe(0);
    });
  });

  test("that is wrong is refused in the dialog, and asked for again", async () => {
    const { token } = callers.admin;
    await inspector.visit(urlOf("/"), {}, async (page) => {
      const dialog = page.getByRole("dialog", { name: "Token" });
      const field = dialog.getByLabel("This service wants a token");
      await dialog.waitFor();
      await page.keyboard.type("a-wrong-token-0123456789");
      await page.keyboard.press("Enter");
      await dialog.getByRole("alert").getByText("The service did not accept the token").waitFor();
      // Bug: a browser sends no such header, which the page took for a lost connection, without end.
      for (const unfit of [`“${token}”`, `${token}\u200b`, `${token} twice`, "x".repeat(8_193)]) {
        await field.fill(unfit);
        await page.getByText("A token has no spaces").waitFor();
        await page.keyboard.press("Enter");
        const go = page.getByRole("button", { name: "Continue" });
        await expect.poll(() => go.isDisabled()).toBe(true);
      }
      await field.fill(`Bearer ${token}`);
      await page.keyboard.press("Enter");
      await page.getByRole("link", { name: "guarded" }).waitFor();
      await dialog.waitFor({ state: "detached" });
      // Bug: the page said for ever that it reconnects to such a session.
      await page.goto(urlOf("/sessions/no%2Fid"));
      await page.getByText("id must be 1 to 128 bytes").waitFor();
      expect(await dialog.count()).toBe(0);
    });
  });

  test("is in no address, no referrer, no log, and in no storage but that of the tab", async () => {
    const { token } = callers.admin;
    await inspector.visit(urlOf("/"), {}, async (page, seen, context) => {
      await give(page, token);
      await page.getByText("guarded").first().click();
      await items(page).getByText("A guarded answer").waitFor();
      await page.reload();
      await items(page).getByText("A guarded answer").waitFor();
      expect(await page.getByRole("dialog").count()).toBe(0);
      await page.getByRole("link", { name: "Sessions", exact: true }).click();
      await page.getByRole("link", { name: "guarded" }).waitFor();
      expect(seen.requests.length).toBeGreaterThan(5);
      const headers = await Promise.all(seen.requests.map((request) => request.allHeaders()));
      const texts = [
        page.url(),
        ...seen.requests.map((request) => request.url()),
        ...headers.map(({ referer = "" }) => referer),
        ...service.log,
        JSON.stringify(await context.storageState()),
        await page.content(),
      ];
      expect(texts.filter((text) => text.includes(token))).toEqual([]);
      // The requests with it are those of the API alone.
      const carriers = seen.requests.filter(
        (_, at) => headers[at]?.["authorization"] !== undefined,
      );
      expect(carriers.length).toBeGreaterThan(3);
      expect(carriers.filter((request) => !request.url().startsWith(urlOf("/api/")))).toEqual([]);
      const other = await context.newPage();
      await other.goto(urlOf("/"));
      await other.getByRole("dialog", { name: "Token" }).waitFor();
    });
  });

  test("of each role shows the controls that it may use", async () => {
    await inspector.visit(urlOf("/sessions/guarded"), {}, async (page, seen) => {
      for (const [role, expected] of [
        ["editor", ALL],
        ["viewer", { send: 0, cancel: 0, thumbs: 1 }],
        ["runner", NONE],
        ["admin", ALL],
      ] as const) {
        await give(page, callers[role].token);
        await items(page).getByText("A guarded answer").waitFor();
        await expect
          .poll(async () => ({ role, ...(await controls(page)) }))
          .toEqual({ role, ...expected });
        await region(page, "Conversation").waitFor();
        expect({ role, failures: failures(seen) }).toEqual({ role, failures: [] });
        await forget(page);
      }
    });
  });

  test("for one session shows it alone and asks for nothing else", async () => {
    const client = new RpcClient(() => service.grpcAddress);
    const tokenOf = async (role: "runner" | "viewer" | "editor"): Promise<string> =>
      (await sessionCaller(client, callers.admin, { sessionId: "guarded", role })).token;
    await inspector
      .visit(urlOf("/"), {}, async (page, seen) => {
        for (const [role, expected] of [
          ["runner", NONE],
          ["viewer", { send: 0, cancel: 0, thumbs: 1 }],
          ["editor", ALL],
        ] as const) {
          await give(page, await tokenOf(role));
          await page.getByText("1 session ·").waitFor();
          await expect
            .poll(() => page.getByRole("navigation").getByRole("link").allInnerTexts())
            .toEqual(["Sessions", "Inbox", "API"]);
          await page.getByRole("link", { name: "guarded" }).click();
          await items(page).getByText("A guarded answer").waitFor();
          await expect
            .poll(async () => ({ role, ...(await controls(page)) }))
            .toEqual({ role, ...expected });
          await page
            .getByRole("status")
            .getByText(/^\W*live$/)
            .waitFor();
          await page.getByRole("link", { name: "Compare runs" }).click();
          await page.getByRole("heading", { name: "The same question" }).waitFor();
          // A plain link would send no token.
          const downloading = page.waitForEvent("download");
          await page.getByRole("link", { name: "API", exact: true }).click();
          const download = await downloading;
          expect(download.suggestedFilename()).toBe("openapi.json");
          expect(await textOf(await download.createReadStream())).toContain('"openapi": "3.1');
          expect({ role, failures: failures(seen) }).toEqual({ role, failures: [] });
          await page.getByRole("link", { name: "Sessions", exact: true }).click();
          await forget(page);
        }
        await give(page, await tokenOf("viewer"));
        await page.goto(urlOf("/sessions/hidden"));
        await page.getByText("session hidden does not exist").waitFor();
      })
      .finally(() => client.close());
  });
});

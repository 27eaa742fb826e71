/** A service that wants tokens: the page asks for one, keeps it to itself, and shows what it allows. */
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

describe("a token in chromium", needs("chromium"), () => {
  test("is asked for when the service wants one, and again when it is wrong", async () => {
    await inspector.visit(urlOf("/sessions/guarded"), {}, async (page) => {
      await give(page, "a-wrong-token-0123456789");
      await page.getByRole("alert").getByText("did not accept").waitFor();
      await give(page, callers.admin.token);
      await items(page).getByText("A guarded answer").waitFor();
      await page.reload();
      await items(page).getByText("A guarded answer").waitFor();
      expect(await page.getByRole("dialog").count()).toBe(0);
    });
  });

  test("is in no address, no referrer, no log, and in no storage but that of the tab", async () => {
    const { token } = callers.admin;
    await inspector.visit(urlOf("/"), {}, async (page, seen, context) => {
      await give(page, token);
      await page.getByText("guarded").first().click();
      await items(page).getByText("A guarded answer").waitFor();
      for (const name of ["Storage", "Service"]) {
        await page.getByRole("link", { name, exact: true }).click();
        await page.getByRole("heading", { name }).waitFor();
      }
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

  test.each([
    ["admin", { send: 1, cancel: 1, thumbs: 1 }],
    ["editor", { send: 1, cancel: 1, thumbs: 1 }],
    ["viewer", { send: 0, cancel: 0, thumbs: 1 }],
    ["runner", { send: 0, cancel: 0, thumbs: 0 }],
  ] as const)("of a %s shows the controls that it may use", async (role, expected) => {
    await inspector.visit(urlOf("/sessions/guarded"), {}, async (page, seen) => {
      await give(page, callers[role].token);
      await items(page).getByText("A guarded answer").waitFor();
      await expect.poll(() => controls(page)).toEqual(expected);
      await region(page, "Conversation").waitFor();
      expect(failures(seen)).toEqual([]);
    });
  });

  test.each([
    ["runner", { send: 0, cancel: 0, thumbs: 0 }],
    ["viewer", { send: 0, cancel: 0, thumbs: 1 }],
    ["editor", { send: 1, cancel: 1, thumbs: 1 }],
  ] as const)(
    "for one session, as %s, shows it alone and asks for nothing else",
    async (role, expected) => {
      const client = new RpcClient(() => service.grpcAddress);
      const of = { sessionId: "guarded", role };
      const { token } = await sessionCaller(client, callers.admin, of).finally(() =>
        client.close(),
      );
      await inspector.visit(urlOf("/"), {}, async (page, seen) => {
        await give(page, token);
        await page.getByText("1 session ·").waitFor();
        await expect
          .poll(() => page.getByRole("navigation").getByRole("link").allInnerTexts())
          .toEqual(["Sessions", "Storage", "API"]);
        await page.getByRole("link", { name: "guarded" }).click();
        await items(page).getByText("A guarded answer").waitFor();
        await expect.poll(() => controls(page)).toEqual(expected);
        await page
          .getByRole("status")
          .getByText(/^\W*live$/)
          .waitFor();
        await page.getByRole("link", { name: "Compare runs" }).click();
        await page.getByRole("heading", { name: "The same question" }).waitFor();
        await page.getByRole("link", { name: "Storage", exact: true }).click();
        await page
          .getByText("1 session", { exact: true })
          .or(page.getByRole("heading", { name: "By session" }))
          .first()
          .waitFor();
        await page.getByRole("link", { name: "API", exact: true }).click();
        await page.getByRole("heading", { name: "HTTP API" }).waitFor();
        expect(failures(seen)).toEqual([]);
        await page.goto(urlOf("/sessions/hidden"));
        await page.getByText("session hidden does not exist").waitFor();
      });
    },
  );
});

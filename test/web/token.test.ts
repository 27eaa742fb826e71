/** A service that wants tokens: the page asks for one, keeps it to itself, and shows what it allows. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Caller, Doors } from "../support/callers.ts";
import { pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { type Seen, useInspector } from "../support/inspector.ts";
import { items, region } from "../support/inspector-view.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const inspector = useInspector();
let service: ServiceProcess;
let callers: Readonly<Record<"admin" | "editor" | "viewer" | "runner", Caller>>;
const urlOf = (path: string): string => `http://${service.httpAddress}${path}`;

beforeAll(async () => {
  const doors = await Doors.make();
  callers = {
    admin: doors.add("admin", ["admin"]),
    editor: doors.add("editor", ["editor"]),
    viewer: doors.add("viewer", ["viewer"]),
    runner: doors.add("runner", ["runner"]),
  };
  await doors.save();
  service = await startService({ env: { ...doors.env, CALL_LOG: "all" } });
  const door = { httpAddress: service.httpAddress, token: callers.admin.token };
  await say(door, "guarded", { payload: "A guarded question" });
  // The run stays open, so it could be cancelled.
  await pushAll(door, "guarded", run("r1", spoken("m1", "A guarded answer")).slice(0, -1));
});

afterAll(() => endService(service));

async function give(page: Page, token: string): Promise<void> {
  const dialog = page.getByRole("dialog", { name: "Token" });
  await dialog.getByLabel(/token/i).fill(token);
  await dialog.getByRole("button", { name: "Continue" }).click();
}

/** Answers of the API that refuse the caller. */
async function refusals({ requests }: Seen): Promise<readonly string[]> {
  const answers = await Promise.all(
    requests.map(async (request) => ({
      url: request.url(),
      answer: request.existingResponse(),
    })),
  );
  return answers.flatMap(({ url, answer }) => (answer?.status() === 403 ? [url] : []));
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
      const shown = async () => ({
        send: await page.getByRole("textbox", { name: "Message" }).count(),
        cancel: await page.getByRole("button", { name: "Cancel the run" }).count(),
        thumbs: await items(page).getByRole("button", { name: "Good" }).count(),
      });
      await expect.poll(shown).toEqual(expected);
      await region(page, "Conversation").waitFor();
      expect(await refusals(seen)).toEqual([]);
    });
  });
});

/**
 * The built package @session-ledger/react in an app of another origin with a strict policy: its views show
 * and follow sessions of a service with tokens, and change nothing of the app around them.
 */
import { execFile } from "node:child_process";
import { readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { buildReact } from "../../packages/react/build.ts";
import { sessionCaller, type Caller } from "../support/callers.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { seriousFindings, type Seen, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { pageUrl, sharedIssuer, useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service, client } = useService("tokens");
const ROOT = join(import.meta.dirname, "../..");

/** The service with tokens knows the origin of this page. */
const APP = new URL("app/index.html", pageUrl("localhost")).href;

/** Of the app; the package is in it. */
let folder: string;
let styles: string;
let admin: Caller;
const url = (): string => `http://${service.httpAddress}`;

const HTML = `<!doctype html><html lang="en"><title>The app</title><link rel="stylesheet" href="app.css">
<script type="module" src="app.js"></script>
<h1>The app</h1><button type="button">Its button</button><input aria-label="Its field">
<table><tr><td>Its cell</td></tr></table><ul><li>Its item</li></ul><p>Its text</p><div id="views"></div></html>`;

const STYLES = `body { font: 17px/2 serif; }
#views { display: flex; gap: 10px; height: 700px; }
#views > div { flex: 1; min-width: 0; }`;

const SCRIPT = `import { createRoot } from "react-dom/client";
import { StrictMode } from "react";
import { SessionView } from "@session-ledger/react";
import "@session-ledger/react/styles.css";
import "./own.css";

const problems = [];
const opened = [];
let asked = 0;
const root = createRoot(document.querySelector("#views"));
const viewOf = ({ tokens, opens, ...props }, at) => {
  const token = tokens && (async () => tokens[Math.min(asked++, tokens.length - 1)]);
  return (
    <div key={at} id={"view" + at}>
      <SessionView
        {...(token && { token })}
        {...(opens && { onOpen: (id) => opened.push(id) })}
        {...props}
        onError={(problem) => problems.push(problem.reason + ": " + problem.message)}
      />
    </div>
  );
};
Object.assign(window, {
  problems,
  opened,
  show: (views) => root.render(<StrictMode>{views.map(viewOf)}</StrictMode>),
  leave: () => root.unmount(),
  asked: () => asked,
});`;

async function buildApp(): Promise<void> {
  folder = await makeDirectory();
  // As if npm had installed what the package names.
  await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
  const built = join(folder, "package");
  await buildReact(built);
  await writeFile(join(folder, "own.css"), STYLES);
  await writeFile(join(folder, "app.jsx"), SCRIPT);
  await build({
    entryPoints: [join(folder, "app.jsx")],
    outdir: join(folder, "out"),
    bundle: true,
    format: "esm",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"production"' },
    alias: {
      "@session-ledger/react": join(built, "index.js"),
      "@session-ledger/react/styles.css": join(built, "styles.css"),
    },
  });
  styles = await readFile(join(folder, "out/app.css"), "utf8");
  await put("app.css", "text/css", styles);
  await put("app.js", "text/javascript", await readFile(join(folder, "out/app.js"), "utf8"));
  await put("index.html", "text/html", HTML);
}

/** A server of the page has it, with a policy without any exception. */
async function put(name: string, type: string, body: string): Promise<void> {
  const policy = `default-src 'none'; script-src 'self'; style-src 'self'; connect-src http:; base-uri 'none'`;
  const headers = { "content-type": `${type}; charset=utf-8`, "content-security-policy": policy };
  const answer = await fetch(new URL(name, APP), { method: "PUT", headers, body });
  expect(answer.status).toBe(200);
}

beforeAll(async () => {
  const issuer = await sharedIssuer("tokens");
  admin = await issuer.signed("react admin", ["admin"]);
  await buildApp();
  for (const id of ["react-a", "react-b"]) {
    await say(door(), id, { payload: `A question of ${id}` });
    await pushAll(door(), id, run(`${id}-1`, spoken(`${id}-m1`, `An answer of ${id}`)));
  }
});
afterAll(cleanUp);

function door() {
  return { httpAddress: service.httpAddress, token: admin.token };
}

async function forkOf(sessionId: string): Promise<string> {
  const path = `/api/ambient/v1/sessions/${sessionId}/fork`;
  const headers = { authorization: `Bearer ${admin.token}`, "content-type": "application/json" };
  const answer = await fetch(url() + path, { method: "POST", headers, body: '{"atSeq":"5"}' });
  return z.object({ metadata: z.object({ id: z.string() }) }).parse(await answer.json()).metadata
    .id;
}

async function tokenFor(sessionId: string, role: "viewer" | "editor"): Promise<string> {
  return (await sessionCaller(client, admin, { sessionId, role })).token;
}

interface View {
  readonly url?: string;
  readonly session?: string;
  readonly token?: string;
  /** What the function gives, one by one; the last one from then on. */
  readonly tokens?: readonly string[];
  readonly theme?: string;
  readonly parts?: string;
  readonly opens?: boolean;
}

async function show(page: Page, ...views: readonly View[]): Promise<void> {
  const all = views.map((one) => ({ url: url(), ...one }));
  await page.evaluate(`show(${JSON.stringify(all)})`);
}

function view(page: Page, at: number) {
  const box = page.locator(`#view${at}`);
  return {
    box,
    items: box.getByRole("feed").getByRole("article"),
    message: box.getByRole("textbox", { name: "Message" }),
  };
}

function visit(
  act: (page: Page, seen: Seen) => Promise<void>,
  asks: readonly string[] = [],
): Promise<void> {
  return inspector.visit(APP, { asks: [url(), ...asks] }, act);
}

/** What the app looks like: none of it is the view's to change. */
const LOOK = `[...document.querySelectorAll("html, body, h1, body > button, body > input, table, td, ul, li, p")]
  .filter((one) => one.closest(".session-ledger") === null)
  .map((one) => {
    const style = getComputedStyle(one);
    const { width, height } = one.matches("html, body") ? {} : one.getBoundingClientRect();
    return [one.tagName, one.dataset.theme, width, height, ...[...style].filter((name) => !/^(?:block-size|height|inline-size|width|perspective|transform)/.test(name)).map((name) => name + style.getPropertyValue(name))].join("|");
  }).concat(document.title, location.href, JSON.stringify({ ...localStorage, ...sessionStorage }))`;

test("a server draws an empty box", async () => {
  const script = `import { createElement } from "react";
    import { renderToString } from "react-dom/server";
    import { SessionView } from "./package/index.js";
    process.stdout.write(renderToString(createElement(SessionView, { url: "https://x.example", session: "s" })));`;
  const args = ["--input-type=module", "--eval", script];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: folder });
  expect(stdout).toBe('<div class="session-ledger" tabindex="-1"></div>');
});

describe("the view of another app in chromium", needs("chromium"), () => {
  test("shows two sessions with a token each, follows them, and leaves the app as it was", async () => {
    const [viewer, editor] = [
      await tokenFor("react-a", "viewer"),
      await tokenFor("react-b", "editor"),
    ];
    const other = url().replace("127.0.0.1", "localhost");
    const act = async (page: Page, { requests }: Seen) => {
      const before = await page.evaluate(LOOK);
      await show(
        page,
        { session: "react-a", token: viewer, theme: "dark" },
        { session: "react-b", token: editor, theme: "light", url: other },
      );
      const [a, b] = [view(page, 0), view(page, 1)];
      await a.items.getByText("An answer of react-a").waitFor();
      await b.items.getByText("An answer of react-b").waitFor();
      for (const { box } of [a, b])
        await box
          .getByRole("status")
          .getByText(/^\W*live$/)
          .waitFor();
      await pushAll(door(), "react-a", run("react-a-2", spoken("react-a-m2", "A later answer")));
      await a.items.getByText("A later answer").waitFor();
      expect(await b.items.getByText("A later answer").count()).toBe(0);

      // Only the editor may write, and a message arrives.
      expect([await a.message.count(), await b.message.count()]).toEqual([0, 1]);
      await b.message.fill("Written in the app");
      await b.message.press("Enter");
      await b.items.getByText("Written in the app").waitFor();

      // Choices of a reader stay in the view.
      for (const name of ["Timeline", "Conversation"])
        await b.box.getByRole("tab", { name }).click();
      await b.items.getByText("Written in the app").waitFor();
      const scheme =
        "(id) => getComputedStyle(document.querySelector(id + ' .session-ledger')).colorScheme";
      const schemes = `["#view0", "#view1"].map(${scheme})`;
      expect(await page.evaluate(schemes)).toEqual(["dark", "light"]);
      expect(await page.evaluate(LOOK)).toEqual(before);
      expect(await page.evaluate("problems")).toEqual([]);
      expect(await seriousFindings(page)).toEqual([]);
      const asked = (id: string) =>
        requests.map((one) => one.url()).filter((one) => one.includes(id));
      expect(asked("react-a").every((one) => one.startsWith(url()))).toBe(true);
      expect(asked("react-b").every((one) => one.startsWith(other))).toBe(true);
    };
    await visit(act, [other]);
  });

  test("has keys only while it has the focus", async () => {
    const token = await tokenFor("react-a", "viewer");
    await visit(async (page) => {
      await show(page, { session: "react-a", token }, { session: "react-a", token });
      const [a, b] = [view(page, 0), view(page, 1)];
      for (const { items } of [a, b]) await items.getByText("An answer of react-a").waitFor();
      const field = page.getByLabel("Its field");
      await field.press("j");
      await field.press("k");
      await page.getByRole("button", { name: "Its button" }).press("j");
      await page.evaluate("document.activeElement.blur()");
      await page.keyboard.press("j");
      const focused = (at: number) => page.locator(`#view${at} .conversation-item:focus`).count();
      expect(await field.inputValue()).toBe("jk");
      expect([await focused(0), await focused(1)]).toEqual([0, 0]);
      // A press on a text gives the view its keys.
      await b.box.getByRole("heading", { name: "react-a" }).click();
      await page.keyboard.press("k");
      await expect.poll(() => focused(1)).toBe(1);
      expect(await focused(0)).toBe(0);
    });
  });

  test("shows why a session cannot be read: a wrong token, an unknown id, no service, and props", async () => {
    const token = await tokenFor("react-a", "viewer");
    const nobody = "http://127.0.0.1:9";
    await visit(
      async (page) => {
        await show(
          page,
          { session: "react-a", token: "a-wrong-token" },
          { session: "react-none", token },
          { session: "react-a", token, url: nobody },
          { session: "", token },
          { session: "react-a", url: "ftp://x" },
        );
        const alert = (at: number) => view(page, at).box.getByRole("alert").first();
        const expected = [
          /token/,
          "session react-none does not exist",
          `Is the service at ${nobody}, and is ${new URL(APP).origin} in its HTTP_ORIGINS?`,
          "session: empty, expected the id of a session",
          "url: ftp://x, expected the http or https address",
        ];
        for (const [at, text] of expected.entries()) await alert(at).getByText(text).waitFor();
        const reasons = "problems.map((text) => text.split(':')[0]).sort()";
        await expect
          .poll(() => page.evaluate(reasons))
          .toEqual(["BAD_PROPS", "BAD_PROPS", "NO_ANSWER", "SESSION_NOT_FOUND", "UNAUTHENTICATED"]);
      },
      [nobody],
    );
  });

  test("asks the function for another token when one is refused", async () => {
    const tokens = ["an-expired-token", await tokenFor("react-a", "viewer")];
    await visit(async (page) => {
      await show(page, { session: "react-a", tokens });
      await view(page, 0).items.getByText("An answer of react-a").waitFor();
      expect(await page.evaluate("asked()")).toBe(2);
    });
  });

  test("opens the session again when the app gives another token after a refusal", async () => {
    const token = await tokenFor("react-a", "viewer");
    await visit(async (page) => {
      await show(page, { session: "react-a", token: "a-wrong-token" });
      await view(page, 0).box.getByRole("alert").waitFor();
      await show(page, { session: "react-a", token });
      await view(page, 0).items.getByText("An answer of react-a").waitFor();
      expect(await view(page, 0).box.getByRole("alert").count()).toBe(0);
    });
  });

  test("shows a session that did not exist when it begins", async () => {
    await visit(async (page) => {
      await show(page, { session: "react-later", token: admin.token });
      await view(page, 0).box.getByText("session react-later does not exist").waitFor();
      await say(door(), "react-later", { payload: "The first message" });
      await view(page, 0).items.getByText("The first message").waitFor();
      expect(await page.evaluate("problems.map((text) => text.split(':')[0])")).toEqual([
        "SESSION_NOT_FOUND",
      ]);
    });
  });

  test("has no links to other sessions without onOpen, and gives it their ids", async () => {
    const token = admin.token;
    const fork = await forkOf("react-a");
    await visit(async (page) => {
      await show(page, { session: fork, token }, { session: fork, token, opens: true });
      const origin = (at: number) => view(page, at).box.getByText("Forked from react-a");
      for (const at of [0, 1]) await origin(at).waitFor();
      const named = (at: number, name: RegExp) => view(page, at).box.getByRole("button", { name });
      const link = (at: number) => named(at, /Forked from/).count();
      expect([await link(0), await link(1)]).toEqual([0, 1]);
      await origin(1).click();
      expect(await page.evaluate("opened")).toEqual(["react-a"]);
      expect(new URL(page.url()).pathname).toBe(new URL(APP).pathname);
      for (const at of [0, 1]) {
        const { box } = view(page, at);
        await box.getByRole("tab", { name: "Events" }).click();
        const events = box.getByRole("region", { name: "Events" });
        await events.getByRole("row").filter({ hasText: "RUN_FINISHED" }).first().click();
        await events.getByText('"RUN_FINISHED"').first().waitFor();
      }
      const forks = (at: number) => named(at, /Fork here/).count();
      expect([await forks(0), await forks(1)]).toEqual([0, 1]);
    });
  });

  test("keeps the app when it fails itself, and is shown again by a press", async () => {
    const token = await tokenFor("react-a", "viewer");
    await visit(async (page, { errors }) => {
      await page.evaluate(`{
        const real = Date.prototype.toLocaleTimeString;
        window.mend = () => { Date.prototype.toLocaleTimeString = real; };
        Date.prototype.toLocaleTimeString = () => { throw new Error("no time"); };
      }`);
      await show(page, { session: "react-a", token });
      const { box, items } = view(page, 0);
      await box.getByRole("alert").getByText("no time").waitFor();
      expect(await page.evaluate("problems")).toEqual(["FAILED: no time"]);
      expect(await page.getByRole("heading", { name: "The app" }).count()).toBe(1);
      await page.evaluate("mend()");
      await box.getByRole("button", { name: "Show it again" }).click();
      await items.getByText("An answer of react-a").waitFor();
      // React reports it in the console too.
      expect(errors.splice(0).every((text) => text.includes("no time"))).toBe(true);
    });
  });

  test("ends all its requests when it is unmounted", async () => {
    const token = await tokenFor("react-a", "viewer");
    await visit(async (page, { requests }) => {
      await page.clock.install();
      await show(page, { session: "react-a", token });
      const { box } = view(page, 0);
      await box
        .getByRole("status")
        .getByText(/^\W*live$/)
        .waitFor();
      const open = () =>
        requests.filter((one) => one.failure() === null && one.timing().responseEnd < 0);
      const streams = () => open().filter((one) => /\/(?:events|messages)\?/.test(one.url()));
      await expect.poll(() => streams().length).toBe(2);
      await page.evaluate("leave()");
      await expect.poll(() => open().length).toBe(0);
      const before = requests.length;
      // Its timers are those of a minute and less.
      await page.clock.runFor(120_000);
      await pushAll(door(), "react-a", run("react-a-3", spoken("react-a-m3", "To nobody")));
      await page.clock.runFor(120_000);
      expect(requests.slice(before).map((one) => one.url())).toEqual([]);
    });
  });

  test("has as many parts as its box has room for, and alone the conversation", async () => {
    const token = await tokenFor("react-a", "viewer");
    await visit(async (page) => {
      const one = { session: "react-a", token };
      const tabs = (at: number) => view(page, at).box.getByRole("tab").allInnerTexts();
      await show(page, one);
      await view(page, 0).items.first().waitFor();
      expect(await tabs(0)).toEqual(["Events", "State"]);
      await show(page, one, one);
      await view(page, 1).items.first().waitFor();
      await expect.poll(() => tabs(0)).toEqual(["Conversation", "Timeline", "Events", "State"]);
      await show(page, { ...one, parts: "conversation" });
      await expect.poll(() => tabs(0)).toEqual([]);
      const has = (name: string) => view(page, 0).box.getByRole("region", { name }).count();
      expect([await has("Conversation"), await has("Scrubber"), await has("Timeline")]).toEqual([
        1, 1, 0,
      ]);
    });
  });

  test("has rules for its own elements alone", async () => {
    await visit(async (page) => {
      const foreign = `(() => {
        const sheet = new CSSStyleSheet();
        const selectors = (rules) => [...rules].flatMap((rule) =>
          rule.selectorText === undefined ? selectors(rule.cssRules ?? []) : rule.selectorText.split(/,(?![^()]*\\))/));
        sheet.replaceSync(${JSON.stringify(styles)});
        return selectors(sheet.cssRules).map((one) => one.trim());
      })()`;
      const selectors = z.array(z.string()).parse(await page.evaluate(foreign));
      expect(selectors.length).toBeGreaterThan(200);
      expect(selectors.filter((one) => !/^\.session-ledger(?![\w-])/.test(one))).toEqual([
        "body",
        "#views",
        "#views > div",
      ]);
    });
  });
});
